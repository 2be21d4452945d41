"""Loop IR of ordered steps: the loops in program order, over one thread's chunk of the range.

    for t in 0:T { h(t, b, i) = f(t, b, i) * h(t - 1, b, i) else 0 }      split along b

    kernel(start, stop):                     its part of b
      for t in 0:T:                          all iterations, no synchronization
        for b in start:stop:
          for i by 16 lanes: h[...] = ...

With blocks of 1 the loop over the range is outermost: for b: for t: h[b, t] = ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from operator import and_

from anydim.base.dtypes import boolean, int64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen import arithmetic
from anydim.compiler.kernels.codegen.vector_loops import START, STOP, if_block
from anydim.compiler.kernels.ir import constant, greatest, least, select, variable
from anydim.compiler.kernels.loop_nest.carried_registers import Carried, carried_by
from anydim.compiler.kernels.loop_nest.nest_elements import NestContext, NestElements
from anydim.compiler.kernels.loop_nest.nest_form import Copy, NestForm
from anydim.compiler.kernels.loop_nest.nest_writes import Vectorization, WriteCode
from anydim.lang.dependence.accesses import all_writes
from anydim.lang.dependence.chunks import ChunkedWrite, Chunks
from anydim.lang.tree import Axis, Branch, Literal, Loop, OrderedStep, Read, Write
from anydim.lang.tree.bounds_checks import has_checks
from anydim.lang.tree.stepping import expressions_of, written_tensors
from anydim.sizes import product


@dataclass(frozen=True)
class _CarriedRegister:
    """A loop-carried write, and its register."""

    carried: Carried
    register: str


class NestCode:
    """Emits the body of a kernel; writes and loops are numbered in program order."""

    def __init__(
        self, form: NestForm, chunks: Chunks | None, context: NestContext,
        vectorized: Mapping[int, Vectorization], unroll: int, block: int, copy: Copy | None = None,
    ) -> None:  # fmt: skip
        self.form, self.chunks, self.context = form, chunks, context
        self.vectorized, self.unroll, self.block, self.copy = vectorized, unroll, block, copy
        self.low: ir.Value = START
        self.high: ir.Value = STOP
        self.writes = self.loops = 0
        self.spans: dict[int, tuple[ir.Value, ir.Value]] = {}  # of loops restricted to a tile

    def body(self) -> tuple[ir.Step, ...]:
        """All steps of the main function."""
        kernel = NestElements(self.context)
        if any(has_checks(expr) for _, expr in expressions_of(self.form.steps)):
            kernel.steps.append(ir.Declare(self.context.failed, constant(False, boolean)))
        inside = kernel.inner({}, certain=False)
        if self.chunks is None or not self.block:
            self.steps(inside, self.form.steps)
            steps = (*kernel.steps, *inside.steps)
            return (ir.If(START < STOP, steps),)
        low = self.low = variable(self.context.fresh("b"))
        self.high = inside.name(low + self.block)
        if self.block > 1:
            self.high = inside.name(least(self.high, STOP))
        self.steps(inside, self.form.steps)
        block = arithmetic.loop(low.name, START, STOP, self.block, *inside.steps)
        return (*kernel.steps, block)

    def steps(
        self, scope: NestElements, steps: Iterable[OrderedStep],
        held: Sequence[_CarriedRegister] = (),
    ) -> None:  # fmt: skip
        """Emit some steps; `held` are the loop-carried writes among them."""
        for position, step in enumerate(steps):
            if isinstance(step, Loop):
                self._loop(scope, step)
            elif isinstance(step, Branch):
                self._branch(scope, step)
            elif self.copy is not None and step is self.copy.write:
                self._copy(scope, self.copy)
            else:
                assert isinstance(step, Write)
                self._write(scope, step, [h for h in held if position <= h.carried.position])

    # ---- single steps --------------------------------------------------------------------------

    def _copy(self, scope: NestElements, copy: Copy) -> None:
        """The initial copy, skipped where source and target share a buffer."""
        buffers = (self.context.storage[name].buffer for name in (copy.read, copy.made))
        with if_block(scope, arithmetic.buffers_differ(*buffers), certain=False) as inner:
            self._write(inner, copy.write, [])

    def _loop(self, scope: NestElements, loop: Loop) -> None:
        cut = self.chunks.loops.get(self.loops) if self.chunks is not None else None
        start, stop = self.spans.get(self.loops) or (
            scope.now(loop.start, int64), scope.now(loop.stop, int64)
        )  # fmt: skip
        self.loops += 1
        if cut is not None:
            start, stop = self._part(scope, cut, start, stop)
        held = self._carried_registers(scope, loop, start)
        at = variable(self.context.fresh("r"))
        inner = scope.inner(
            {},
            certain=False,
            written=written_tensors(loop.body),
            variables={loop.variable: at},
        )
        if loop.step != 1:
            inner.variables[loop.variable] = inner.name(start + at * loop.step)
            start, stop = constant(0), self._iterations(scope, start, stop, loop.step)
        self.steps(inner, loop.body, held)
        self._iterating(scope, loop, at, start, stop, inner)

    def _iterating(
        self, scope: NestElements, loop: Loop, at: ir.Var, start: ir.Value, stop: ir.Value,
        inner: NestElements,
    ) -> None:  # fmt: skip
        """The iterations of a loop, ended by a failing check in it: the data may specify more
        iterations than could ever be run."""
        if not any(has_checks(expr) for _, expr in expressions_of(loop.body)):
            scope.steps.append(arithmetic.loop(at.name, start, stop, 1, *inner.steps))
            return
        value = ir.register(self.context.fresh("k"))
        fine = ir.Get(ir.FLAG, self.context.failed).equals(False)
        body = (ir.Let(at.name, value), *inner.steps, ir.Assign(value.name, value + 1))
        scope.steps += [ir.Declare(value.name, start), ir.While((value < stop) & fine, body)]

    def _iterations(
        self, scope: NestElements, start: ir.Value, stop: ir.Value, step: int
    ) -> ir.Value:
        """The trip count of a loop; 0 also where stop - start would overflow."""
        first, last = (start, stop) if step > 0 else (stop, start)
        gap = select(first < last, last - first, 0)
        return scope.name((gap + (abs(step) - 1)) // abs(step))

    def _branch(self, scope: NestElements, branch: Branch) -> None:
        condition, branches = scope.now(branch.condition, boolean), []
        for steps in (branch.then, branch.otherwise):
            inner = scope.inner({}, certain=False)
            self.steps(inner, steps)
            branches.append(tuple(inner.steps))
        then, otherwise = branches
        scope.steps.append(ir.If(condition, then, otherwise))

    def _carried_registers(
        self, scope: NestElements, loop: Loop, start: ir.Value
    ) -> list[_CarriedRegister]:
        """Registers for loop-carried values, initialized from memory before the first iteration."""
        before_it = [len(list(all_writes(loop.body[:n]))) for n in range(len(loop.body))]
        cuts = [self._bound_axis(self.writes + count) for count in before_it]
        single = [frozenset() if cut is None else frozenset((cut.variable,)) for cut in cuts]
        found = []
        for carried in carried_by(loop, single):
            write, cut = carried.write, cuts[carried.position]
            dtype = self.form.types[write.target].dtype
            before = scope.name(start - loop.step)
            at = {} if cut is None else {str(cut.variable): self._position(scope, cut)}
            first = scope.inner(at, certain=False, variables={loop.variable: before})
            default = carried.read.default or Literal(0, dtype)
            value = first.load(Read(write.target, write.indices, False, default))
            register = self.context.fresh("h")
            first.steps.append(ir.Declare(register, value))
            scope.merge(first)
            found.append(_CarriedRegister(carried, register))
        return found

    def _bound_axis(self, write: int) -> ChunkedWrite | None:
        """The axis of a write that has one value in each block."""
        cut = self.chunks.cuts.get(write) if self.chunks is not None else None
        return cut if cut is not None and cut.kind == "axis" and self.block == 1 else None

    def _position(self, scope: NestElements, cut: ChunkedWrite) -> ir.Value:
        return scope.name(self.low - scope.size(cut.offset))

    def _write(self, scope: NestElements, write: Write, held: Sequence[_CarriedRegister]) -> None:
        number = self.writes
        self.writes += 1
        cut = self.chunks.cuts.get(number) if self.chunks is not None else None
        ranges: dict[str, tuple[ir.Value, ir.Value]] = {}
        for axis in (*write.axes, *write.reduced):
            span: tuple[ir.Value, ir.Value] = (constant(0), scope.size(axis.extent))
            if cut is not None and cut.kind == "axis" and cut.variable == axis.name:
                span = self._part(scope, cut, *span)
            ranges[axis.name] = span
        registers = {one.carried.read: one.register for one in held}
        into = next((h.register for h in held if h.carried.write is write), None)
        bound = self._bound_axis(number)
        axes = tuple(a for a in write.axes if bound is None or a.name != bound.variable)
        vectorized = self.vectorized[number]
        code = WriteCode(write, axes, ranges, self.form, vectorized, self.unroll, into)

        def whole(here: NestElements) -> None:
            if bound is None:
                here.steps += self._points(here, write, axes, ranges, code)
                return
            low, high = ranges[str(bound.variable)]
            at = self._position(here, bound)
            inside = here.inner({str(bound.variable): at}, certain=False)
            steps = self._points(inside, write, axes, ranges, code)
            here.steps.append(ir.If(low < high, (*inside.steps, *steps)))

        if vectorized.run is None or bound is not None:
            scope.step(whole, registers)
        else:
            one_loop = partial(
                self._run, write=write, vectorized=vectorized, cut=cut, ranges=ranges, parts=whole
            )
            scope.step(one_loop, registers)

    def _run(
        self, here: NestElements, write: Write, vectorized: Vectorization, cut: ChunkedWrite | None,
        ranges: Mapping[str, tuple[ir.Value, ir.Value]], parts: Callable[[NestElements], None],
    ) -> None:  # fmt: skip
        """The write as one loop, if the part of this chunk is contiguous; else by `parts`."""
        assert vectorized.run is not None
        (axis,) = vectorized.run.axes
        span: tuple[ir.Value, ir.Value] = (constant(0), here.size(axis.extent))
        whole = None
        if cut is not None:
            low, high = ranges[str(cut.variable)]
            at = [axis.name for axis in write.axes].index(str(cut.variable))
            if at == 0:
                each = here.size(product(axis.extent for axis in write.axes[1:]))
                span = here.name(low * each), here.name(high * each)
            else:
                whole = here.name((low <= 0) & (high >= here.size(write.axes[at].extent)))
        run = WriteCode(vectorized.run, (axis,), {axis.name: span}, self.form,
                        Vectorization(axis, vectorized.lanes), self.unroll)  # fmt: skip
        inside, apart = (here.inner({}, certain=False) for _ in range(2))
        steps = self._points(inside, vectorized.run, (axis,), run.ranges, run)
        steps = (*inside.steps, *steps)
        if whole is None:
            here.steps += steps
        else:
            parts(apart)
            here.steps.append(ir.If(whole, steps, tuple(apart.steps)))

    def _points(
        self, here: NestElements, write: Write, axes: Sequence[Axis],
        ranges: Mapping[str, tuple[ir.Value, ir.Value]], code: WriteCode,
    ) -> tuple[ir.Step, ...]:  # fmt: skip
        """The write at all its points; an empty reduction writes its neutral element."""
        spans = [ranges[axis.name] for axis in axes]
        filled = self._when_nonempty(here, spans, code.full)
        if not write.reduced:
            return filled
        some = _all(here, [ranges[axis.name] for axis in write.reduced])
        empty = self._when_nonempty(here, spans, code.empty) if write.fresh else ()
        return (ir.If(some, filled, empty),)

    def _when_nonempty(
        self, here: NestElements, ranges: list[tuple[ir.Value, ir.Value]],
        body: Callable[[NestElements], None],
    ) -> tuple[ir.Step, ...]:  # fmt: skip
        """Guards a body: it runs only if no range is empty."""
        inner = here.inner({}, certain=False)
        body(inner)
        return (ir.If(_all(here, ranges), tuple(inner.steps)),) if ranges else tuple(inner.steps)

    def _part(
        self, scope: NestElements, cut: ChunkedWrite, start: ir.Value, stop: ir.Value
    ) -> tuple[ir.Value, ir.Value]:
        """The part of a range that belongs to this chunk."""
        offset = scope.size(cut.offset)
        low, high = self.low - offset, scope.name(least(stop, self.high - offset))
        if start == constant(0) and offset == constant(0):
            return low, high
        return scope.name(greatest(start, low)), high


def _all(scope: NestElements, ranges: list[tuple[ir.Value, ir.Value]]) -> ir.Value:
    """Whether no range is empty."""
    return scope.name(reduce(and_, (low < high for low, high in ranges)))
