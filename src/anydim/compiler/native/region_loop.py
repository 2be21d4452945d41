"""Emits loops over regions: trip counts, carried values, stacked results.

The carried values are in the input slots of the body, the iteration number in the slot of its dim.
A stack is a value of the outer region. A slice with sizes known before the loop is written directly
to its stack if a segment of the body produces it; other slices are copied there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anydim.base.errors import GraphError
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import constant
from anydim.compiler.native.arithmetic import LARGEST, Arithmetic, RangedValue
from anydim.compiler.native.blocks import GROW
from anydim.compiler.native.body import as_int64, overflows
from anydim.compiler.native.region_code import BLOCK, Code, memory_of, tensor_bytes
from anydim.compiler.native.stopping import KINDS, PAUSE, VERDICTS
from anydim.runtime import context
from anydim.runtime.checks import Check
from anydim.runtime.program.region import LoopStep, Stack
from anydim.runtime.program.region_layout import (
    AT,
    BYTES,
    CAPACITY,
    STACK_WORDS,
    RegionSlots,
    Target,
    ValueSlots,
)
from anydim.runtime.signature import TensorSpec
from anydim.sizes import Interval, Size, maximum, product


def loop(code: Code, number: int, step: LoopStep) -> None:
    """Emit a loop."""
    _Loop(code, number, step).emit()


@dataclass(frozen=True)
class _Stacked:
    """A stack, the value that it becomes, and the slices of the body.

    `known`: the sizes of slices are known before the loop. `target` are the slots of the slice's
    destination, if the body can write there directly. All memory is on `device`.
    """

    stack: Stack
    spec: TensorSpec
    value: ValueSlots
    slice: TensorSpec
    result: ValueSlots
    words: int
    known: bool
    target: Target | None
    device: str

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The sizes of a slice, over dims of the outer region."""
        return self.spec.shape[1:]

    @property
    def first(self) -> int:
        """The axis of a result that is the first one of a slice."""
        return 1 if self.stack.joined else 0

    def slices(self) -> Iterator[tuple[int, int]]:
        """Yield, for each axis of a slice, the slots of its size in the stack and in the result."""
        for axis in range(len(self.sizes)):
            yield self.value.shape + 1 + axis, self.result.shape + self.first + axis


