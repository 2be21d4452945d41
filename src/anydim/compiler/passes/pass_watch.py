"""The settings `verify`, `dump` and `time`: checks and output between passes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from anydim.base import settings
from anydim.base.errors import InternalError, OptionError
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.graph.verify import verify

STDERR = "-"


@dataclass
class Watch:
    """Observes the stages of one compilation; inactive unless a setting enables it.

    `verify`: checks that graphs are well formed after every pass, else raises an InternalError that
    names the pass. `dump`: prints the text of each stage that changed it; to stderr, or to numbered
    files of a folder. `time`: prints the seconds of each stage to stderr.
    """

    verify: bool = field(default_factory=lambda: settings.verify)
    dump: str = field(default_factory=lambda: settings.dump)
    time: bool = field(default_factory=lambda: settings.time)
    _last: str = ""
    _number: int = 0

    def stage(self, name: str, text: Callable[[], str], graphs: Sequence[Graph] = ()) -> None:
        """Process a finished stage with its text and its graphs, if any."""
        if self.verify:
            _verify(name, graphs)
        if not self.dump:
            return
        number, self._number = self._number, self._number + 1
        shown = text()
        if shown == self._last:
            return
        self._last = shown
        if self.dump == STDERR:
            sys.stderr.write(f"# ---- {name} ----\n{shown.rstrip()}\n")
        else:
            _write(Path(self.dump).expanduser(), f"{number:02}-{name}.txt", shown)

    def print_times(self, seconds: Mapping[str, float]) -> None:
        """Print the times of a finished compilation."""
        if not self.time:
            return
        whole = sum(seconds.values())
        for name, each in seconds.items():
            share = 100 * each / whole if whole else 0.0
            sys.stderr.write(f"{name:>10} {each:9.4f} s {share:5.1f} %\n")
        sys.stderr.write(f"{'all':>10} {whole:9.4f} s\n")


def _verify(name: str, graphs: Sequence[Graph]) -> None:
    for graph in graphs:
        try:
            verify(graph)
        except Exception as error:  # a broken graph may fail in any way
            raise InternalError(f"after the pass '{name}': {error!r}") from error


def _write(folder: Path, name: str, text: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    except OSError as error:
        raise OptionError(
            f"setting 'dump': {folder} cannot be written: {error.strerror}",
            "give a folder, or - for the standard error stream",
        ) from None
