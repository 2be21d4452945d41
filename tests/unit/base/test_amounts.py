"""Promise: bytes are read and written in one way."""

from __future__ import annotations

import pytest

from anydim.base.amounts import bytes_of, bytes_text, exact_bytes_text
from anydim.base.errors import OptionError


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (0, 0), (4096, 4096), ("65536", 65536), ("512 MiB", 512 << 20), ("512mib", 512 << 20),
        ("1.5 GB", 1_500_000_000), ("0.5 KiB", 512), (" 2 GiB ", 2 << 30), ("3 B", 3),
    ],
)  # fmt: skip
def test_bytes_are_read(given: object, wanted: int) -> None:
    assert bytes_of(given) == wanted


@pytest.mark.parametrize("given", ["", "MiB", "-1", "1 X", "1e3", "1,5 MB", -1, 1.5, True, None])
def test_what_is_no_number_of_bytes_is_refused(given: object) -> None:
    with pytest.raises(OptionError, match=r"memory is .* expected a number of bytes"):
        bytes_of(given)


def test_bytes_are_written() -> None:
    texts = {0: "0 bytes", 1023: "1023 bytes", 1024: "1 KiB", 304087040: "290 MiB",
             1023 << 20: "1023 MiB", 3 << 40: "3 TiB"}  # fmt: skip
    assert {value: bytes_text(value) for value in texts} == texts
    assert exact_bytes_text(304087040) == "304087040 bytes (290 MiB)"
    assert exact_bytes_text(7) == "7 bytes"
