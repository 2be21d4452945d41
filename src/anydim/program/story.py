"""What the records of a program say of it: its plan, its memory, and why it looks as it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anydim.program.explain import explain
from anydim.program.plan import Memory, Plan, memory, plan
from anydim.program.program import Program


@dataclass(frozen=True)
class Story:
    """A program, and lines on what was fused and why."""

    program: Program
    notes: tuple[str, ...] = ()

    def plan(self, sizes: Mapping[str, int]) -> Plan:
        """What a call at these sizes will do."""
        return plan(self.program, sizes)

    @property
    def memory(self) -> Memory:
        """What memory a call can need."""
        return memory(self.program)

    def explain(self) -> str:
        """Kernels, schedules and memory as text."""
        return explain(self.program, self.notes)
