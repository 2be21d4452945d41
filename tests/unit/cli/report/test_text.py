"""Promise: figures read well at every magnitude, tables line up."""

from __future__ import annotations

import pytest

from anydim.base.text import cut, fold_lines, kernel_text, nodes_text, table
from anydim.cli.report.text import amount, duration, sizes_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.00 us"), (17e-6, "17.0 us"), (999e-6, "999 us"), (1e-3, "1.00 ms"),
        (4.523e-3, "4.52 ms"), (0.0999, "99.9 ms"), (0.09996, "100 ms"), (1.309, "1.31 s"),
        (123.4, "123 s"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 flop"), (999, "999 flop"), (1000, "1.00 kflop"), (9301632, "9.30 Mflop")],
)
def test_amounts(value: int, text: str) -> None:
    assert amount(value, "flop") == text


def test_sizes() -> None:
    assert sizes_text({"batch": 2, "seq": 16}) == "batch=2, seq=16"
    assert sizes_text({}) == "its only size"


def test_a_table_lines_up_without_trailing_spaces() -> None:
    text = table(("name", "size"), [("a", "1"), ("longer", "1000")])
    assert text == "  name    size\n  a          1\n  longer  1000"
    assert table(("name", "size"), []) == "  name  size"


def test_long_lines_go_on_below() -> None:
    assert fold_lines("short\n  one two three", 11) == "short\n  one two\n      three"


def test_a_table_is_never_too_wide() -> None:
    """The longest cells are cut; what still does not fit is a second table."""
    names = [f"/encoder/layer.{number}/attention/output/dense/MatMul" * 3 for number in range(3)]
    lines = table(["nodes", "time"], [(name, "1 ms") for name in names]).split("\n")
    assert max(map(len, lines)) == 100 and len(lines) == 4
    assert all(line.split()[0].startswith("/encoder/layer.") for line in lines[1:])
    assert all(line.endswith("MatMul  1 ms") for line in lines[1:])
    wide = [f"column {number}" for number in range(30)]
    text = table(["at", *wide], [["n=1", *map(str, range(10**6, 10**6 + 30))]])
    blocks = text.split("\n\n")
    assert len(blocks) > 1 and max(map(len, text.split("\n"))) <= 100
    assert all(block.split("\n")[1].startswith("  n=1") for block in blocks)
    assert [word for word in text.split() if word.startswith("1000")] == [
        str(number) for number in range(10**6, 10**6 + 30)
    ]
    assert table([], []) == table(["a"], []).replace("a", "")


@pytest.mark.parametrize("width", [0, 1, 3, 4, 9, 10, 11, 12, 99])
def test_a_text_that_is_cut_keeps_its_ends(width: int) -> None:
    text = cut("0123456789ab", width)
    assert len(text) == min(width, 12)
    assert width < 12 or text == "0123456789ab"
    assert not 9 <= width < 12 or (text.startswith("0") and text.endswith("9ab"))


def test_nodes_of_a_launch() -> None:
    assert nodes_text("model.onnx: /a/MatMul + /a/Add + /b/Relu") == "/a/MatMul +2"
    assert (
        nodes_text("model.onnx: " + "x" * 99 + "/MatMul + y", 20) == "..." + "x" * 7 + "/MatMul +1"
    )
    assert (nodes_text("add"), nodes_text("")) == ("add", "")
    assert kernel_text("rows_0123456789ab") == "rows_012345"
    assert kernel_text("rows_of_mine") == "rows_of_mine"
