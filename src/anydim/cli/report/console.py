"""Where text goes: results to standard output; progress, notes and errors to standard error.

A terminal shows a bar while something runs and takes it away afterwards; anything else gets plain
lines. Colours follow rich: NO_COLOR, FORCE_COLOR and TERM are respected.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from anydim.base.text import COLUMNS, fold_lines
from anydim.runtime.program.batches.bar import LINE_EVERY, Advance, draw_bar, ignore_progress


class Console:
    """`quiet` leaves out progress and notes; results and errors always show."""

    def __init__(self, quiet: bool = False) -> None:
        from rich.console import Console as Screen

        self.quiet = quiet
        self._out = Screen(highlight=False, emoji=False)
        self._log = Screen(stderr=True, highlight=False, emoji=False)

    def result(self, text: str = "", style: str = "") -> None:
        """A text to standard output, as it is."""
        self._out.print(text, style=style, markup=False, soft_wrap=True)

    def title(self, text: str) -> None:
        """A heading to standard output, folded as prose is."""
        self.result(self._fold(text), style="bold")

    def table(self, text: str) -> None:
        """A table to standard output; its first line is the header."""
        header, _, rows = text.partition("\n")
        self.result(header, style="bold")
        if rows:
            self.result(rows)

    def prose(self, text: str) -> None:
        """A text to standard output, with long lines folded under their indent."""
        self.result(self._fold(text))

    def _fold(self, text: str) -> str:
        return fold_lines(text, self._out.width if self._out.is_terminal else COLUMNS)

    def note(self, text: str) -> None:
        """A line beside the results, to standard error."""
        if not self.quiet:
            self._log.print(text, markup=False, soft_wrap=True)

    def error(self, problem: str, hint: str = "") -> None:
        """`error: problem` to standard error, and the hint below it."""
        self._log.print("error:", style="bold red", end=" ")
        self._log.print(problem, markup=False, soft_wrap=True)
        if hint:
            self._log.print(textwrap.indent(hint, "  "), markup=False, soft_wrap=True)

    @contextmanager
    def task(self, title: str) -> Iterator[Advance]:
        """Show that something runs; the body calls advance(done, total, detail)."""
        if self.quiet:
            yield ignore_progress
        elif self._log.is_terminal and not self._log.is_dumb_terminal:
            with draw_bar(title, self._log) as advance:
                yield advance
        else:
            self.note(title)
            yield self._lines()

    def _lines(self) -> Advance:
        last = perf_counter()

        def advance(done: int, total: int | None, detail: str = "") -> None:
            nonlocal last
            if total is not None and done < total and perf_counter() - last >= LINE_EVERY:
                last = perf_counter()
                self.note(f"  {done} of {total} {detail}".rstrip())

        return advance
