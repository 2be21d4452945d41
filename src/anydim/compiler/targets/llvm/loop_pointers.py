"""Pointers that move with the counters of a loop, for WebAssembly.

An address `base + index` of a counter is an addition in each access there, where other processors
have it in the instruction, and LLVM reduces no strength for this target. A pointer per base moves
by the step of its counter instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from anydim.base.records import dataclass
from anydim.compiler.targets.llvm.emitter import Emitter, Lines

_MOST = 8  # pointers of a loop: more would not stay in registers


@dataclass
class LoopPointers:
    """The pointers of a loop whose body is being emitted.

    `depth` is that of its preheader, `before` the lines there, `starts` the values of its int64
    counters on entry, by name; `ends`: for the next iteration.
    """

    emitter: Emitter
    depth: int
    before: Lines
    starts: Mapping[str, str]
    ends: dict[str, str] = field(default_factory=dict)
    made: dict[tuple[str, str, str], tuple[str, str]] = field(default_factory=dict)

    def at(self, base: str, counter: str, element: str) -> str | None:
        """Return a pointer at base + counter, or None: no counter of this loop, or too many."""
        if counter not in self.starts or self.emitter.depth(base) > self.depth:
            return None
        key = base, counter, element
        if key not in self.made:
            if len(self.made) == _MOST:
                return None
            start, first = self.starts[counter], base
            if start != "0":
                first = self.emitter.fresh(self.depth)
                self.before.append(f"  {first} = getelementptr {element}, ptr {base}, i64 {start}")
            self.made[key] = self.emitter.fresh(self.depth + 1), first
        return self.made[key][0]

    def move(
        self, preheader: str, latch: str, summands: Callable[[str], tuple[tuple[str, ...], int]]
    ) -> Lines:
        """Move all pointers at the end of the body; returns the phis."""
        phis: Lines = []
        for (base, counter, element), (pointer, first) in self.made.items():
            names, number = summands(self.ends[counter])
            moved, steps = base, [self.ends[counter]]
            if counter in names:
                others = list(names)
                others.remove(counter)
                moved, steps = pointer, others + ([str(number)] if number else [])
            for step in steps:
                moved = self.emitter.once(f"getelementptr {element}, ptr {moved}, i64 {step}")
            edges = f"[ {first}, %{preheader} ], [ {moved}, %{latch} ]"
            phis.append(f"  {pointer} = phi ptr {edges}")
        return phis
