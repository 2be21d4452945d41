"""Promise: the picture of a plan has a box for each value, where it lies and while it lives."""

from __future__ import annotations

import xml.etree.ElementTree as xml
from itertools import pairwise
from pathlib import Path

import pytest

from anydim.base.errors import OptionError
from anydim.cli.report.plot import svg
from anydim.cli.report.plot_page import page, write
from anydim.runtime.program.memory_map import Arena, ArenaValue, arena
from anydim.runtime.program.segment import Site
from anydim.sizes import Box, Dim, Size, as_size
from tests.unit.runtime.program.tiny import program, spec

N = Size.symbol("n")
NASTY = 'a<script>alert("1")</script>&\x00\x1b'
SPACE = "{http://www.w3.org/2000/svg}"


def chain(threads: int = 2) -> Arena:
    """t0 -> t1 -> t2 -> y, with scratch at the second launch."""
    values = [NASTY, "t1", "t2"]
    made = ["x", *values, "y"]
    sites = [
        Site(f"k{n}", (left, right), (N,), N, scratch=as_size(100 * (n == 1)), source=f"node {n}")
        for n, (left, right) in enumerate(pairwise(made))
    ]
    box, sizes = Box.of(Dim("n", 0, 64)), dict.fromkeys(values, N)
    made = program(box, [spec("x", "n")], [spec("y", "n")], sites, sizes, threads=threads)
    return arena(made, {"n": 40})


def test_values_lie_where_they_live() -> None:
    found = chain()
    lives = {value.name: (value.first, value.last) for value in found.placed}
    assert lives == {NASTY: (0, 1), "t1": (1, 2), "t2": (2, 3), "scratch 1": (1, 1)}
    assert (found.bytes, found.live) == (3 * 192 + 2 * 128, (192, 640, 384, 192))
    assert (found.peak, found.lower_bound) == (1, 640)
    assert found.placed[1].takes == "64*((n + 15)//16)" and found.placed[1].bytes == 192
    for number, one in enumerate(found.placed):
        for other in found.placed[:number]:
            together = one.first <= other.last and other.first <= one.last
            assert not together or one.end <= other.offset or other.end <= one.offset


def test_every_value_is_a_box() -> None:
    found = chain()
    tree = xml.fromstring(svg(found))
    boxes = [each for each in tree.iter(f"{SPACE}rect") if each.get("class") == "box"]
    assert len(boxes) == len(found.placed) == 4
    titles = [box.findtext(f"{SPACE}title") or "" for box in boxes]
    assert titles[0].startswith('a<script>alert("1")</script>&??\n192 bytes = 64*((n + 15)//16)')
    wide = {float(box.get("width") or 0) for box in boxes}
    assert max(wide) == pytest.approx(2 * min(wide), abs=0.02)  # two launches, or one of scratch
    ticks = [each for each in tree.iter(f"{SPACE}rect") if each.get("class") == "tick"]
    assert [tick.findtext(f"{SPACE}title") for tick in ticks][1] == "launch 1: k1\nnode 1"


def test_names_of_a_model_are_no_markup() -> None:
    text = page(chain())
    assert "<script" not in text and "&lt;script&gt;" in text and "\x00" not in text
    assert text.count("<table>") == 2 and text.count("<tr>") == 2 + 3 + 4
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")  # complete in itself


def test_a_plan_without_values_is_a_picture_too() -> None:
    empty = Arena("nothing", {}, (), (), 0)
    assert "0 values, 0 launches" in svg(empty) and xml.fromstring(svg(empty)) is not None
    one = Arena("none", {"n": 0}, (("k", ""),), (ArenaValue("t", 0, 0, 0, 0, "0", "4*n"),), 0)
    assert svg(one).count('class="box"') == 1 and "</html>" in page(one)


def test_pictures_are_svg_or_html(tmp_path: Path) -> None:
    write(chain(), str(tmp_path / "plan.svg"))
    xml.parse(tmp_path / "plan.svg")
    for name, problem in (("plan.png", "pictures are .svg or .html"), ("no/a.svg", "no folder")):
        with pytest.raises(OptionError, match=problem):
            write(chain(), str(tmp_path / name))
