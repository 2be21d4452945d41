"""The result of a check, as a record and as text of at most 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import field

from anydim.base.records import dataclass
from anydim.base.sheet import Sheet, Table
from anydim.base.text import count_of
from anydim.compiler.checking.compare import FACTOR, tolerance_text

_COLUMNS = 100
_MAX_SHOWN = 10


@dataclass(frozen=True)
class Failure:
    """A difference between program and oracle at a size."""

    sizes: Mapping[str, int]
    output: str
    reason: str

    def __str__(self) -> str:
        what = f"output '{self.output}'" if self.output else "the call"
        return f"{what}{at_sizes(self.sizes)}: {self.reason}"


@dataclass(frozen=True)
class CheckReport:
    """The result of a check.

    `samples` calls were compared at `sizes` different sizes, `corners` of them corners of the box
    and `reduced` to what an oracle can compute. `oracles` counts the calls each answered, by title,
    and `notes` has remarks on them. `types` are the compared element types. In `empty` calls every
    result had 0 elements, and `constant` results had one value everywhere. `rejected` calls were
    rejected by both, `unanswered` by the oracle only. `disputes` are differences where another
    oracle agrees with the program. `plain_error` is numpy's error in the program's types at
    `worst_sizes`, None if not computed; errors of up to `factor` times that are allowed.
    """

    samples: int
    rejected: int
    worst_error: float
    worst_sizes: Mapping[str, int]
    failures: tuple[Failure, ...] = field(default=())
    plain_error: float | None = None
    worst_output: str = ""
    sizes: int = 0
    corners: int = 0
    reduced: int = 0
    empty: int = 0
    constant: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    oracles: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    unanswered: int = 0
    why_unanswered: str = ""
    disputes: tuple[str, ...] = ()
    seed: int = 0
    stopped: float | None = None
    why_rejected: str = ""
    factor: int = FACTOR

    @property
    def compared(self) -> int:
        """Count of calls with compared elements that were not constant over all calls."""
        return self.samples - self.empty if set(self.types) - set(self.constant) else 0

    @property
    def ok(self) -> bool:
        """Whether at least one call was compared and all agreed."""
        return not self.failures and self.compared > 0

    @property
    def verdict(self) -> str:
        """'agree', 'N differ', or that nothing was compared."""
        if self.failures:
            return f"{len(self.failures)} differ"
        return "agree" if self.compared else "nothing was compared"

    def __str__(self) -> str:
        others = self.sizes - self.corners
        where = f"{self.corners} of them corners, {others} random" if self.sizes > 1 else "no dims"
        calls = f"{count_of(self.samples, 'call')} at {count_of(self.sizes, 'size')}"
        lines = [f"{calls} ({where}; seed {self.seed}): {self.verdict}"]
        lines += [f"  {line}" for line in (*self._oracles(), *self._worst(), *self._gaps())]
        alike = self._alike()
        lines += [f"  differs: {text}" for text in alike[:_MAX_SHOWN]]
        if len(alike) > _MAX_SHOWN:
            lines.append(f"  and {len(alike) - _MAX_SHOWN} more")
        lines += [f"  note: {dispute}" for dispute in self.disputes[:_MAX_SHOWN]]
        return "\n".join(map(_folded, lines))

    def _repr_html_(self) -> str:
        """Tables for notebooks: what was compared, and the differences."""
        facts = [
            *(("against", line.removeprefix("against ")) for line in self._oracles()),
            *(("compared", line) for line in self._worst()),
            *(("not compared", line) for line in self._gaps()),
            *(("note", dispute) for dispute in self.disputes),
        ]
        rows = [(failure.output or "the call", sizes_text(failure.sizes), failure.reason)
                for failure in self.failures]  # fmt: skip
        tables = [Table(("output", "at", "difference"), rows, 3)] if rows else []
        calls = f"{count_of(self.samples, 'call')} at {count_of(self.sizes, 'size')}"
        return Sheet(f"{calls} (seed {self.seed}): {self.verdict}", facts, tables).html()

    def _alike(self) -> list[str]:
        """The failures, with those that differ only in sizes merged."""
        found: dict[tuple[str, str], list[Failure]] = {}
        for failure in self.failures:
            found.setdefault((failure.output, failure.reason), []).append(failure)
        more = {key: len(same) - 1 for key, same in found.items()}
        return [
            f"{same[0]}" + (f" (and {count_of(more[key], 'call')} more)" if more[key] else "")
            for key, same in found.items()
        ]

    def _oracles(self) -> list[str]:
        lines = []
        for title, count in self.oracles.items():
            at = "" if len(self.oracles) == 1 else f" at {count_of(count, 'call')}"
            lines.append(f"against {title}{at}: it {self.notes[title]}")
        return lines

    def _worst(self) -> list[str]:
        if not self.types:
            return []
        plain = self.plain_error
        comparison = "" if plain is None else f" (numpy's in the same types {plain:.3g})"
        of = f" of '{self.worst_output}'" if self.worst_output else ""
        kinds = ", ".join(f"{name} {kind}" for name, kind in list(self.types.items())[:8])
        more = f" and {len(self.types) - 8} more" if len(self.types) > 8 else ""
        where = f"{of}{at_sizes(self.worst_sizes)}" if self.worst_error else ""
        return [
            f"worst error {self.worst_error:.3g}{comparison}{where}",
            f"compared types, shapes and values of {kinds}{more}",
            f"allowed: {tolerance_text(self.types, self.factor)}",
        ]

    def _gaps(self) -> list[str]:
        """Lines on what was not compared."""
        lines = []
        if self.empty:
            calls = f"{self.empty} of {count_of(self.samples, 'call')}"
            lines.append(f"nothing was compared at {calls}: every result has 0 elements")
        if self.constant:
            names = ", ".join(f"'{name}'" for name in self.constant)
            lines.append(f"constant in all calls, which proves little: {names}")
        if self.reduced:
            calls = count_of(self.reduced, "call")
            lines.append(f"sizes of {calls} were reduced to what the oracle can do")
        if self.rejected:
            calls = count_of(self.rejected, "more call")
            lines.append(f"{calls} rejected by model and oracle: {self.why_rejected}")
        if self.unanswered:
            calls = count_of(self.unanswered, "call")
            lines.append(f"{calls} not compared: {self.why_unanswered}")
        if self.refused:
            lines.append(self.refused)
        if self.stopped is not None:
            lines.append(f"stopped after {self.stopped:g} seconds")
        return lines


def at_sizes(sizes: Mapping[str, int]) -> str:
    """' at n = 3, m = 4', or ''."""
    text = sizes_text(sizes)
    return f" at {text}" if text else ""


def sizes_text(sizes: Mapping[str, int]) -> str:
    """'n = 3, m = 4'."""
    return ", ".join(f"{name} = {value}" for name, value in sizes.items())


def _folded(line: str) -> str:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(
        line, _COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
