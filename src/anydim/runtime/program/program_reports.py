"""Reports derived from the records of a program: plan, memory, explanation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

from anydim.base.errors import MemoryLimitError
from anydim.base.records import dataclass
from anydim.runtime.program.explain import explain
from anydim.runtime.program.limits import MemoryLimit
from anydim.runtime.program.memory import Memory, memory
from anydim.runtime.program.plan import Plan, plan
from anydim.runtime.program.program import Program
from anydim.sizes import Size


@dataclass(frozen=True)
class ProgramReports:
    """A program, notes on fusion, and the maximum indices of inputs that are indices.

    `mixing` are the dims along which calls can be joined: why results of a row may depend on other
    rows, empty where the graph shows that they do not.
    """

    program: Program
    notes: tuple[str, ...] = ()
    last_indices: Mapping[str, Size] = field(default_factory=dict)
    mixing: Mapping[str, str] = field(default_factory=dict)

    def plan(self, sizes: Mapping[str, int]) -> Plan:
        """Return the plan of a call at these sizes."""
        return plan(self.program, sizes)

    @cached_property
    def memory(self) -> Memory:
        """Return the memory of a call."""
        return memory(self.program)

    def refusal(self, limit: MemoryLimit, sizes: Mapping[str, int]) -> MemoryLimitError:
        """Return the error for a call whose sizes need more than the limit."""
        return limit.error(self.program, sizes)

    def limit(self, given: Any) -> MemoryLimit:
        """Return a limit that this program meets, or raise MemoryLimitError."""
        limit = MemoryLimit.of(given)
        limit.check(self.program)
        return limit

    def explain(
        self, bodies: Sequence[str] = (), pattern: str = "", details: bool = False,
        ragged: Sequence[str] = (),
    ) -> str:  # fmt: skip
        """Kernels, schedules and memory as text."""
        rows = [_rows_text(dim, reason) for dim, reason in self.mixing.items()]
        return explain(self.program, self.notes, bodies, pattern, details, ragged, rows)


def _rows_text(dim: str, reason: str) -> str:
    """Whether requests may share calls along a dim."""
    if not reason:
        return f"'{dim}': proven: no operator mixes its rows"
    return f"'{dim}': not proven, so a batcher checks samples of calls: {reason}"
