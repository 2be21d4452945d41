"""Progress on standard error: a bar of `rich`, or lines without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from time import perf_counter
from typing import Any, Protocol

LINE_EVERY = 5.0  # seconds between two lines
_REFRESHES = 4  # of a bar in a second; more would disturb what is being timed


class Advance(Protocol):
    """Reports progress; `detail` says what is being done."""

    def __call__(self, done: int, total: int | None, detail: str = "", /) -> None: ...


def ignore_progress(done: int, total: int | None, detail: str = "") -> None:
    """Show no progress."""


@contextmanager
def show_bar(title: str) -> Iterator[Advance]:
    """Show a bar on a terminal if `rich` is installed, otherwise lines."""
    try:
        console = import_module("rich.console").Console(stderr=True)
    except ImportError:
        console = None
    if console is None or not sys.stderr.isatty():
        yield _lines(title)
        return
    with draw_bar(title, console) as advance:
        yield advance


@contextmanager
def draw_bar(title: str, console: Any) -> Iterator[Advance]:
    """Draw a bar on a console of `rich`, and remove it at the end."""
    rich: Any = import_module("rich.progress")
    columns = (
        rich.SpinnerColumn("line"),
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(bar_width=24),
        rich.TimeElapsedColumn(),
        rich.TextColumn("{task.fields[detail]}", markup=False),
    )
    with rich.Progress(
        *columns, console=console, transient=True, refresh_per_second=_REFRESHES
    ) as bar:
        task = bar.add_task(title, total=None, detail="")

        def advance(done: int, total: int | None, detail: str = "") -> None:
            of = "" if total is None else f"/{total}"
            at = f"{done}{of} {detail}".rstrip()
            bar.update(task, completed=done, total=total, detail=at)

        yield advance


def _lines(title: str) -> Advance:
    last = perf_counter()

    def advance(done: int, total: int | None, detail: str = "") -> None:
        nonlocal last
        if perf_counter() - last >= LINE_EVERY:
            last = perf_counter()
            of = "" if total is None else f" of {total}"
            print(f"{title}: {done}{of} {detail}", file=sys.stderr)

    return advance
