"""What the records of a program say of it: its plan, its memory, and why it looks as it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anydim.program.explain import explain
from anydim.program.plan import Memory, Plan, memory, plan
from anydim.program.program import Program
from anydim.sizes import Size


@dataclass(frozen=True)
class Story:
    """A program, lines on what was fused and why, and the last index of inputs that are indices."""

    program: Program
    notes: tuple[str, ...] = ()
    last_indices: Mapping[str, Size] = field(default_factory=dict)

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
