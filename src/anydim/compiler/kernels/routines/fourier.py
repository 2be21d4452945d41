"""Discrete Fourier transforms of any length, along any axis or of frames, in O(n log n).

Sizes select one of three variants: short transforms run one per vector lane; others run one after
the other, each in one thread; few long ones are split, each step a launch of its own. Results are
identical to the bit. A length with a large prime factor takes two rounds of both steps (Bluestein):
the input times a chirp, then the result times the transform of the chirp's convolution kernel,
computed beforehand (`fourier_plan.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anydim.base.dtypes import DType, float64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.routines.fourier_plan import Plan, Sizes, plan_launches
from anydim.compiler.kernels.routines.fourier_signals import Chirp, Geometry, Signal, Signals
from anydim.compiler.kernels.routines.fourier_steps import (
    AcrossTransforms,
    Numbers,
    WithinTransform,
)
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.routine import Steps
from anydim.lang.tree import Tensor, TensorType
from anydim.sizes import (
    NEVER,
    Box,
    Condition,
    Size,
    at_least,
    at_most,
    ceil_div,
    minimum,
    settle,
    simplify,
)

SHORT = 1024  # longest transform that runs in a lane
LONG = 1 << 15  # shortest transform that is split, where there are few
MANY = 8  # transforms that occupy the threads without splitting
PARTS = 16
_BETWEEN, _WHOLE = "turned", "whole"  # tensors between the steps of split transforms


@dataclass(frozen=True)
class Transform:
    """The launches of `rows` transforms of one geometry, for a machine."""

    name: str
    dtype: DType
    rows: Size
    geometry: Geometry
    box: Box
    machine: Machine

    # ---- sizes ---------------------------------------------------------------------------------

    @property
    def wide(self) -> DType:
        """The computation type: sums that are exactly 0 must come out as 0 next to large numbers,
        too."""
        return float64

    @property
    def lanes(self) -> int:
        return max(2, self.machine.lanes(self.wide))

    @property
    def sizes(self) -> Sizes:
        return Sizes.of(self.geometry.length, self.box)

    @property
    def in_lanes(self) -> Condition:
        """Where transforms run in lanes."""
        short = at_most(self.geometry.length, SHORT)
        return settle(short & at_least(self.rows, self.lanes // 2), self.box)

    @property
    def cut(self) -> Condition:
        """Where each transform is split."""
        few = at_most(self.rows, MANY - 1)
        return settle(at_least(self.geometry.length, LONG) & few, self.box)

    @property
    def slots(self) -> Size:
        """The number of split transforms, including the chirp's."""
        return simplify(self.cut.where(self.rows, 0) + int(self.sizes.chirped), self.box)

    @property
    def parts(self) -> Size:
        return simplify(minimum(PARTS, 1 + self.geometry.length // (LONG // 4)), self.box)

    # ---- launches ------------------------------------------------------------------------------

    def steps(self) -> Steps:
        """All launches, and the temporaries between them."""
        sizes = self.sizes
        launches = [*plan_launches(sizes, self.wide, self.box, self.machine)]
        if self.slots.constant != 0:
            launches += self._cut_steps()
        alone = simplify((~self.cut & ~self.in_lanes).where(self.rows, 0), self.box)
        if alone.constant != 0:
            launches.append(self._alone(alone))
        if self.in_lanes != NEVER:
            launches.append(self._side_by_side())
        kept = (_BETWEEN, _WHOLE) if sizes.chirped else (_BETWEEN,)
        count = simplify(self.slots * sizes.worked * 2, self.box)
        between = tuple(Tensor(name, TensorType(self.wide, (count,))) for name in kept)
        found = between if self.slots.constant != 0 else ()
        return Steps(tuple(launches), (*sizes.temporaries(self.wide, self.box), *found))

    def _code(self, step: str) -> tuple[Code, Plan]:
        code = Code(f"{self.name}_{step}", self.machine, self.box)
        plan = Plan(code, self.sizes, self.wide)
        plan.read()
        return code, plan

    def _launch(self, code: Code, parallel: Size, rows: Size, reason: str) -> Launch:
        work = simplify(rows * (self.sizes.worked * 16 + 1), self.box)
        return code.launch(parallel, work, 1, reason)

    def _alone(self, rows: Size) -> Launch:
        """One transform after the other."""
        code, plan = self._code("alone")
        emitter = WithinTransform(code, plan, self.lanes)
        memory = self._memory(code, self.sizes.worked)
        with code.range(code.start, code.stop) as row:
            self._rounds(emitter, Signal(self.geometry, self.dtype, emitter, row, *memory))
        return self._launch(code, rows, rows, "one transform after the other")

    def _side_by_side(self) -> Launch:
        """One transform per lane."""
        code, plan = self._code("beside")
        emitter = AcrossTransforms(code, plan, self.lanes)
        most = minimum(self.sizes.worked, SHORT * 5 // 2 + 16)
        memory = self._memory(code, simplify(most, self.box) * self.lanes)
        rows = code.size(self.rows)
        with code.range(code.start, code.stop) as group:
            first = code.let(group * self.lanes)
            signals = Signals(self.geometry, self.dtype, emitter, first, *memory, rows=rows)
            self._rounds(emitter, signals)
        groups = simplify(self.in_lanes.where(ceil_div(self.rows, self.lanes), 0), self.box)
        work = self.in_lanes.where(self.rows, 0)
        return self._launch(code, groups, work, "one transform per lane")

    def _memory(self, code: Code, count: Size) -> list[Numbers]:
        """Scratch for the numbers between the steps, and between the rounds if there are two."""
        kept = range(1 + self.sizes.chirped)
        return [Numbers(code.scratch(self.wide, count * 2), code.size(count)) for _ in kept]

    def _rounds(self, emitter: WithinTransform, signal: Signal) -> None:
        emitter.first_step(signal.read, signal.between)
        emitter.second_step(signal.between, signal.keep)
        if self.sizes.chirped:
            with emitter.code.when(emitter.plan.chirped):
                emitter.first_step(signal.again, signal.between)
                emitter.second_step(signal.between, signal.finish)

    # ---- split transforms: a launch for each step ----------------------------------------------

    def _cut_steps(self) -> Iterator[Launch]:
        yield self._cut_step("first", True, lambda s: s.emitter.first_step(s.read, s.between))
        yield self._cut_step("second", True, lambda s: s.emitter.second_step(s.between, s.keep))
        if self.sizes.chirped and self.cut != NEVER:
            yield self._cut_step("third", False, lambda s: s.emitter.first_step(s.again, s.between))
            yield self._cut_step(
                "fourth", False, lambda s: s.emitter.second_step(s.between, s.finish)
            )

    def _cut_step(self, step: str, early: bool, body: Callable[[Signal], None]) -> Launch:
        """A step of a part of each transform; in the early round the chirp is the first of them."""
        code, plan = self._code(step)
        parts, chirped = code.size(self.parts), self.sizes.chirped
        emitter = WithinTransform(code, plan, self.lanes)
        with code.range(code.start, code.stop) as item:
            emitter.cut = code.let(item % parts), parts
            slot = code.let(item // parts + (0 if early else 1))
            row = code.let(slot - int(chirped))
            if self.cut != NEVER:
                with code.when(row >= 0 if early else plan.chirped):
                    body(self._slot(Signal, emitter, row, slot))
            if early and chirped:
                with code.when(slot.equals(0) & plan.chirped):
                    body(self._slot(Chirp, emitter, row, slot))
        rows = self.slots if early else self.cut.where(self.rows, 0)
        return self._launch(
            code, simplify(rows * self.parts, self.box), rows, "parts of long transforms"
        )

    def _slot(
        self, kind: type[Signal], emitter: WithinTransform, row: ir.Value, slot: ir.Value
    ) -> Signal:
        code, worked = emitter.code, emitter.code.size(self.sizes.worked)
        offset = code.let(slot * worked * 2)
        names = (_BETWEEN, _WHOLE) if self.sizes.chirped else (_BETWEEN,)
        memory = [Numbers(code.output(name, self.wide).part(offset), worked) for name in names]
        return kind(self.geometry, self.dtype, emitter, row, *memory)
