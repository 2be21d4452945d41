"""Promise: pages look as they should in a real browser, by day and by night, narrow and wide."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import anydim as ad
from anydim.cli.report import plot_page
from anydim.cli.report.pages import frame_page
from anydim.cli.report.trace_page import page
from anydim.runtime.program.memory_map import arena
from tests.browser import looked_at
from tests.unit.runtime.devices.test_placement import net

pytest.importorskip("PyQt6.QtWebEngineWidgets")
pytestmark = pytest.mark.slow
SHOWN = [(width, dark) for width in (800, 1600) for dark in (False, True)]
BOXES = "[...document.querySelectorAll('rect.{}')].filter(r => r.getBoundingClientRect().width > 0)"
BODY = "getComputedStyle(document.body)"
DARK = "getComputedStyle(document.body).backgroundColor != 'rgb(255, 255, 255)'"


@pytest.mark.parametrize(("width", "dark"), SHOWN)
def test_a_trace_draws_each_event(tmp_path: Path, width: int, dark: bool) -> None:
    rules = {"softmax": "accel", "*": "cpu"}
    model = ad.compile(net(), devices={"accel": "cpu:1"}, placement=rules)
    trace, file = model.trace(n=64, calls=2), tmp_path / "trace.html"
    file.write_text(page(trace), "utf-8")
    seen = looked_at(file, tmp_path / "page.png", width, dark, _asked("span"))
    assert seen["result"] == [len(trace.spans), dark]
    _fine(seen, tmp_path / "page.png", width)


@pytest.mark.parametrize(("width", "dark"), SHOWN)
def test_a_plan_draws_each_value(tmp_path: Path, width: int, dark: bool) -> None:
    planned, file = arena(ad.compile(net()).program, {"n": 64}), tmp_path / "plan.html"
    plot_page.write(planned, str(file))
    seen = looked_at(file, tmp_path / "page.png", width, dark, _asked("box"))
    assert seen["result"] == [len(planned.placed), dark]
    _fine(seen, tmp_path / "page.png", width)


@pytest.mark.parametrize(("width", "dark"), SHOWN)
def test_tables_of_a_notebook_have_its_colours(tmp_path: Path, width: int, dark: bool) -> None:
    model, file = ad.compile(net()), tmp_path / "cells.html"
    cells = (
        model,
        model.memory,
        model.plan(n=64),
        model.profile(n=64, repeat=2),
        model.trace(n=64),
    )
    file.write_text(frame_page("cells", "", (each._repr_html_() for each in cells)), "utf-8")
    ink = "getComputedStyle(document.querySelector('td')).color"
    asked = f"[document.querySelectorAll('table').length, {ink} == {BODY}.color, {DARK}]"
    seen = looked_at(file, tmp_path / "page.png", width, dark, asked)
    assert seen["result"] == [8, True, dark]
    _fine(seen, tmp_path / "page.png", width)


def test_a_script_that_fails_would_be_told(tmp_path: Path) -> None:
    file = tmp_path / "wrong.html"
    file.write_text("<script>nothing.at.all()</script>", "utf-8")
    seen = looked_at(file, tmp_path / "page.png", 800, False)
    assert re.search("nothing is not defined", seen["errors"][0])


def _asked(boxes: str) -> str:
    return f"[{BOXES.format(boxes)}.length, {DARK}]"


def _fine(seen: dict[str, object], picture: Path, width: int) -> None:
    """No error, nothing beside the page, and a picture."""
    assert seen["errors"] == []
    assert isinstance(seen["width"], int) and seen["width"] <= width
    assert picture.read_bytes().startswith(b"\x89PNG")
