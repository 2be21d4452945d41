"""Emits expressions of loop IR as C expressions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from anydim.base.dtypes import DType, float16
from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.targets.c.dialect import storage_name
from anydim.compiler.targets.c.flows import is_data
from anydim.compiler.targets.c.forms import Form, flags, form_of
from anydim.compiler.targets.c.literals import literal
from anydim.compiler.targets.c.names import Scope
from anydim.compiler.targets.c.operations import COMPARISONS, reduction
from anydim.compiler.targets.c.prelude import Prelude
from anydim.compiler.targets.visitor import methods_of

ATOM, PRODUCT, SUM, OTHER = 3, 2, 1, 0  # precedence of an expression


@dataclass(frozen=True)
class Text:
    """An expression and its precedence."""

    text: str
    level: int = ATOM

    def inside(self, level: int) -> str:
        """Return the expression as an operand at precedence `level`."""
        return self.text if self.level >= level else f"({self.text})"


_INFIX = {
    "add": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT), "div": ("/", PRODUCT),
    "quotient": ("/", PRODUCT),
}  # fmt: skip
_COMPARISONS = {name: symbol for symbol, name in COMPARISONS.items()}
_BITS = {"bit_and": "&", "bit_or": "|", "bit_xor": "^"}
_LOGICAL = {"and": "&", "or": "|", "xor": "^"}
_OF_FLAGS = {
    "add": "or", "mul": "and", "min": "and", "max": "or", "fast_min": "and", "fast_max": "or",
    "bit_and": "and", "bit_or": "or", "bit_xor": "xor", "bit_not": "not",
}  # fmt: skip
_OVERFLOWS = {"add_overflows": "add", "mul_overflows": "mul"}
_EXTREMES = {"less": ("fast_min", "fast_max"), "greater": ("fast_max", "fast_min")}
_WHOLE_DIVISIONS = frozenset(("div", "quotient", "fmod"))
FLAG_BITS = 32  # default width of flags


class Values:
    """Writes the values of a function.

    `scope` has the names, `buffers` the element type of each buffer, `spaces` its address space if
    the dialect has them, `widths` the bits of named flags, `tests` the comparisons that they name,
    `data` the int64 names that may wrap.
    """

    def __init__(self, prelude: Prelude, scope: Scope, data: frozenset[str]) -> None:
        self.prelude = prelude
        self.scope = scope
        self.buffers: dict[str, DType] = {}
        self.spaces: dict[str, str] = {}
        self.widths: dict[str, int] = {}
        self.tests: dict[str, ir.Op] = {}
        self.data = data

    def value(self, node: ir.Value) -> str:
        """Return a value as a complete expression."""
        return self.text(node).text

    def text(self, node: ir.Value) -> Text:
        text: Text = _RULES[type(node)](self, node)
        return text

    def form(self, node: ir.Value) -> Form:
        """Return the form of a value in `text`."""
        if node.type.dtype.kind != "bool":
            return form_of(node.type)
        return flags(node.type.lanes, self.width(node) or FLAG_BITS)

    def type(self, node: ir.Value) -> str:
        """Return the C type of a value."""
        return self.prelude.type(self.form(node))

    # ---- flags ---------------------------------------------------------------------------------

    def width(self, node: ir.Value) -> int | None:
        """Return the natural bits of each of several flags; None if any width will do."""
        if isinstance(node, (ir.Var, ir.Get)):
            return self.widths.get(node.name)
        if isinstance(node, (ir.Load, ir.Gather, ir.Bitcast)):
            return 8
        if isinstance(node, ir.Shuffle):
            return self.width(node.left) or self.width(node.right)
        if isinstance(node, ir.Convert):
            return form_of(node.argument.type).bits
        if not isinstance(node, ir.Op):
            return None
        if node.function in _COMPARISONS and node.arguments[0].type.dtype.kind != "bool":
            return form_of(node.arguments[0].type).bits
        own = node.arguments[node.function == "select" :]
        return next((w for w in map(self.width, own) if w is not None), None)

    def flags(self, node: ir.Value, bits: int) -> str:
        """Return flags of several lanes as integers of `bits`; a scalar flag unchanged."""
        if node.type.lanes == 1:
            return self.value(node)
        wanted = flags(node.type.lanes, bits)
        have = self.width(node)
        if have is None:
            return _FREE[type(node)](self, node, bits)
        if have == bits:
            return self.value(node)
        return self.prelude.convert(self.value(node), flags(node.type.lanes, have), wanted)

    # ---- leaves --------------------------------------------------------------------------------

    def _const(self, node: ir.Const) -> Text:
        if node.type.dtype.kind == "bool" and node.type.lanes > 1:
            return Text(self._free_const(node, FLAG_BITS))
        number = literal(node.type.dtype, node.value, self.prelude.dialect.literals)
        if node.type.lanes == 1:
            return Text(number, PRODUCT if number.startswith("-") else ATOM)
        return Text(self.prelude.call("splat", form_of(node.type), number))

    def _free_const(self, node: ir.Const, bits: int) -> str:
        number = "-1" if node.value else "0"
        return self.prelude.call("splat", flags(node.type.lanes, bits), number)

    def _name(self, node: ir.Var | ir.Get) -> Text:
        name = self.scope.get(node.name)
        if name is None:
            raise InternalError(f"loop IR uses '{node.name}' before its definition")
        return Text(name)

    _var = _get = _name

    # ---- functions -----------------------------------------------------------------------------

    def _op(self, node: ir.Op) -> Text:
        kind = node.arguments[-1].type
        if kind.dtype.kind == "bool":
            return self._op_of_flags(node)
        form = form_of(kind)
        if node.function == "select":
            return self._select(node, form)
        if node.function in _OVERFLOWS:
            parts = ", ".join(map(self.value, node.arguments))
            overflows = self.prelude.dialect.overflows
            if not overflows:
                return Text(f"{self.prelude.function(node.function, form)}({parts}) != 0", OTHER)
            name, made = _OVERFLOWS[node.function], self.prelude.type(form)
            return Text(overflows.format(function=name, parts=parts, type=made))
        infix = self._infix(node, form)
        is_compared = node.function in _COMPARISONS and self.prelude.is_wide(form)
        if infix is not None and not is_compared:
            symbol, level = infix
            left, right = (self.text(argument) for argument in node.arguments)
            free = form.element == "i64" and symbol in "+*"  # floats are not associative
            before, after = (level, level + (not free)) if level > OTHER else (SUM, SUM)
            text = f"{left.inside(before)} {symbol} {right.inside(after)}"
            return Text(text, level)
        if node.function == "neg" and form.kind == "f":
            return Text(f"-{self.text(node.arguments[0]).inside(ATOM)}", PRODUCT)
        function = {"quotient": "div"}.get(node.function, node.function)
        return Text(self.prelude.call(function, form, *map(self.value, node.arguments)))

    def _infix(self, node: ir.Op, form: Form) -> tuple[str, int] | None:
        """Return a function as an infix operator, if C has one with the same meaning."""
        function = node.function
        if function in _COMPARISONS:
            return _COMPARISONS[function], OTHER
        if function in _BITS and form.kind != "f":
            return _BITS[function], OTHER
        if function in _INFIX and form.kind == "f":
            return _INFIX[function]
        if function in _WHOLE_DIVISIONS and _plain_divisor(node.arguments[1]):
            return ("%" if function == "fmod" else "/"), PRODUCT
        if function not in ("add", "sub", "mul"):
            return None
        if form.kind == "u":
            return _INFIX[function] if form.lanes > 1 or form.bits >= 32 else None
        if form == Form("i64") and not is_data(node, self.data) and not _constant(node):
            return _INFIX[function]
        return None

    def _select(self, node: ir.Op, form: Form) -> Text:
        condition, then, otherwise = node.arguments
        if form.lanes == 1:
            parts = [self.text(part).inside(SUM) for part in node.arguments]
            return Text(f"{parts[0]} ? {parts[1]} : {parts[2]}", OTHER)
        smaller = self._extreme(node, form)
        if smaller is not None:
            return smaller
        mask = self.flags(condition, form.bits)
        call = self.prelude.call("select", form, mask, self.value(then), self.value(otherwise))
        return Text(call)

    def _extreme(self, node: ir.Op, form: Form) -> Text | None:
        """Return the minimum or maximum of two floats as a conditional, which processors have."""
        condition, then, otherwise = node.arguments
        test = self.tests.get(condition.name) if isinstance(condition, ir.Var) else condition
        if form.kind != "f" or not isinstance(test, ir.Op) or test.function not in _EXTREMES:
            return None
        if not all(isinstance(part, (ir.Var, ir.Const)) for part in test.arguments):
            return None  # the register may have changed
        straight, swapped = _EXTREMES[test.function]
        for function, pair in ((straight, test.arguments), (swapped, test.arguments[::-1])):
            if pair == (then, otherwise):
                return Text(self.prelude.call(function, form, *map(self.value, pair)))
        return None

    def _op_of_flags(self, node: ir.Op) -> Text:
        if node.type.lanes > 1:
            return Text(self._vector_of_flags(node, self.width(node) or FLAG_BITS), OTHER)
        function = _OF_FLAGS.get(node.function, node.function)
        parts = [self.text(argument) for argument in node.arguments]
        if function == "not":
            return Text(f"!{parts[0].inside(ATOM)}", PRODUCT)
        if function == "select":
            texts = [part.inside(SUM) for part in parts]
            return Text(f"{texts[0]} ? {texts[1]} : {texts[2]}", OTHER)
        symbol = _LOGICAL.get(function) or _COMPARISONS.get(function)
        if symbol is None:
            raise InternalError(f"C has no '{node.function}' of flags")
        symbol = {"&": "&&", "|": "||"}.get(symbol, symbol)
        return Text(f" {symbol} ".join(part.inside(SUM) for part in parts), OTHER)

    def _vector_of_flags(self, node: ir.Op, bits: int) -> str:
        """Return a function of flags, with the flags as integers of `bits`."""
        function = _OF_FLAGS.get(node.function, node.function)
        parts = [self.flags(argument, bits) for argument in node.arguments]
        form = flags(node.type.lanes, bits)
        if function == "select":
            return self.prelude.call("select", form, *parts)
        if function == "not":
            return f"~({parts[0]})"
        if function in _LOGICAL:
            return f"({parts[0]}) {_LOGICAL[function]} ({parts[1]})"
        if function not in _COMPARISONS:
            raise InternalError(f"C has no '{node.function}' of flags")
        numbers = [self.prelude.cast(f"({part})", form.unsigned) for part in parts]
        return self._compare(function, form.unsigned, *numbers)  # as integers, flags are 0 and 1

    def _compare(self, function: str, form: Form, left: str, right: str) -> str:
        """Return a comparison of operands that bind more closely."""
        if self.prelude.is_wide(form):
            return self.prelude.call(function, form, left, right)
        return f"{left} {_COMPARISONS[function]} {right}"

    # ---- conversions ---------------------------------------------------------------------------

    def _convert(self, node: ir.Convert) -> Text:
        have, wanted = node.argument.type, form_of(node.type)
        if node.type.dtype.kind == "bool":
            return self._to_flags(node)
        if float16 in (have.dtype, node.type.dtype) and have.dtype != node.type.dtype:
            function = "from_half" if have.dtype == float16 else "to_half"
            return Text(self.prelude.call(function, wanted, self.value(node.argument)))
        if node.type.lanes == 1:
            text = self.text(node.argument).inside(ATOM)
            return Text(f"({self.prelude.type(wanted)}){text}", PRODUCT)
        if have.dtype.kind == "bool":
            whole = wanted.unsigned if wanted.kind == "f" else wanted
            ones = self.flags(node.argument, wanted.bits)
            text = f"{self.prelude.cast(f'({ones})', whole)} & {self._one(whole)}"
            if wanted.kind == "f":
                return Text(self.prelude.convert(f"({text})", whole, wanted))
            return Text(text, OTHER)
        return Text(self.prelude.convert(self.value(node.argument), form_of(have), wanted))

    def _to_flags(self, node: ir.Convert) -> Text:
        argument = node.argument
        if argument.type.dtype.kind == "bool":
            return self.text(argument)
        form = self.form(argument)
        zero = "0" if form.lanes == 1 else self.prelude.zero(form)
        text = self.text(argument).inside(SUM)
        return Text(self._compare("not_equal", form, text, zero), OTHER)

    def _bitcast(self, node: ir.Bitcast) -> Text:
        have, wanted = node.argument.type, node.type
        value = self.value(node.argument)
        if have.dtype.kind == "bool" and have.lanes > 1:
            name = self.prelude.function("packed", form_of(wanted), self.form(node.argument))
            return Text(f"{name}({value})")
        if wanted.dtype.kind == "bool" and wanted.lanes > 1:
            name = self.prelude.function("unpacked", Form("i8", wanted.lanes), form_of(have))
            return Text(f"{name}({value})")
        source, form = form_of(have), form_of(wanted)
        if source == form:
            return self.text(node.argument)
        if source.lanes > 1 and form.lanes > 1:
            text = self.text(node.argument).inside(ATOM)
            return Text(self.prelude.cast(text, form), PRODUCT)
        if source.kind != "f" and form.kind != "f" and source.lanes == form.lanes:
            text = self.text(node.argument).inside(ATOM)
            return Text(f"({self.prelude.type(form)}){text}", PRODUCT)
        return Text(f"{self.prelude.function('bits', form, source)}({value})")

    # ---- memory --------------------------------------------------------------------------------

    def pointer(self, buffer: str, dtype: DType) -> str:
        """Return a buffer as a pointer to elements of a type."""
        name = self.scope.get(buffer)
        if name is None or buffer not in self.buffers:
            raise InternalError(f"loop IR uses an unknown buffer '{buffer}'")
        if storage_name(self.buffers[buffer]) == storage_name(dtype):
            return name
        return f"(({self.qualifier(buffer)}{self.prelude.type(Form(storage_name(dtype)))} *){name})"

    def qualifier(self, buffer: str) -> str:
        """Return the qualifier of a pointer to a buffer."""
        return self.prelude.dialect.spaces.get(self.spaces.get(buffer, ""), "")

    def element_address(self, buffer: str, offset: ir.Value, dtype: DType) -> str:
        """Return the address of an element."""
        base = self.pointer(buffer, dtype)
        if isinstance(offset, ir.Const) and offset.value == 0:
            return base
        return f"{base} + {self.text(offset).inside(SUM)}"

    def element(self, buffer: str, offset: ir.Value, dtype: DType) -> str:
        """Return an element in memory as an lvalue."""
        return f"{self.pointer(buffer, dtype)}[{self.value(offset)}]"

    def _load(self, node: ir.Load) -> Text:
        dtype, lanes = node.type.dtype, node.type.lanes
        if lanes == 1:
            text = self.element(node.buffer, node.offset, dtype)
            if node.mask is not None:
                text = f"{self.text(node.mask).inside(SUM)} ? {text} : 0"
            if dtype.kind == "bool":
                return Text(f"({text}) != 0" if node.mask is not None else f"{text} != 0", OTHER)
            return Text(text, ATOM if node.mask is None else OTHER)
        form, address = (
            Form(storage_name(dtype), lanes),
            self.element_address(node.buffer, node.offset, dtype),
        )
        space = self.spaces.get(node.buffer, "")
        if node.mask is None:
            text = self.prelude.call("load", form, address, space=space)
        else:
            mask = self.flags(node.mask, form.bits)
            text = self.prelude.call("load_if", form, address, mask, space=space)
        return self._from_memory(node.type, text)

    def _gather(self, node: ir.Gather) -> Text:
        form = Form(storage_name(node.type.dtype), node.type.lanes)
        pointer, offsets = self.pointer(node.buffer, node.type.dtype), self.value(node.offsets)
        space = self.spaces.get(node.buffer, "")
        if node.mask is None:
            text = self.prelude.call("gather", form, pointer, offsets, space=space)
        else:
            mask = self.flags(node.mask, form.bits)
            text = self.prelude.call("gather_if", form, pointer, offsets, mask, space=space)
        return self._from_memory(node.type, text)

    def _from_memory(self, kind: ir.Type, text: str) -> Text:
        if kind.dtype.kind != "bool":
            return Text(text)
        form = Form("u8", kind.lanes)
        return Text(self._compare("not_equal", form, text, self.prelude.zero(form)), OTHER)

    def to_memory(self, node: ir.Value) -> str:
        """Convert a value to its type in memory."""
        if node.type.dtype.kind != "bool" or node.type.lanes == 1:
            return self.value(node)
        form = Form("u8", node.type.lanes)
        return f"{self.prelude.cast(f'({self.flags(node, 8)})', form)} & {self._one(form)}"

    def _one(self, form: Form) -> str:
        """Return the number 1 for vector arithmetic: in some dialects no wider than a lane."""
        same = self.prelude.dialect.same
        return same.format(type=self.prelude.type(form), value=1) if same else "1"

    def address(self, node: ir.Address) -> str:
        """Return the address of an element as a pointer."""
        if node.buffer not in self.buffers:
            raise InternalError(f"loop IR uses an unknown buffer '{node.buffer}'")
        return self.element_address(node.buffer, node.offset, self.buffers[node.buffer])

    def _address(self, node: ir.Address) -> Text:
        """Return an address as an int64."""
        return Text(f"({self.prelude.type(Form('i64'))})({self.address(node)})", PRODUCT)

    def at(self, address: ir.Value, offset: ir.Value, dtype: DType) -> str:
        """Return an element at an integer address as an lvalue."""
        base = (
            f"({self.prelude.type(Form(storage_name(dtype)))} *){self.text(address).inside(ATOM)}"
        )
        if isinstance(offset, ir.Const) and offset.value == 0:
            return f"*{base}"
        return f"({base})[{self.value(offset)}]"

    def _load_at(self, node: ir.LoadAt) -> Text:
        text = self.at(node.address, node.offset, node.type.dtype)
        level = PRODUCT if text.startswith("*") else ATOM
        return Text(f"{text} != 0", OTHER) if node.type == ir.FLAG else Text(text, level)

    def _item(self, node: ir.Item) -> Text:
        kind = self.prelude.type(form_of(node.type))
        return Text(self.prelude.dialect.item.format(type=kind), PRODUCT)

    # ---- lanes ---------------------------------------------------------------------------------

    def _splat(self, node: ir.Splat) -> Text:
        if node.type.lanes == 1:
            return self.text(node.argument)
        if node.type.dtype.kind == "bool":
            return Text(self._free_splat(node, FLAG_BITS))
        return Text(self.prelude.call("splat", form_of(node.type), self.value(node.argument)))

    def _free_splat(self, node: ir.Splat, bits: int) -> str:
        flag = self.text(node.argument).inside(ATOM)
        return self.prelude.call("splat", flags(node.type.lanes, bits), f"-{flag}")

    def _iota(self, node: ir.Iota) -> Text:
        if node.type.lanes == 1:
            return Text("0")
        return Text(self.prelude.call("iota", form_of(node.type)))

    def _shuffle(self, node: ir.Shuffle) -> Text:
        if node.type.dtype.kind == "bool":
            return Text(self._free_shuffle(node, self.width(node) or FLAG_BITS))
        parts = self.value(node.left), self.value(node.right)
        return Text(self.prelude.shuffle(*parts, node.lanes, form_of(node.left.type)))

    def _free_shuffle(self, node: ir.Shuffle, bits: int) -> str:
        left, right = (self.flags(part, bits) for part in (node.left, node.right))
        return self.prelude.shuffle(left, right, node.lanes, flags(node.left.type.lanes, bits))

    def _extract(self, node: ir.Extract) -> Text:
        if node.argument.type.lanes == 1:
            return self.text(node.argument)
        text = self.prelude.lane(self.text(node.argument).inside(ATOM), node.lane)
        return Text(f"{text} != 0", OTHER) if node.type == ir.FLAG else Text(text)

    def _reduce(self, node: ir.Reduce) -> Text:
        if node.argument.type.lanes == 1:
            return self.text(node.argument)
        form, function = self.form(node.argument), node.function
        if node.type == ir.FLAG:
            function = _OF_FLAGS[function]
        name = reduction(function, form, self.prelude, partial(self._combine, function))
        text = f"{name}({self.value(node.argument)})"
        return Text(f"{text} != 0", OTHER) if node.type == ir.FLAG else Text(text)

    def _combine(self, function: str, form: Form, left: str, right: str) -> str:
        """Combine two parts of a vector that is reduced."""
        if function in _LOGICAL:
            return f"{left} {_LOGICAL[function]} {right}"
        if function in _INFIX and (form.kind == "f" or (form.kind == "u" and form.lanes > 1)):
            return f"{left} {_INFIX[function][0]} {right}"
        if function in _INFIX and form.kind == "u":
            return f"({form.name})({left} {_INFIX[function][0]} {right})"
        return self.prelude.call(function, form, left, right)


def _constant(node: ir.Op) -> bool:
    return all(isinstance(argument, ir.Const) for argument in node.arguments)


def _plain_divisor(node: ir.Value) -> bool:
    """Whether a divisor is a constant other than 0 and -1."""
    return isinstance(node, ir.Const) and node.value not in (0, -1)


_FREE: dict[type, Callable[[Values, Any, int], str]] = {
    ir.Const: Values._free_const,
    ir.Splat: Values._free_splat,
    ir.Shuffle: Values._free_shuffle,
    ir.Op: Values._vector_of_flags,
}


_RULES = methods_of(Values)
