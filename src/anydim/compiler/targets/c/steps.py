"""Emits statements of loop IR as C statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from anydim.base.dtypes import int32
from anydim.compiler.kernels import ir
from anydim.compiler.targets.c.dialect import storage_name
from anydim.compiler.targets.c.flows import data_names
from anydim.compiler.targets.c.forms import Form
from anydim.compiler.targets.c.names import Scope
from anydim.compiler.targets.c.prelude import Prelude
from anydim.compiler.targets.c.values import ATOM, FLAG_BITS, Values
from anydim.compiler.targets.processor import TILE_SHAPES
from anydim.compiler.targets.visitor import methods_of

_INDENT = "  "
_PER_ROW = 16  # numbers of a table in a line
GLOBAL, LOCAL, PRIVATE = "global", "local", "private"  # address spaces


class Steps:
    """Writes the body of a function.

    `known` are functions that it may call; its own names avoid `named`, the functions of its file.
    `callee` returns the name of a function for arguments in given address spaces.
    """

    def __init__(
        self, function: ir.Function, prelude: Prelude, known: Mapping[str, ir.Function],
        named: Iterable[str], callee: Callable[[str, Sequence[str]], str],
    ) -> None:  # fmt: skip
        self.prelude = prelude
        self.values = Values(prelude, Scope(named), data_names(function))
        self.known = known
        self.callee = callee
        self.lines: list[str] = []
        self._depth = 0

    def run(self, steps: tuple[ir.Step, ...]) -> None:
        for step in steps:
            _RULES[type(step)](self, step)

    def write(self, line: str) -> None:
        self.lines.append(_INDENT * (self._depth + 1) + line)

    def block(self, steps: tuple[ir.Step, ...]) -> None:
        """Emit steps in existing braces."""
        self._depth += 1
        with self.values.scope.block():
            self.run(steps)
        self._depth -= 1

    # ---- plain statements ----------------------------------------------------------------------

    def _let(self, step: ir.Let) -> None:
        self._declare_name("const ", step)

    def _declare(self, step: ir.Declare) -> None:
        self._declare_name("", step)

    def _declare_name(self, qualifier: str, step: ir.Let | ir.Declare) -> None:
        kind, value = self.values.type(step.value), self.values.value(step.value)
        self._note_width(step)
        self.write(f"{qualifier}{kind} {self.values.scope.declare(step.name)} = {value};")

    def _note_width(self, step: ir.Let | ir.Declare) -> None:
        if step.value.type.dtype.kind == "bool" and step.value.type.lanes > 1:
            self.values.widths[step.name] = self.values.width(step.value) or FLAG_BITS
            if isinstance(step, ir.Let) and isinstance(step.value, ir.Op):
                self.values.tests[step.name] = step.value

    def _assign(self, step: ir.Assign) -> None:
        name, width = self.values.scope.get(step.name), self.values.widths.get(step.name)
        value = self.values.flags(step.value, width) if width else self.values.value(step.value)
        self.write(f"{name} = {value};")

    def _stack(self, step: ir.Stack) -> None:
        self.values.buffers[step.name] = step.dtype
        if self.prelude.dialect.spaces:
            self.values.spaces[step.name] = PRIVATE
        kind = self.prelude.type(Form(storage_name(step.dtype)))
        name = self.values.scope.declare(step.name)
        text = self.prelude.dialect.stack
        self.write(text.format(type=kind, name=name, count=max(step.count, 1)))

    def _table(self, step: ir.Table) -> None:
        self.values.buffers[step.name] = int32
        kind = self.prelude.type(Form(storage_name(int32)))
        name = self.values.scope.declare(step.name)
        self.write(f"static const {kind} {name}[{len(step.numbers)}] = {{")
        for start in range(0, len(step.numbers), _PER_ROW):
            row = step.numbers[start : start + _PER_ROW]
            self.write(f"{_INDENT}{', '.join(map(str, row))},")
        self.write("};")

    def _store(self, step: ir.Store) -> None:
        values, kind = self.values, step.value.type
        value = values.to_memory(step.value)
        if kind.lanes == 1:
            plain = f"{values.element(step.buffer, step.offset, kind.dtype)} = {value};"
            test = f"if ({values.value(step.mask)}) " if step.mask is not None else ""
            self.write(test + plain)
            return
        form, space = Form(storage_name(kind.dtype), kind.lanes), values.spaces.get(step.buffer, "")
        address = values.element_address(step.buffer, step.offset, kind.dtype)
        if step.mask is None:
            self.write(self.prelude.call("store", form, address, value, space=space) + ";")
            return
        mask = values.flags(step.mask, form.bits)
        self.write(self.prelude.call("store_if", form, address, mask, value, space=space) + ";")

    # ---- tiles, as assembly: what the intrinsics of GCC are ------------------------------------

    def _tiles(self, step: ir.Tiles) -> None:
        if not step.wanted:
            self._assemble("tilerelease")
            return
        kind, name = self.prelude.type(Form("i64")), self.values.scope.declare("tile_shapes")
        numbers = ", ".join(map(str, TILE_SHAPES))
        self.write(f"static const {kind} {name}[{len(TILE_SHAPES)}] = {{{numbers}}};")
        self._assemble("ldtilecfg (%0)", name)

    def _tile_zero(self, step: ir.TileZero) -> None:
        self._assemble(f"tilezero %%tmm{step.tile}")

    def _tile_memory(self, step: ir.TileMemory) -> None:
        address = self.values.element_address(step.buffer, step.offset, int32)
        row = self.values.value(step.row * ir.Const(ir.INDEX, int32.bytes))
        tile, memory = f"%%tmm{step.tile}", "(%0,%1,1)"
        text = f"tilestored {tile}, {memory}" if step.store else f"tileloadd {memory}, {tile}"
        self._assemble(text, address, f"({self.prelude.type(Form('i64'))})({row})")

    def _tile_dots(self, step: ir.TileDots) -> None:
        self._multiply("tdpbusd" if step.unsigned else "tdpbsud", step)

    def _tile_pairs(self, step: ir.TilePairs) -> None:
        self._multiply("tdpbf16ps", step)

    def _multiply(self, name: str, step: ir.TileDots | ir.TilePairs) -> None:
        self._assemble(f"{name} %%tmm{step.right}, %%tmm{step.left}, %%tmm{step.sums}")

    def _assemble(self, text: str, *arguments: str) -> None:
        inputs = ", ".join(f'"r"({argument})' for argument in arguments)
        self.write(f'__asm__ volatile("{text}" : : {inputs} : "memory");')

    def _prefetch(self, step: ir.Prefetch) -> None:
        text = self.prelude.dialect.prefetch
        if not text:
            return
        address = self.values.element_address(
            step.buffer, step.offset, self.values.buffers[step.buffer]
        )
        self.write(text.format(address=address, write=int(step.write), near=3 - step.far))

    def _call(self, step: ir.Call) -> None:
        callee = self.known.get(step.function) if isinstance(step.function, str) else None
        wanted = callee.parameters if callee is not None else (None,) * len(step.arguments)
        parts = ", ".join(self._argument(*pair) for pair in zip(step.arguments, wanted))
        call = f"{self._callee(step)}({parts});"
        if step.result is None:
            self.write(call)
            return
        kind = self.values.type(step.result)
        self.write(f"const {kind} {self.values.scope.declare(step.result.name)} = {call}")

    def _callee(self, step: ir.Call) -> str:
        """Return the callee: a function name, or a function pointer for an address."""
        if isinstance(step.function, str):
            known = self.known.get(step.function)
            parameters = known.parameters if known is not None else ()
            spaces = [
                self.values.spaces.get(argument.buffer, "")
                for parameter, argument in zip(parameters, step.arguments)
                if isinstance(parameter, ir.Pointer) and isinstance(argument, ir.Address)
            ]
            return self.callee(step.function, spaces)
        kinds = ", ".join(self.values.type(argument) for argument in step.arguments)
        result = "void" if step.result is None else self.values.type(step.result)
        return f"(({result} (*)({kinds or 'void'})){self.values.text(step.function).inside(ATOM)})"

    def _argument(self, argument: ir.Value, wanted: ir.Pointer | ir.Scalar | None) -> str:
        if not isinstance(argument, ir.Address) or isinstance(wanted, ir.Scalar):
            return self.values.value(argument)
        pointer = self.values.address(argument)
        same = isinstance(wanted, ir.Pointer) and (
            storage_name(wanted.dtype) == storage_name(self.values.buffers[argument.buffer])
        )
        if same or not isinstance(wanted, ir.Pointer):
            return pointer if same else f"(void *)({pointer})"
        if not self.prelude.dialect.spaces:
            return f"(void *)({pointer})"
        kind = self.prelude.type(Form(storage_name(wanted.dtype)))
        return f"({self.values.qualifier(argument.buffer)}{kind} *)({pointer})"

    def _return(self, step: ir.Return) -> None:
        self.write("return;" if step.value is None else f"return {self.values.value(step.value)};")

    def _store_at(self, step: ir.StoreAt) -> None:
        element = self.values.at(step.address, step.offset, step.value.type.dtype)
        self.write(f"{element} = {self.values.value(step.value)};")

    # ---- threads -------------------------------------------------------------------------------

    def _atomic(self, step: ir.Atomic) -> None:
        values, kind = self.values, self.prelude.type(Form("i64"))
        address = f"({kind} *){values.text(step.address).inside(ATOM)}"
        parts = dict(zip("ab", map(values.value, step.arguments)))
        before = values.scope.declare("before" if step.result is None else step.result.name)
        for line in self.prelude.dialect.atomics[step.operation]:
            self.write(line.format(type=kind, address=address, before=before, **parts))

    def _fence(self, step: ir.Fence) -> None:
        self.write(self.prelude.dialect.fence)

    def _barrier(self, step: ir.Barrier) -> None:
        self.write(self.prelude.dialect.barrier)

    def _fragments(self, step: ir.Fragments) -> None:
        names = [self.values.scope.get(name) for name in step.sums]
        values = [self.values.value(value) for value in (*step.left, *step.right)]
        given = [*(str(name) for name in names), *values]
        form = Form("f32")
        self.write(self.prelude.call(f"multiply_{step.dtype}", form, *given) + ";")

    def _copy_aside(self, step: ir.CopyAside) -> None:
        values, size = self.values, step.dtype.bytes
        operands = (
            values.element_address(step.buffer, step.offset, step.dtype),
            values.element_address(step.source, step.source_offset, step.dtype),
        )
        form = Form(f"u{8 * step.count * size}")
        valid = f"(unsigned)({values.value(step.valid)}) * {size}"
        self.write(self.prelude.call("copy_aside", form, *operands, valid) + ";")

    def _copy_wide(self, step: ir.CopyWide) -> None:
        values, form = self.values, Form(storage_name(step.dtype))
        operands = (
            values.element_address(step.buffer, step.offset, step.dtype),
            values.element_address(step.source, step.source_offset, step.dtype),
        )
        self.write(self.prelude.call(f"copy_wide{step.count}", form, *operands) + ";")

    def _warp_exchange(self, step: ir.WarpExchange) -> None:
        form = Form(storage_name(step.value.type.dtype))
        value = self.values.value(step.value)
        call = self.prelude.call("exchange", form, value, str(step.distance))
        kind = self.values.type(step.value)
        self.write(f"const {kind} {self.values.scope.declare(step.name)} = {call};")

    def _copies_end(self, step: ir.CopiesEnd) -> None:
        self.write(self.prelude.dialect.copies_end)

    def _copies_wait(self, step: ir.CopiesWait) -> None:
        self.write(self.prelude.dialect.copies_wait.format(left=step.left))

    def _pause(self, step: ir.Pause) -> None:
        dialect = self.prelude.dialect
        self.write(dialect.pause.get(self.prelude.processor.architecture, dialect.fence))

    # ---- control flow --------------------------------------------------------------------------

    def _for(self, step: ir.For) -> None:
        values = self.values
        start = values.value(step.start)
        stop, width = (self._loop_bound(step.variable, bound) for bound in (step.stop, step.step))
        with values.scope.block():
            kind = self.prelude.type(Form("i64"))
            name = values.scope.declare(step.variable)
            more = f"{name}++" if width == "1" else f"{name} += {width}"
            if step.unrolled and self.prelude.dialect.unroll:
                self.write(self.prelude.dialect.unroll)
            self.write(f"for ({kind} {name} = {start}; {name} < {stop}; {more}) {{")
            self.block(step.body)
        self.write("}")

    def _loop_bound(self, variable: str, bound: ir.Value) -> str:
        """Return a loop bound, hoisted to a variable if it might change or is expensive."""
        if isinstance(bound, (ir.Const, ir.Var)):
            return self.values.value(bound)
        value = self.values.value(bound)
        name = self.values.scope.declare(f"{variable}_end")
        self.write(f"const {self.prelude.type(Form('i64'))} {name} = {value};")
        return name

    def _while(self, step: ir.While) -> None:
        self.write(f"while ({self.values.value(step.condition)}) {{")
        self.block(step.body)
        self.write("}")

    def _if(self, step: ir.If) -> None:
        self.write(f"if ({self.values.value(step.condition)}) {{")
        self.block(step.then)
        if step.otherwise:
            self.write("} else {")
            self.block(step.otherwise)
        self.write("}")

    def _switch(self, step: ir.Switch) -> None:
        self.write(f"switch ({self.values.value(step.value)}) {{")
        for number, body in step.cases:
            self.write(f"case {number}: {{")
            self.block(body)
            self.write(f"{_INDENT}break;")
            self.write("}")
        self.write("}")


_RULES = methods_of(Steps)