class _Loop:
    def __init__(self, code: Code, number: int, step: LoopStep) -> None:
        self.code, self.step = code, step
        self.writer = code.body
        self.body = code.program.regions[step.body]
        self.slots: RegionSlots = code.layout.regions[step.body]
        self.inputs = [self.slots.values[spec.name] for spec in self.body.signature.inputs]
        self.counter = self.slots.dims[step.counter]
        self.words = code.slots.loops[number]
        self.trips, self.going = self.words.trips, self.words.going
        first = self.first_carried = 0 if step.condition is None else 1
        self.carried = [
            (self.inputs[n], self.slots.results[first + n], self.body.signature.inputs[n])
            for n in range(len(step.carried))
        ]
        self.stacks = [self._stack_of(n) for n in range(len(step.stacks))]

    def _stack_of(self, number: int) -> _Stacked:
        step, code = self.step, self.code
        stack, name = step.stacks[number], step.makes[len(step.carried) + number]
        output = self.first_carried + len(step.carried) + number
        spec, made = code.spec(name), self.body.signature.outputs[output]
        known = all(size.symbols <= code.known for size in spec.shape[1:])
        fixed = known and stack.extent is not None
        if (stack.history or stack.initial is not None or stack.joined) and not fixed:
            raise GraphError(
                f"{step.source}: a stack with an initial tensor, read by iterations, or of "
                "concatenated results, has sizes that are not known before the loop"
            )
        target = self.slots.targets.get(output) if known else None
        return _Stacked(
            stack, spec, code.value(name), made, self.slots.results[output],
            self.words.stacks + STACK_WORDS * number, known, target, code.device(name),
        )  # fmt: skip

    def emit(self) -> None:
        code, step = self.code, self.step
        self.before()
        with self.writer.loop(self.more):
            self.pause()
            for stacked in self.stacks:
                if stacked.target is not None:
                    self.pass_destination(stacked)
            code.run(step.body)
            self.after()
            code.store(self.counter, code.load(self.counter) + 1)
        for name, (value, _, spec) in zip(step.makes, self.carried):
            code.copy_value(value, code.value(name), spec.rank)
        for stacked in self.stacks:
            self.finish(stacked)
        code.check_results(step.makes, step.source)

    def more(self) -> ir.Value:
        """Return the flag that another iteration follows."""
        code = self.code
        more = code.load(self.counter) < code.load(self.trips)
        return more if self.step.condition is None else more & code.load(self.going).differs(0)

    def pause(self) -> None:
        """Check periodically for the time limit and for signals."""
        code = self.code
        remaining = self.writer.let(code.load(context.COUNTDOWN) - 1)
        code.store(context.COUNTDOWN, remaining)
        with self.writer.when(remaining <= 0):
            verdict = self.writer.ask(PAUSE, BLOCK)
            code.leave_first([
                (verdict.differs(each), code.failure(kind, self.step.source))
                for each, kind in zip(VERDICTS, KINDS)
            ])  # fmt: skip

    # ---- before the first iteration ------------------------------------------------------------

    def before(self) -> None:
        code, step = self.code, self.step
        arithmetic = code.arithmetic()
        trips = constant(LARGEST) if step.trips is None else arithmetic.size(step.trips)
        code.store(self.trips, trips)
        code.fits(arithmetic, step.source)
        if step.condition is not None:
            code.store(self.going, as_int64(code.truth(code.value(step.condition))))
        code.enter(step.body, step.source, own=step.counter)
        for input, name in enumerate(step.carried):
            code.give(name, step.body, input)
            code.hold(self.inputs[input].owner)
        given = len(self.inputs) - len(step.given)
        for input, name in enumerate(step.given, start=given):
            code.give(name, step.body, input)
        code.store(self.counter, 0)
        history = len(step.carried)
        for stacked in self.stacks:
            self.prepare(stacked)
            if stacked.stack.history:
                code.copy_value(stacked.value, self.inputs[history], stacked.spec.rank)
                history += 1

    def prepare(self, stacked: _Stacked) -> None:
        """Allocate a stack of known sizes."""
        code, value, words = self.code, stacked.value, stacked.words
        for word in (value.data, value.owner, words + CAPACITY):
            code.store(word, 0)
        arithmetic = code.arithmetic()
        if stacked.known:
            for axis, size in enumerate(stacked.sizes):
                code.store(value.shape + 1 + axis, arithmetic.size(size))
            bytes = arithmetic.size(product(stacked.sizes) * stacked.spec.dtype.bytes)
            code.store(words + BYTES, bytes)
        extent = self.extent(stacked)
        if extent is None:
            code.fits(arithmetic, self.step.source)
            return
        code.store(value.shape, arithmetic.size(extent))
        code.store(words + CAPACITY, arithmetic.size(extent))
        if not stacked.known:
            code.fits(arithmetic, self.step.source)
            return
        all_bytes = arithmetic.size(tensor_bytes(replace(
            stacked.spec, shape=(extent, *stacked.sizes)
        )))  # fmt: skip
        code.fits(arithmetic, self.step.source)
        if stacked.stack.in_place:
            self.take_over(stacked)
            return
        memory = self.allocate(stacked, all_bytes)
        if stacked.stack.initial is not None:
            self.begin_from(stacked, stacked.stack.initial)
        elif not self.covers_all(stacked):
            code.fill(memory, all_bytes, stacked.device)

    def take_over(self, stacked: _Stacked) -> None:
        """Use the memory of the initial contents; the caller permits it."""
        assert stacked.stack.initial is not None
        initial, value = self.code.value(stacked.stack.initial), stacked.value
        rank = stacked.spec.rank
        pairs = [(value.shape + axis, initial.shape + axis) for axis in range(rank)]
        self.same(pairs, value.shape, initial.shape, rank)
        self.code.copy(initial.data, value.data)

    def begin_from(self, stacked: _Stacked, name: str) -> None:
        """Copy the initial contents of a stack."""
        code, initial, value = self.code, self.code.value(name), stacked.value
        rank = stacked.spec.rank
        if code.spec(name).shape != stacked.spec.shape:
            pairs = [(value.shape + axis, initial.shape + axis) for axis in range(rank)]
            self.same(pairs, value.shape, initial.shape, rank)
        bytes = constant(stacked.spec.dtype.bytes)
        for axis in range(rank):
            bytes = self.writer.let(bytes * code.load(value.shape + axis))
        code.copy_bytes(code.load(value.data), code.load(initial.data), bytes, stacked.device)

    def extent(self, stacked: _Stacked) -> Size | None:
        """Return the number of slices, if it is known before the loop."""
        if stacked.stack.extent is not None:
            return stacked.stack.extent
        if self.step.trips is not None and self.step.condition is None:
            return maximum(self.step.trips, 0)
        return None

    def covers_all(self, stacked: _Stacked) -> bool:
        """Whether the iterations provably write every slice once."""
        extent, trips = self.extent(stacked), self.step.trips
        if extent is None or trips is None or self.step.condition is not None:
            return False
        number = Size.symbol(self.step.counter)
        orders = (number, trips - 1 - number)
        return stacked.stack.extent is None or (
            extent == trips and stacked.stack.position in orders
        )

    def allocate(self, stacked: _Stacked, bytes: ir.Value) -> ir.Value:
        block, memory = self.code.allocate(bytes, self.step.source, stacked.device)
        self.code.store_block(stacked.value, block, memory)
        return memory

    # ---- in an iteration -----------------------------------------------------------------------

    def pass_destination(self, stacked: _Stacked) -> None:
        """Pass the destination of its slice to the body."""
        target = stacked.target
        assert target is not None
        self.locate(stacked)
        self.code.store(target.data, self.address(stacked))
        self.code.copy(stacked.value.owner, target.owner)

    def locate(self, stacked: _Stacked) -> None:
        """Compute the position of the slice and check it."""
        code, words = self.code, stacked.words
        counter = code.load(self.counter)
        if stacked.stack.extent is None:
            code.store(words + AT, counter)
            if self.extent(stacked) is None:
                self.grow(stacked, counter)
            return
        arithmetic = self.iteration_arithmetic(counter, stacked.stack.position)
        position = arithmetic.size(stacked.stack.position)
        code.store(words + AT, position)
        code.fits(arithmetic, self.step.source)
        if not self.covers_all(stacked):
            inside = (position >= 0) & (position < code.load(words + CAPACITY))
            if stacked.stack.joined:
                room = code.load(words + CAPACITY) - self.count(stacked)
                inside = (position >= 0) & (position <= room)
            failed = code.failure(
                "place", self.step.source, found=words + AT, size=words + CAPACITY
            )
            code.leave_unless(inside, failed)

    def count(self, stacked: _Stacked) -> ir.Value:
        """Return the number of slices in a result."""
        if not stacked.stack.joined:
            return constant(1)
        return self.code.load(stacked.result.shape)

    def iteration_arithmetic(self, counter: ir.Value, size: Size) -> Arithmetic:
        """Return arithmetic for a size over dims of this region and of the body."""
        trips = self.step.trips
        bound = None if trips is None else self.code.region.signature.box.interval(trips).hi
        last = None if bound is None else max(bound - 1, 0)
        dims = {self.step.counter: RangedValue(counter, Interval(0, last))}
        box = self.body.signature.box
        for name in size.symbols - {self.step.counter} - self.code.known:
            dims[name] = RangedValue(self.code.load(self.slots.dims[name]), box.dim(name).range)
        return self.code.arithmetic(dims)

    def grow(self, stacked: _Stacked, counter: ir.Value) -> None:
        """Ensure capacity for one more slice."""
        code, value, words = self.code, stacked.value, stacked.words
        cells = map(code.address, (value.data, value.owner, words + CAPACITY))
        where = code.home(stacked.device) if stacked.device else BLOCK
        grow = memory_of(stacked.device).function(GROW)
        done = self.writer.ask(grow, where, *cells, counter, code.load(words + BYTES))
        refused = code.failure("memory", self.step.source, found=context.FOUND)
        code.leave_unless(done.differs(0), refused)

    def address(self, stacked: _Stacked) -> ir.Value:
        """Return the address of the located slice."""
        code = self.code
        at, bytes = code.load(stacked.words + AT), code.load(stacked.words + BYTES)
        return self.writer.let(code.load(stacked.value.data) + at * bytes)

    def after(self) -> None:
        """Process the results of an iteration."""
        code = self.code
        if self.step.condition is not None:
            value = self.slots.results[0]
            code.store(self.going, as_int64(code.truth(value)))
            code.drop(value.owner)
        for (value, result, spec), name in zip(self.carried, self.step.makes):
            code.drop(value.owner, code.device(name))
            code.copy_value(result, value, spec.rank)
        for stacked in self.stacks:
            self.keep(stacked)
            code.drop(stacked.result.owner, stacked.device)

    def keep(self, stacked: _Stacked) -> None:
        """Copy a slice into its stack, unless the body wrote it there."""
        code = self.code
        if not stacked.known:
            self.first_shape(stacked)
        elif stacked.target is None and stacked.slice.shape[stacked.first :] != stacked.sizes:
            self.same_slices(stacked)
        if stacked.target is None:
            self.locate(stacked)
        there, made = self.address(stacked), code.load(stacked.result.data)
        bytes = self.writer.let(code.load(stacked.words + BYTES) * self.count(stacked))
        with self.writer.when(there.differs(made)):
            code.copy_bytes(there, made, bytes, stacked.device)

    def first_shape(self, stacked: _Stacked) -> None:
        """Set the sizes of slices by the first slice; check those of later slices."""
        code = self.code
        with self.writer.when(code.load(self.counter).equals(0)):
            bytes = constant(stacked.spec.dtype.bytes)
            for stack, result in stacked.slices():
                code.copy(result, stack)
                bytes = self.writer.let(bytes * code.load(result))
            code.store(stacked.words + BYTES, bytes)
            if self.extent(stacked) is not None:
                self.allocate_slices(stacked)
        with self.writer.otherwise():
            self.same_slices(stacked)

    def allocate_slices(self, stacked: _Stacked) -> None:
        """Allocate a stack by its slots ROOM and BYTES."""
        code, words = self.code, stacked.words
        room, bytes = code.load(words + CAPACITY), code.load(words + BYTES)
        failed = code.failure("check", self.step.source, check=Check("large"))
        code.leave_unless(~overflows("mul", room, bytes), failed)
        total = self.writer.let(room * bytes)
        code.fill(self.allocate(stacked, total), total, stacked.device)

    def same_slices(self, stacked: _Stacked) -> None:
        shape, made = stacked.value.shape + 1, stacked.result.shape + stacked.first
        self.same(list(stacked.slices()), shape, made, len(stacked.sizes))

    def same(self, pairs: list[tuple[int, int]], shape: int, made: int, rank: int) -> None:
        """Return a failure unless the sizes agree."""
        code = self.code
        shapes = tuple(tuple(range(first, first + rank)) for first in (made, shape))
        failed = code.failure("slice", self.step.source, shapes=shapes)
        code.leave_first([
            (self.writer.let(code.load(left).equals(code.load(right))), failed)
            for left, right in pairs
        ])  # fmt: skip

    # ---- after the last iteration --------------------------------------------------------------

    def finish(self, stacked: _Stacked) -> None:
        """Set the number of slices of a grown stack, and slice sizes if no iteration ran."""
        code = self.code
        growing = self.extent(stacked) is None
        if growing:
            code.copy(self.counter, stacked.value.shape)
        if stacked.known:
            return
        with self.writer.when(code.load(self.counter).equals(0)):
            box = code.region.signature.box
            lowest = {dim.name: dim.lo for dim in box.dims if dim.name not in code.known}
            arithmetic = code.arithmetic()
            sizes = [size.substitute(lowest) for size in stacked.sizes]
            for (word, _), size in zip(stacked.slices(), sizes):
                code.store(word, arithmetic.size(size))
            bytes = arithmetic.size(product(sizes) * stacked.spec.dtype.bytes)
            code.store(stacked.words + BYTES, bytes)
            code.fits(arithmetic, self.step.source)
            if not growing:
                self.allocate_slices(stacked)
