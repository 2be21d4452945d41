"""Promise: a process that compiles, calls and releases again and again holds no more than before.

`make soak` looks for an hour; here a few rounds show that work and verdict are what they say.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from anydim.base import settings
from tests.soak.__main__ import soaked
from tests.soak.picture import PANELS, svg
from tests.soak.samples import NAMES, Sample, table, verdicts
from tests.soak.work import Soak, SoakError

STEADY = [Sample(60.0 * n, n, n, n, 3 * 10**8, 4 * 10**8, 10**8, 600, 6, 5) for n in range(1, 61)]
MIB = 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_few_rounds(tmp_path: Path) -> None:
    soak = Soak(tmp_path, names=("detector", "grower"), graphs=2, calls_of_round=6)
    with settings.override(cache_dir=str(tmp_path / "cache")):
        *_, before, after = soaked(soak, 0, lambda sample: None, least=4)
    assert (soak.rounds, soak.compiles) == (4, 2 + 2 * 4)
    assert after.handles == before.handles
    assert after.threads == before.threads
    assert after.in_use < before.in_use + 2 * MIB
    assert after.anonymous < before.anonymous + 32 * MIB  # what malloc keeps free comes and goes


def test_other_bits_are_an_error(tmp_path: Path) -> None:
    soak = Soak(tmp_path, names=("grower",))
    soak.begin()
    soak.first = dict.fromkeys(soak.first, 1)
    with pytest.raises(SoakError, match=r"grower at .*: other bits than the first time"):
        soak.round()


def test_what_grows_is_seen() -> None:
    assert all(verdict.flat for verdict in verdicts(STEADY))
    for name, step in (
        ("anonymous", MIB // 8),
        ("in_use", MIB // 8),
        ("handles", 1),
        ("threads", 1),
    ):
        rising = [replace(s, **{name: getattr(s, name) + n * step}) for n, s in enumerate(STEADY)]
        assert [v.name for v in verdicts(rising) if not v.flat] == [name]


def test_the_warm_up_does_not_count() -> None:
    cold = [replace(sample, anonymous=10**8) for sample in STEADY[:14]]
    assert all(verdict.flat for verdict in verdicts([*cold, *STEADY[14:]]))


def test_samples_are_a_table_and_a_picture() -> None:
    lines = table(STEADY).splitlines()
    assert lines[0].split(",") == list(NAMES)
    assert len(lines) == 61
    root = ElementTree.fromstring(svg(STEADY, "60 calls, 60 compiles in 60 minutes"))
    assert len(root.findall("{*}polyline")) == len(PANELS)
