"""Element types of expressions: C's promotions, with literals that adapt to other operands.

`typed` takes the tree as `instantiate` first builds it and returns one where every conversion is
a Cast and every Literal has a dtype; `dtype_of` reads the type off such a tree.

A literal has no type of its own: it takes the type of the other operands; a float literal among
integers makes a float32. An index or a size is an int64 that converts to any float type. A literal
alone is int64, float32 or bool.

While the types of tensors are inferred, `element_type` and `join` compute in a lattice: below the
element types are `OPEN` (unknown) and one element for each kind of adapting term.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anydim.base.dtypes import DTYPES, DType, boolean, float32, int16, int32, int64
from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.lang.functions import FUNCTIONS, INSIDE, REINTERPRETING, unsigned_type
from anydim.lang.tree import Apply, Cast, Expr, Index, Literal, Read, SizeTerm, TensorType
from anydim.lang.tree.affine import reads

ARITHMETIC = frozenset(("add", "sub", "mul", "div", "quotient", "floordiv", "mod", "fmod", "neg",
                        "pow", "abs", "sign"))  # fmt: skip
BITS = frozenset(("bit_and", "bit_or", "bit_xor", "bit_not", "shift_left", "shift_right"))
LOGIC = frozenset(("and", "or", "xor", "not"))


_KINDS = ("open", "bool", "int", "index", "float")  # kinds of terms without a type of their own
_ADAPTS = "adapts"
_BELOW = {kind: DType(kind, _ADAPTS, 0) for kind in _KINDS}  # below all element types
OPEN = _BELOW["open"]


@dataclass(frozen=True)
class Inferred(TensorType):
    """The type of a tensor that depends on itself, during inference.

    The default of a read of it is among the values that the tensor starts from. `literals` decide
    an open type once everything else has been considered.
    """

    literals: bool = False


class TypeProblem(Exception):
    """Why an expression has no type; `expr` is the innermost invalid one."""

    def __init__(self, text: str, hint: str = "") -> None:
        self.text, self.hint = text, hint
        self.expr: Expr | None = None
        super().__init__(text)


def dtype_of(expr: Expr, types: Mapping[str, TensorType]) -> DType:
    """The element type of a typed expression; `types` are the types of the tensors it reads."""
    if isinstance(expr, Read):
        return types[expr.tensor].dtype
    if isinstance(expr, Cast):
        return expr.dtype
    if isinstance(expr, (Index, SizeTerm)):
        return int64
    if isinstance(expr, Literal):
        return expr.dtype or _alone(_literal_kind(expr))
    rule = FUNCTIONS[expr.function].result
    if rule == "bool":
        return boolean
    if rule in DTYPES:
        return DTYPES[rule]
    found = [dtype_of(a, types) for a in expr.arguments[1 if rule == "second" else 0 :]]
    if rule == "bits":
        return unsigned_type(found[0])
    return found[0] if len(set(found)) == 1 else promote(found)


def promote(dtypes: list[DType]) -> DType:
    """The common type: floats win over integers, then width; mixed signs need a wider int."""
    best = dtypes[0]
    for dtype in dtypes[1:]:
        best = _promote(best, dtype)
    return best


def _promote(left: DType, right: DType) -> DType:
    if left == right:
        return left
    ranks = {"bool": 0, "uint": 1, "int": 1, "float": 2}
    if ranks[left.kind] != ranks[right.kind]:
        return left if ranks[left.kind] > ranks[right.kind] else right
    if left.kind == "float" and left.bits == right.bits:
        return float32  # no type of that width holds both
    if left.kind == right.kind:
        return left if left.bits > right.bits else right
    signed, unsigned = (left, right) if left.kind == "int" else (right, left)
    if signed.bits > unsigned.bits:
        return signed
    return {8: int16, 16: int32}.get(unsigned.bits, int64)


# ---- inference ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Typed:
    """An expression and its type: `dtype`, or when None the kind of an adapting term."""

    expr: Expr
    dtype: DType | None
    kind: str = ""  # one of _KINDS when dtype is None


def infer_types(expr: Expr, types: Mapping[str, TensorType]) -> tuple[Expr, DType]:
    """Return an equal expression with explicit conversions, and its element type.

    Raises TypeProblem for an expression without a type.
    """
    return _settle(_infer(expr, types))


def element_type(expr: Expr, types: Mapping[str, TensorType]) -> DType:
    """The lattice element of an expression; raises TypeProblem if it has no type."""
    part = _infer(expr, types)
    return part.dtype or _BELOW[part.kind]


def join(dtypes: Sequence[DType]) -> DType:
    """The least lattice element that holds the values of all of these."""
    dtype, kind = _join([_part(Literal(0), dtype) for dtype in dtypes])
    return dtype or _BELOW[kind]


def is_decided(expr: Expr, types: Mapping[str, TensorType]) -> bool:
    """Whether the type of an expression follows from the types known so far."""
    dtype = element_type(expr, types)
    if dtype.kind != _ADAPTS:
        return True
    kinds = [types[read.tensor] for read in reads(expr)]
    waits = any(isinstance(kind, Inferred) and not kind.literals for kind in kinds)
    return dtype != OPEN and not waits


def settle_type(dtype: DType) -> DType:
    """The element type of a tensor when nothing more is assigned to it."""
    return _alone(dtype.name) if dtype.kind == _ADAPTS else dtype


def as_index(expr: Expr, types: Mapping[str, TensorType]) -> Expr:
    """A typed index expression; raises TypeProblem if it is not an integer."""
    result, dtype = infer_types(expr, types)
    if not dtype.is_integer and dtype != OPEN:
        problem = TypeProblem(f"an index must be an integer, not {dtype}", "write int64(...)")
        problem.expr = expr
        raise problem
    return result


def convert_expression(expr: Expr, types: Mapping[str, TensorType], dtype: DType) -> Expr:
    """A typed expression of the given element type."""
    return _coerce(_infer(expr, types), dtype)


def _alone(kind: str) -> DType:
    return {"open": OPEN, "bool": boolean, "int": int64, "index": int64, "float": float32}[kind]


def _literal_kind(expr: Literal) -> str:
    if isinstance(expr.value, bool):
        return "bool"
    return "int" if isinstance(expr.value, int) else "float"


def _infer(expr: Expr, types: Mapping[str, TensorType]) -> _Typed:
    try:
        return _infer_any(expr, types)
    except TypeProblem as problem:
        if _is_inferred(expr, types):  # invalid only for the types known so far
            return _Typed(expr, None, "open")
        problem.expr = problem.expr or expr
        raise


def _is_inferred(expr: Expr, types: Mapping[str, TensorType]) -> bool:
    """Whether the types of its tensors are being inferred."""
    return any(isinstance(types[read.tensor], Inferred) for read in reads(expr))


def _infer_any(expr: Expr, types: Mapping[str, TensorType]) -> _Typed:
    if isinstance(expr, Literal):
        return _Typed(expr, expr.dtype, "" if expr.dtype else _literal_kind(expr))
    if isinstance(expr, (Index, SizeTerm)):
        return _Typed(expr, None, "index")
    if isinstance(expr, Read):
        return _infer_read(expr, types)
    if isinstance(expr, Cast):
        return _Typed(_coerce(_infer(expr.argument, types), expr.dtype), expr.dtype)
    return _infer_apply(expr, types)


def _part(expr: Expr, dtype: DType) -> _Typed:
    """An expression whose lattice element is known."""
    return _Typed(expr, None, dtype.name) if dtype.kind == _ADAPTS else _Typed(expr, dtype)


def _infer_read(read: Read, types: Mapping[str, TensorType]) -> _Typed:
    kind = types[read.tensor]
    indices = tuple(as_index(index, types) for index in read.indices)
    if isinstance(kind, Inferred) and read.default is not None:
        return _Typed(read, *_join([_part(read, kind.dtype), _infer(read.default, types)]))
    if kind.dtype.kind == _ADAPTS:
        return _part(read, kind.dtype)
    default = None if read.default is None else convert_expression(read.default, types, kind.dtype)
    return _Typed(Read(read.tensor, indices, read.flat, default), kind.dtype)


def _infer_apply(expr: Apply, types: Mapping[str, TensorType]) -> _Typed:
    function = expr.function
    if function == INSIDE:
        as_index(expr.arguments[0], types)  # must be an integer before it is compared with the size
    arguments = [_infer(argument, types) for argument in expr.arguments]
    if function in REINTERPRETING:
        rule = FUNCTIONS[function].result
        if _is_inferred(expr, types) and (rule in DTYPES or arguments[0].dtype is None):
            return _part(expr, DTYPES.get(rule, OPEN))
        return _infer_bits(function, arguments[0])
    if function in LOGIC:
        return _Typed(Apply(function, tuple(_truth(a) for a in arguments)), boolean)
    if FUNCTIONS[function].result == "second":
        condition, branches = _truth(arguments[0]), arguments[1:]
        dtype, kind = _join(branches)
        made = tuple(b.expr if dtype is None else _coerce(b, dtype) for b in branches)
        return _Typed(Apply(function, (condition, *made)), dtype, kind)
    dtype, kind = _join(arguments)
    if FUNCTIONS[function].result == "bool":
        common = dtype or _alone(kind)
        _refuse(function, common)
        return _Typed(Apply(function, tuple(_coerce(a, common) for a in arguments)), boolean)
    if FUNCTIONS[function].result == "float" and dtype is None and kind == "int":
        kind = "float"
    _refuse(function, dtype or _alone(kind))
    if dtype is None:
        return _Typed(Apply(function, tuple(a.expr for a in arguments)), None, kind)
    return _Typed(Apply(function, tuple(_coerce(a, dtype) for a in arguments)), dtype)


def _infer_bits(function: str, part: _Typed) -> _Typed:
    """Type `bits` and its inverse functions."""
    expr, dtype = _settle(part)
    rule = FUNCTIONS[function].result
    if rule == "bits":
        if dtype.bits < 8:
            raise TypeProblem(f"'bits' takes whole bytes, not {dtype}")
        return _Typed(Apply(function, (expr,)), unsigned_type(dtype))
    wanted = unsigned_type(DTYPES[rule])
    if part.dtype is not None and dtype != wanted:
        raise TypeProblem(f"'{function}' takes {wanted}, not {dtype}", "write bits(...)")
    return _Typed(Apply(function, (_coerce(part, wanted),)), DTYPES[rule])


def _join(parts: list[_Typed]) -> tuple[DType | None, str]:
    """The common type of operands: a dtype, or the kind if all operands adapt."""
    kinds = [part.kind for part in parts if part.dtype is None]
    weakest = max(kinds, key=_KINDS.index) if kinds else "open"
    fixed = [part.dtype for part in parts if part.dtype is not None]
    if not fixed:
        return None, weakest
    dtype = promote(fixed)
    if weakest == "float" and not dtype.is_float:
        return float32, ""
    if weakest == "index" and not dtype.is_float:
        return int64, ""
    if weakest == "int" and dtype == boolean:
        return int64, ""
    return dtype, ""


def _refuse(function: str, dtype: DType) -> None:
    """Raise TypeProblem for a function that is not defined on a type."""
    if dtype == OPEN:
        return
    if dtype.stored:
        wider = "float" if dtype.is_float else "int"
        problem = f"'{function}' does not support {dtype}, a storage-only type"
        raise TypeProblem(problem, f"write {wider}(...)")
    if FUNCTIONS[function].result == "float" and not dtype.is_float:
        problem = f"'{function}' takes floating point, not {dtype}"
        raise TypeProblem(problem, f"write {function}(float(...))")
    if not FUNCTIONS[function].narrow and dtype.bits < 32:
        problem = f"'{function}' takes float32 or float64, not {dtype}"
        raise TypeProblem(problem, f"write {function}(float(...), float(...))")
    if function in ARITHMETIC and dtype == boolean:
        raise TypeProblem(f"'{function}' takes numbers, not bool", "write int32(...)")
    if function in BITS and dtype.is_float:
        raise TypeProblem(f"'{function}' takes integers, not {dtype}", "write int32(...)")
    if function.startswith("shift") and dtype == boolean:
        raise TypeProblem(f"'{function}' takes integers, not bool", "write int32(...)")


def _truth(part: _Typed) -> Expr:
    """The operand as a condition: a number is true when it is not 0."""
    dtype = part.dtype or _alone(part.kind)
    if dtype.stored:
        return Cast(boolean, _coerce(part, dtype))
    expr = _coerce(part, dtype)
    if dtype in (boolean, OPEN):
        return expr
    zero = Literal(0.0 if dtype.is_float else 0, dtype)
    return Apply("not_equal", (expr, zero))


def _settle(part: _Typed) -> tuple[Expr, DType]:
    dtype = part.dtype or _alone(part.kind)
    return _coerce(part, dtype), dtype


def _coerce(part: _Typed, dtype: DType) -> Expr:
    """Convert the operand to element type `dtype`."""
    if part.kind == "open":
        return Cast(dtype, part.expr)
    if part.dtype is not None:
        return part.expr if part.dtype == dtype else Cast(dtype, part.expr)
    return _adapt(part.expr, part.kind, dtype)


def _adapt(expr: Expr, kind: str, dtype: DType) -> Expr:
    """Give an adapting term a type; integer arithmetic stays in int64 until it is done."""
    if isinstance(expr, Literal):
        if expr.dtype is not None:
            return expr if expr.dtype == dtype else Cast(dtype, expr)
        return literal(expr.value, dtype)
    if isinstance(expr, SizeTerm) and dtype.is_float and expr.size.constant is not None:
        return literal(expr.size.constant, dtype)
    if isinstance(expr, (Index, SizeTerm)):
        return expr if dtype == int64 else Cast(dtype, expr)
    if isinstance(expr, Read):
        return Cast(dtype, expr)  # the tensor's type is not known yet
    if not isinstance(expr, Apply):
        raise InternalError(f"a {type(expr).__name__} has a type of its own")
    if dtype != int64 and kind != "float":
        return Cast(dtype, _adapt(expr, kind, int64))
    if kind == "float" and not dtype.is_float:
        return Cast(dtype, _adapt(expr, kind, float32))
    skip = 1 if expr.function == "select" else 0
    adapted = tuple(_adapt(a, _kind(a), dtype) for a in expr.arguments[skip:])
    return Apply(expr.function, (*expr.arguments[:skip], *adapted))


def _kind(expr: Expr) -> str:
    """The kind of an adapting term."""
    if isinstance(expr, Literal):
        return _literal_kind(expr)
    if not isinstance(expr, Apply):
        return "index"
    skip = 1 if expr.function == "select" else 0
    weakest = max((_kind(a) for a in expr.arguments[skip:]), key=_KINDS.index)
    rule = FUNCTIONS[expr.function].result
    return "float" if rule == "float" and weakest == "int" else weakest


def literal(value: int | float | bool, dtype: DType) -> Literal:
    """A literal of a type, converted as numpy converts; TypeProblem when out of range."""
    if dtype.is_float:
        return Literal(float(value), dtype)
    if dtype == boolean:
        return Literal(bool(value), dtype)
    if value != value or value in (float("inf"), float("-inf")):
        raise TypeProblem(f"{value} is not a value of {dtype}")
    number = int(value)
    low, high = dtype.range
    if not low <= number <= high:
        raise TypeProblem(f"{number} is outside {dtype}, which holds {low} to {high}")
    return Literal(number, dtype)


def identity(combine: str, dtype: DType) -> Literal:
    """The neutral element of 'add', 'mul', 'min' or 'max' for this type."""
    if combine == "add":
        return literal(0, dtype)
    if combine == "mul":
        return literal(1, dtype)
    lowest = combine == "max"
    if dtype.is_float:
        return literal(float("-inf") if lowest else float("inf"), dtype)
    if dtype == boolean:
        return literal(not lowest, dtype)
    low, high = dtype.range
    return literal(low if lowest else high, dtype)
