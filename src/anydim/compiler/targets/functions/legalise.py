"""Legalises loop IR: any function -> the primitives of a target; see the package's docstring.

An unchanged statement stays the same object. The steps of an expansion precede the statement, and
operands evaluated before it are named before them: values are computed, and memory is read, in the
original order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_args

from anydim.base.dtypes import DType, bfloat16, float16, float32
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import apply
from anydim.compiler.kernels.ir.steps import assigned_registers
from anydim.compiler.targets.functions.conversions import expand_conversion, to_flag
from anydim.compiler.targets.functions.expansions import expansion
from anydim.compiler.targets.functions.exponential import multiply_gate
from anydim.compiler.targets.functions.narrow import narrow_normal
from anydim.compiler.targets.functions.power import EXPONENTS, round_number
from anydim.compiler.targets.functions.primitives import LOGICAL, PREDICATES, Primitives
from anydim.compiler.targets.functions.writer import Expander, Lanes, result_type, type_of
from anydim.compiler.targets.visitor import methods_of


def legalise(functions: Sequence[ir.Function], target: Primitives) -> tuple[ir.Function, ...]:
    """Return the functions of a kernel or library, legalised for the target, with their helpers.

    Raises InternalError for a function of an unsupported element type.
    """
    helpers: dict[str, ir.Function] = {}
    made = []
    for function in functions:
        work = _Legaliser(target)
        made.append(work.function(function))
        helpers |= work.writer.helpers
    return (*helpers.values(), *made)


class _Legaliser:
    """The walk over one function. Facts about a register hold until it is assigned."""

    def __init__(self, target: Primitives) -> None:
        self.target = target
        self.writer = Expander(self.apply, self.change)
        self._made: dict[int, ir.Value] = {}  # values of this statement, by node id

    def function(self, function: ir.Function) -> ir.Function:
        body = self.block(function.body)
        return function if body is function.body else replace(function, body=body)

    def block(self, steps: tuple[ir.Step, ...]) -> tuple[ir.Step, ...]:
        """Legalise consecutive steps; returns the same object if nothing changes."""
        same = True
        with self.writer.block() as written:
            for step in steps:
                self._made.clear()
                made = _RULES[type(step)](self, step)
                same = same and made is step
                written.append(made)
        return steps if same and len(written) == len(steps) else tuple(written)

    # ---- functions and conversions -------------------------------------------------------------

    def apply(self, function: str, kind: ir.Type, arguments: tuple[ir.Value, ...]) -> ir.Value:
        """Apply a function to arguments of type `kind`; the result has a name."""
        dtype = kind.dtype
        if self.target.computes(function, dtype):
            return self.writer.name(ir.Op(result_type(function, kind), function, arguments))
        given = tuple([Lanes(self.writer, self.writer.name(each)) for each in arguments])
        if function in LOGICAL:
            return apply(function, *map(to_flag, given)).value
        if dtype.format is not None or dtype == float16:
            return self._in_single(function, given).value
        write = expansion(function, dtype)
        if write is None:
            raise InternalError(f"no rule for '{function}' of {dtype}")
        return write(*given).value

    def _in_single(self, function: str, arguments: tuple[Lanes, ...]) -> Lanes:
        """Compute a function of a narrow float in float32 and round once."""
        result = apply(function, *(argument.as_(float32) for argument in arguments))
        return result if function in PREDICATES else result.as_(arguments[-1].dtype)

    def change(self, value: ir.Value, wanted: DType, fits: bool = False) -> ir.Value:
        """Convert a value to another element type, named."""
        have = value.type
        if have.dtype == wanted:
            return value
        if self.target.converts(have.dtype, wanted, fits):
            return self.writer.name(ir.Convert(type_of(wanted, have.lanes), value, fits))
        named = Lanes(self.writer, self.writer.name(value))
        if wanted == bfloat16 and self.target.converts(have.dtype, wanted, True):
            return narrow_normal(named).value
        return expand_conversion(named, wanted).value

    # ---- values --------------------------------------------------------------------------------

    def value(self, node: ir.Value) -> ir.Value:
        """Legalise a value; returns the same object if nothing changes."""
        return node if type(node) in _LEAVES else _RULES[type(node)](self, node)

    def values(self, nodes: tuple[ir.Value, ...]) -> tuple[ir.Value, ...]:
        """Legalise several values in evaluation order."""
        made: list[ir.Value] = []
        same, writer = True, self.writer
        for node in nodes:
            if type(node) in _LEAVES:
                made.append(node)
                continue
            before = writer.here
            value = _RULES[type(node)](self, node)
            if writer.here > before:
                with writer.block() as earlier:
                    made = [writer.name(each) for each in made]
                writer.take(earlier, before)
                same = False
            same = same and value is node
            made.append(value)
        return nodes if same else tuple(made)

    def _op(self, node: ir.Op) -> ir.Value:
        known = self._made.get(id(node)) if self._made else None
        if known is not None:
            return known
        arguments = self.values(node.arguments)
        kind = arguments[-1].type
        if not self.target.computes(node.function, kind.dtype):
            known = self.apply(node.function, kind, arguments)
        elif node.function == "mul" and self.writer.quotients:
            gate = multiply_gate(*(Lanes(self.writer, factor) for factor in arguments))
            known = None if gate is None else gate.value
        if known is not None:
            self._made[id(node)] = known
            return known
        return node if arguments is node.arguments else ir.Op(node.type, node.function, arguments)

    def _convert(self, node: ir.Convert) -> ir.Value:
        value, wanted = self.value(node.argument), node.type.dtype
        if self.target.converts(value.type.dtype, wanted, node.fits):
            return node if value is node.argument else replace(node, argument=value)
        known = self._made.get(id(node))
        if known is None:
            known = self._made[id(node)] = self.change(value, wanted, node.fits)
        return known

    def _parts(self, node: Any) -> Any:
        """Legalise the operands of a value or step in the order of `_OPERANDS`."""
        names = _OPERANDS[type(node)]
        given = tuple([getattr(node, name) for name in names])
        made = self.values(given)
        return node if made is given else replace(node, **dict(zip(names, made)))

    def _reduce(self, node: ir.Reduce) -> ir.Value:
        value, kind = self.value(node.argument), node.argument.type
        if kind.lanes > 1 and not self.target.computes(node.function, kind.dtype):
            return self._reduce_by_halves(node.function, self.writer.name(value))
        return node if value is node.argument else replace(node, argument=value)

    def _reduce_by_halves(self, function: str, value: ir.Value) -> ir.Value:
        """Combine both halves repeatedly, down to one lane."""
        while value.type.lanes > 1:
            half = value.type.lanes // 2
            halves = (tuple(range(start, start + half)) for start in (0, half))
            parts = tuple(self.writer.name(_lanes_of(value, lanes)) for lanes in halves)
            value = self.apply(function, parts[0].type, parts)
        return value

    # ---- statements ----------------------------------------------------------------------------

    def _let(self, step: ir.Let | ir.Declare | ir.Assign) -> ir.Step:
        value = self.value(step.value)
        self._note(step.name, value)
        return step if value is step.value else type(step)(step.name, value)

    _declare = _assign = _let

    def _note(self, name: str, value: ir.Value) -> None:
        """Transfer the facts about a value to its name."""
        writer = self.writer
        if writer.constants or writer.quotients:
            writer.constants.pop(name, None)
            writer.quotients.pop(name, None)
        if type(value) not in _CALLED:
            return
        number = writer.constant_of(value) if value.type.dtype.is_float else None
        if number is not None and round_number(number, value.type.dtype) in EXPONENTS:
            writer.constants[name] = ir.Const(value.type, number)
        quotient = writer.quotient_of(value)
        if quotient is not None:
            writer.quotients[name] = quotient

    def _forget(self, steps: tuple[ir.Step, ...]) -> None:
        """Drop the facts about registers that steps change."""
        writer = self.writer
        if not writer.constants and not writer.quotients:
            return
        for name in assigned_registers(steps):
            writer.constants.pop(name, None)
            writer.quotients.pop(name, None)

    def _call(self, step: ir.Call) -> ir.Step:
        if isinstance(step.function, str):
            made = self.values(step.arguments)
            return step if made is step.arguments else replace(step, arguments=made)
        given = (*step.arguments, step.function)  # the arguments are evaluated first
        made = self.values(given)
        return step if made is given else replace(step, function=made[-1], arguments=made[:-1])

    def _atomic(self, step: ir.Atomic) -> ir.Step:
        given = (step.address, *step.arguments)
        made = self.values(given)
        return step if made is given else replace(step, address=made[0], arguments=made[1:])

    def _fragments(self, step: ir.Fragments) -> ir.Step:
        self._forget((step,))
        given = (*step.left, *step.right)
        made, count = self.values(given), len(step.left)
        same = made is given
        return step if same else replace(step, left=made[:count], right=made[count:])

    def _for(self, step: ir.For) -> ir.Step:
        bounds = (step.start, step.stop, step.step)
        start, stop, width = made = self.values(bounds)
        body = self._changing(step.body)
        if made is bounds and body is step.body:
            return step
        return replace(step, start=start, stop=stop, step=width, body=body)

    def _while(self, step: ir.While) -> ir.Step:
        """Legalise a loop; a condition with steps becomes a register, set before and in it."""
        self._forget(step.body)
        before = self.writer.here
        condition = self.value(step.condition)
        if self.writer.here == before:
            body = self._changing(step.body)
            return step if body is step.body else ir.While(condition, body)
        register = self.writer.register(condition)
        again = ir.Assign(register.name, step.condition)
        return ir.While(register, self._changing((*step.body, again)))

    def _if(self, step: ir.If) -> ir.Step:
        condition = self.value(step.condition)
        then = self._branch(step.then)
        otherwise = self._branch(step.otherwise)
        self._forget((step,))
        same = condition is step.condition and then is step.then and otherwise is step.otherwise
        return step if same else ir.If(condition, then, otherwise, rare=step.rare)

    def _switch(self, step: ir.Switch) -> ir.Step:
        value = self.value(step.value)
        cases = tuple((number, self._branch(body)) for number, body in step.cases)
        self._forget((step,))
        same = all(new is old for (_, new), (_, old) in zip(cases, step.cases))
        return step if same and value is step.value else ir.Switch(value, cases)

    def _changing(self, body: tuple[ir.Step, ...]) -> tuple[ir.Step, ...]:
        """Legalise a loop body: facts about registers that it assigns do not hold in or after
        it."""
        self._forget(body)
        made = self.block(body)
        self._forget(body)
        return made

    def _branch(self, body: tuple[ir.Step, ...]) -> tuple[ir.Step, ...]:
        """Legalise a branch: facts found in it do not hold in another one."""
        writer = self.writer
        constants, quotients = dict(writer.constants), dict(writer.quotients)
        made = self.block(body)
        writer.constants, writer.quotients = constants, quotients
        return made


def _lanes_of(value: ir.Value, lanes: tuple[int, ...]) -> ir.Value:
    return ir.shuffle(value, value, lanes) if len(lanes) > 1 else value.extract(lanes[0])


_ABSENT = type(None)  # an absent mask or result
_LEAVES = frozenset((ir.Const, ir.Var, ir.Get, ir.Iota, ir.Item, _ABSENT))
_CALLED = frozenset((ir.Const, ir.Splat, ir.Var, ir.Get))  # nodes with facts
_OPERANDS: dict[type, tuple[str, ...]] = {
    ir.Bitcast: ("argument",),
    ir.Load: ("offset", "mask"),
    ir.Gather: ("offsets", "mask"),
    ir.Splat: ("argument",),
    ir.Shuffle: ("left", "right"),
    ir.Permute: ("left", "right", "places"),
    ir.Extract: ("argument",),
    ir.Address: ("offset",),
    ir.LoadAt: ("address", "offset"),
    ir.Store: ("value", "offset", "mask"),
    ir.Prefetch: ("offset",),
    ir.Return: ("value",),
    ir.StoreAt: ("value", "address", "offset"),
    ir.CopyAside: ("offset", "source_offset", "valid"),
    ir.CopyWide: ("offset", "source_offset"),
    ir.WarpExchange: ("value",),
    ir.TileMemory: ("offset", "row"),
}
_RULES: dict[type, Callable[[_Legaliser, Any], Any]] = {
    **dict.fromkeys(get_args(ir.Step), lambda _, step: step),
    **dict.fromkeys(_OPERANDS, _Legaliser._parts),
    **methods_of(_Legaliser),
}
