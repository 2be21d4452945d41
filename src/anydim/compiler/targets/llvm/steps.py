"""Emits statements of loop IR as LLVM blocks. Registers become SSA values joined by phis.

A route is an incoming edge of a block: the values of registers, and the predecessor block. A body
that returns has no route.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias

from anydim.base.dtypes import boolean, int32
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir.steps import assigned_registers
from anydim.compiler.targets.llvm.emitter import Emitter, Lines, Module
from anydim.compiler.targets.llvm.loop_pointers import LoopPointers
from anydim.compiler.targets.llvm.spelling import memory_text, suffix, symbol, type_text
from anydim.compiler.targets.llvm.threads import ThreadSteps
from anydim.compiler.targets.llvm.tiles import TileSteps
from anydim.compiler.targets.llvm.values import Buffer, Values
from anydim.compiler.targets.llvm.wasm_masks import has_masks, lane_test
from anydim.compiler.targets.visitor import methods_of

Registers: TypeAlias = dict[str, tuple[str, ir.Type]]
Route: TypeAlias = tuple[dict[str, str], str]
# WebAssembly's vectors. An assignment in a loop keeps its place there: LLVM would compute two
# iterations of a register at once, and engines spill what both of them read.
_WASM_BYTES = 16


class Steps(ThreadSteps, TileSteps):
    """Writes the body of one function; `ended` if the current position is unreachable."""

    def __init__(self, module: Module) -> None:
        self.emitter = Emitter(module)
        self.values = Values(self.emitter)
        self.ended = False

    def run(self, steps: tuple[ir.Step, ...]) -> None:
        for step in steps:
            if self.ended:
                raise InternalError("loop IR continues after a return on all paths")
            _RULES[type(step)](self, step)

    # ---- plain statements ----------------------------------------------------------------------

    def _let(self, step: ir.Let) -> None:
        self.values.names[step.name] = self.values.value(step.value)

    def _declare(self, step: ir.Declare) -> None:
        self.values.registers[step.name] = (self.values.value(step.value), step.value.type)

    def _assign(self, step: ir.Assign) -> None:
        kind, value = step.value.type, self.values.value(step.value)
        if self.values.loops and kind.lanes * kind.dtype.bytes == _WASM_BYTES:
            text = _text(kind)
            value = self.emitter.once(f'call {text} asm sideeffect "", "=r,0"({text} {value})')
        self.values.registers[step.name] = (value, kind)

    def _stack(self, step: ir.Stack) -> None:
        text = f"[{max(step.count, 1)} x {memory_text(step.dtype)}]"
        self.values.buffers[step.name] = Buffer(self.emitter.alloca(text, 64), step.dtype)

    def _table(self, step: ir.Table) -> None:
        name = self.emitter.module.table(step.numbers)
        self.values.buffers[step.name] = Buffer(name, int32)

    def _store(self, step: ir.Store) -> None:
        emitter, values, kind = self.emitter, self.values, step.value.type
        value = values.to_memory(kind, values.value(step.value))
        pointer = values.pointer(step.buffer, step.offset, kind.dtype)
        memory = memory_text(kind.dtype, kind.lanes)
        plain = f"store {memory} {value}, ptr {pointer}, align {kind.dtype.bytes}"
        if step.nontemporal:
            emitter.write_nontemporal(
                f"store {memory} {value}, ptr {pointer}", kind.lanes * kind.dtype.bytes
            )
            return
        if step.mask is None:
            emitter.write(plain)
            return
        mask = values.value(step.mask)
        if kind.lanes == 1:
            inside, after = emitter.new_label(), emitter.new_label()
            emitter.branch(mask, inside, after)
            emitter.start(inside)
            emitter.write(plain)
            emitter.jump(after)
            emitter.start(after)
            return
        if mask in values.first_lane:  # LLVM 22 writes 32 bits for a truncated one (LLVM #179489)
            pick = f"extractelement {memory} {value}, i64 0"
            first = emitter.pure(pick, (value,))
            element = memory_text(kind.dtype)
            emitter.write(f"store {element} {first}, ptr {pointer}, align {kind.dtype.bytes}")
            return
        form = f"v{kind.lanes}i8" if kind.dtype == boolean else suffix(kind.dtype, kind.lanes)
        flags = type_text(boolean, kind.lanes)
        arguments = ((memory, value), (f"ptr align {kind.dtype.bytes}", pointer), (flags, mask))
        masked = emitter.call_text("void", f"llvm.masked.store.{form}.p0", arguments)
        if not (emitter.module.processor.is_wasm and has_masks(kind.dtype, kind.lanes)):
            emitter.write(masked)
            return
        whole, some, after = (emitter.new_label() for _ in range(3))
        emitter.branch(lane_test(emitter, "alltrue", mask, kind.lanes), whole, some)
        for label, line in ((whole, plain), (some, masked)):
            emitter.start(label)
            emitter.write(line)
            emitter.jump(after)
        emitter.start(after)

    def _prefetch(self, step: ir.Prefetch) -> None:
        buffer = self.values.buffers[step.buffer]
        pointer = self.values.pointer(step.buffer, step.offset, buffer.dtype)
        near = "2" if step.far else "3"
        hints = (("i32", str(int(step.write))), ("i32", near), ("i32", "1"))
        self.emitter.write(
            self.emitter.call_text("void", "llvm.prefetch.p0", (("ptr", pointer), *hints))
        )

    def _call(self, step: ir.Call) -> None:
        parts = []
        for argument in step.arguments:
            if isinstance(argument, ir.Address):
                parts.append(("ptr", self.values.address(argument)))
            else:
                parts.append((_text(argument.type), self.values.value(argument)))
        result = "void" if step.result is None else _text(step.result.type)
        if isinstance(step.function, str):
            function = symbol(step.function)
            self.emitter.module.declare(result, function, (kind for kind, _ in parts))
        else:
            function = self.values.pointer_at(step.function, ir.Const(ir.INDEX, 0), boolean)
        texts = ", ".join(f"{kind} {text}" for kind, text in parts)
        call = f"call {result} {function}({texts})"
        if step.result is None:
            self.emitter.write(call)
        else:
            self.values.names[step.result.name] = self.emitter.once(call)

    def _return(self, step: ir.Return) -> None:
        if step.value is None:
            self.emitter.write("ret void")
        else:
            self.emitter.write(f"ret {_text(step.value.type)} {self.values.value(step.value)}")
        self.ended = True

    def _store_at(self, step: ir.StoreAt) -> None:
        values, kind = self.values, step.value.type
        value = values.to_memory(kind, values.value(step.value))
        pointer = values.pointer_at(step.address, step.offset, kind.dtype)
        memory = memory_text(kind.dtype)
        self.emitter.write(f"store {memory} {value}, ptr {pointer}, align {kind.dtype.bytes}")

    # ---- control flow --------------------------------------------------------------------------

    def _for(self, step: ir.For) -> None:
        start, stop, width = (self.values.value(v) for v in (step.start, step.stop, step.step))
        trips = _constant_trips(start, stop, width)
        if trips == 0:
            return
        if trips == 1:
            self.values.names[step.variable] = start
            with self._local_registers():
                self.run(step.body)
            return
        self._loop(step, start, stop, width, trips is not None)

    def _loop(self, step: ir.For, start: str, stop: str, width: str, certain: bool) -> None:
        """guard; preheader; body with phis; the test is at the end of the body."""
        emitter = self.emitter
        preheader, body, after = self._labels("for", step.variable)
        guard = emitter.block
        if certain:
            emitter.jump(preheader)
        else:
            flag = emitter.pure(f"icmp slt i64 {start}, {stop}", (start, stop))
            emitter.branch(flag, preheader, after)
        variable = ""

        def begin() -> dict[str, str]:
            nonlocal variable
            variable = self.values.names[step.variable] = emitter.fresh()
            return {variable: start}

        def again() -> str:
            following = emitter.once(f"add nsw i64 {variable}, {width}")
            self.values.note_sum("add", following, variable, width)
            if self.values.loops:
                self.values.loops[-1].ends[variable] = following
            flag = emitter.once(f"icmp slt i64 {following}, {stop}")
            phis.append(_phi(variable, "i64", (start, preheader), (following, emitter.block)))
            return flag

        phis: Lines = []
        outside, route = self._repeat(step.body, (preheader, body, after), begin, again, phis)
        routes = [route]
        if not certain:
            routes.append((_current(outside), guard))
        self._join(outside, routes)

    def _labels(self, kind: str, variable: str = "") -> tuple[str, str, str]:
        """Return the labels of a loop's preheader, of its body, and of the code after it."""
        new = self.emitter.new_label
        return new(), new(kind, variable), new()

    def _while(self, step: ir.While) -> None:
        """guard; preheader; body with phis; the condition is repeated at the end of the body."""
        labels = self._labels("while")
        guard = self.values.value(step.condition)
        start = self.emitter.block
        self.emitter.branch(guard, labels[0], labels[2])
        again = partial(self.values.value, step.condition)
        outside, route = self._repeat(step.body, labels, dict, again, [])
        self._join(outside, [route, (_current(outside), start)])

    def _repeat(
        self, steps: tuple[ir.Step, ...], labels: tuple[str, str, str],
        begin: Callable[[], dict[str, str]], again: Callable[[], str], phis: Lines,
    ) -> tuple[Registers, Route]:  # fmt: skip
        """Emit the preheader and the body of a loop; the code after it follows.

        `begin` runs at the start of the body and returns the start of its counter, `again` at its
        end: it returns the flag of another iteration, and may add to `phis`, the first lines of the
        body. Returns the registers before the loop that it changes, and the route that leaves it.
        """
        emitter, values = self.emitter, self.values
        preheader, body, after = labels
        emitter.start(preheader)
        before = emitter.reserve()
        emitter.jump(body)
        emitter.start(body)
        changed = [n for n in dict.fromkeys(assigned_registers(steps)) if n in values.registers]
        outside = {name: values.registers[name] for name in changed}
        emitter.insert(phis)
        with emitter.scope(), emitter.scope(before), self._local_registers():
            starts = begin()
            inside = {name: emitter.fresh() for name in changed}
            for name in changed:
                values.registers[name] = (inside[name], outside[name][1])
            counters = {name: inside[name] for name in changed if outside[name][1] == ir.INDEX}
            starts |= {counters[name]: outside[name][0] for name in counters}
            with self._pointers(starts, before):
                self.run(steps)
                if self.ended:
                    raise InternalError("a loop returns in every iteration")
                flag = again()
                latch = emitter.block
                results = {name: values.registers[name][0] for name in changed}
                for loop in values.loops[-1:]:
                    loop.ends |= {counters[name]: results[name] for name in counters}
                    phis += loop.move(preheader, latch, values.summands)
        emitter.branch(flag, body, after)
        for name, (first, kind) in outside.items():
            edges = ((first, preheader), (results[name], latch))
            phis.append(_phi(inside[name], _text(kind), *edges))
        emitter.start(after)
        return outside, (results, latch)

    @contextmanager
    def _pointers(self, starts: dict[str, str], before: Lines) -> Iterator[None]:
        """Let pointers move with the counters of a loop where addresses have no index."""
        loops, emitter = self.values.loops, self.emitter
        is_wasm = emitter.module.processor.is_wasm
        if is_wasm:
            loops.append(LoopPointers(emitter, emitter.level - 1, before, starts))
        yield
        if is_wasm:
            loops.pop()

    def _if(self, step: ir.If) -> None:
        condition = self.values.value(step.condition)
        then, otherwise, after = (self.emitter.new_label() for _ in range(3))
        if not step.otherwise:
            otherwise = after
        outside, here = dict(self.values.registers), self.emitter.block
        self.emitter.branch(condition, then, otherwise, step.rare)
        routes: list[Route | None] = [self._case(then, step.then, after)]
        if step.otherwise:
            routes.append(self._case(otherwise, step.otherwise, after))
        else:
            routes.append((_current(outside), here))
        self._finish(after, outside, routes)

    def _switch(self, step: ir.Switch) -> None:
        value = self.values.value(step.value)
        after = self.emitter.new_label()
        labels = [self.emitter.new_label() for _ in step.cases]
        outside, here = dict(self.values.registers), self.emitter.block
        kind = _text(step.value.type)
        targets = " ".join(
            f"{kind} {number}, label %{label}" for (number, _), label in zip(step.cases, labels)
        )
        self.emitter.write(f"switch {kind} {value}, label %{after} [ {targets} ]")
        routes: list[Route | None]
        routes = [self._case(label, body, after) for label, (_, body) in zip(labels, step.cases)]
        routes.append((_current(outside), here))
        self._finish(after, outside, routes)

    def _case(self, label: str, body: tuple[ir.Step, ...], after: str) -> Route | None:
        """Emit one branch; returns its outgoing route."""
        self.emitter.start(label)
        outside = dict(self.values.registers)
        with self.emitter.scope():
            self.run(body)
        registers, self.values.registers = self.values.registers, outside
        if self.ended:
            self.ended = False
            return None
        end = self.emitter.block
        self.emitter.jump(after)
        return {name: registers[name][0] for name in outside}, end

    def _finish(self, after: str, outside: Registers, branches: list[Route | None]) -> None:
        routes = [branch for branch in branches if branch is not None]
        if not routes:
            self.ended = True
            return
        self.emitter.start(after)
        changed = {
            name: held for name, held in outside.items()
            if any(results[name] != held[0] for results, _ in routes)
        }  # fmt: skip
        self._join(changed, routes)

    def _join(self, changed: Registers, routes: list[Route]) -> None:
        """Merge registers of routes: a phi for each that may differ."""
        lines = []
        for name, (_, kind) in changed.items():
            result = self.emitter.fresh()
            lines.append(_phi(result, _text(kind), *((held[name], b) for held, b in routes)))
            self.values.registers[name] = (result, kind)
        for line in lines:
            self.emitter.write(line.strip())

    @contextmanager
    def _local_registers(self) -> Iterator[None]:
        """Forget registers declared inside at the end; the others keep their last value."""
        outside = set(self.values.registers)
        yield
        registers = self.values.registers
        self.values.registers = {n: held for n, held in registers.items() if n in outside}


def _current(registers: Registers) -> dict[str, str]:
    return {name: held[0] for name, held in registers.items()}


def _phi(name: str, kind: str, *sources: tuple[str, str]) -> str:
    edges = ", ".join(f"[ {value}, %{block} ]" for value, block in sources)
    return f"  {name} = phi {kind} {edges}"


def _text(kind: ir.Type) -> str:
    return type_text(kind.dtype, kind.lanes)


def _constant_trips(start: str, stop: str, width: str) -> int | None:
    """Return the trip count of a loop, if it is constant.

    Constants of a variant may give a step of 0 to a loop that its conditions never reach.
    """
    if any(text.startswith("%") for text in (start, stop, width)):
        return None
    if int(width) <= 0:
        return 0
    return max(0, -((int(start) - int(stop)) // int(width)))


_RULES = methods_of(Steps)
