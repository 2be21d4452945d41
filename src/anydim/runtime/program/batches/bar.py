"""Progress on standard error: a bar of `rich`, or lines without it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from time import perf_counter
from typing import Any

Advance = Callable[[int, "int | None", str], None]
_LINE_EVERY = 5.0  # seconds between two lines


def ignore_progress(done: int, total: int | None, detail: str) -> None:
    """Show no progress."""


@contextmanager
def show_bar(title: str) -> Iterator[Advance]:
    """Show a bar on a terminal if `rich` is installed, otherwise lines."""
    try:
        rich: Any = import_module("rich.progress")
    except ImportError:
        rich = None
    if rich is None or not sys.stderr.isatty():
        yield _lines(title)
        return
    columns = (
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(bar_width=24),
        rich.TimeElapsedColumn(),
        rich.TextColumn("{task.fields[detail]}", markup=False),
    )
    console = import_module("rich.console").Console(stderr=True)
    with rich.Progress(*columns, console=console, transient=True, refresh_per_second=4) as bar:
        task = bar.add_task(title, total=None, detail="")

        def advance(done: int, total: int | None, detail: str) -> None:
            of = "" if total is None else f"/{total}"
            bar.update(task, completed=done, total=total, detail=f"{done}{of} {detail}")

        yield advance


def _lines(title: str) -> Advance:
    last = perf_counter()

    def advance(done: int, total: int | None, detail: str) -> None:
        nonlocal last
        if perf_counter() - last >= _LINE_EVERY:
            last = perf_counter()
            of = "" if total is None else f" of {total}"
            print(f"{title}: {done}{of} {detail}", file=sys.stderr)

    return advance
