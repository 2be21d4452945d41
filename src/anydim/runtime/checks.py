"""Checks that a program performs when it binds sizes, and their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anydim import sizes
from anydim.base.errors import DimError, InputError
from anydim.base.records import dataclass
from anydim.runtime.signature import Signature
from anydim.sizes import Box, Guard, Size

Shapes = Sequence[tuple[int, ...]]
ASSERTION = "assertion.holds"  # begins the names of dims that are 1 where data are as expected
_READABLE = 48  # maximum length of a relation in an error, in characters


@dataclass(frozen=True)
class Check:
    """A check in native code; its index in the table is the failure code minus 1.

    kind: 'multiple' (an axis that is linear in a dim has an integer solution), 'low' and 'high' (a
    dim is within its bounds), 'axis' (an axis has the size that the dims imply), 'constraint' (a
    size is >= 0), 'guard' (a relation holds), 'large' (all sizes fit 64 bits).
    """

    kind: str
    input: int = -1
    axis: int = -1
    dim: str = ""
    size: Size | None = None
    guard: Guard | None = None


def failure(
    check: Check, signature: Signature, shapes: Shapes, dims: Mapping[str, int]
) -> InputError:
    """Return the error for a failed check in a call with inputs of these shapes."""
    return _ERRORS[check.kind](check, signature, shapes, dims)


def _where(check: Check, signature: Signature) -> str:
    return f"{signature.noun} '{signature.inputs[check.input].name}' of {signature.name}"


def _shape_hint(check: Check, signature: Signature, shapes: Shapes) -> str:
    wanted = ", ".join(map(str, signature.inputs[check.input].shape))
    given = ", ".join(map(str, shapes[check.input]))
    return f"expected shape [{wanted}], got [{given}]"


def _at(size: Size, dims: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {dims[name]}" for name in sorted(size.symbols))


def _multiple(
    check: Check, signature: Signature, shapes: Shapes, dims: Mapping[str, int]
) -> InputError:
    size = signature.inputs[check.input].shape[check.axis]
    return DimError(
        f"{_where(check, signature)}: axis {check.axis} is {shapes[check.input][check.axis]}, "
        f"from which dim '{check.dim}' in {size} cannot be determined",
        _shape_hint(check, signature, shapes),
    )


def _outside(
    check: Check, signature: Signature, shapes: Shapes, dims: Mapping[str, int]
) -> InputError:
    dim = signature.box.dim(check.dim)
    side, bound = ("below", dim.lo) if check.kind == "low" else ("above", dim.hi)
    remedy = "lower the bound" if check.kind == "low" else "raise the bound, or split the input"
    return DimError(
        f"{_where(check, signature)}: dim '{dim.name}' is {dims[dim.name]}, "
        f"{side} its bound {bound}",
        f"{_shape_hint(check, signature, shapes)}; declared {dim}; {remedy}",
    )


def _axis(
    check: Check, signature: Signature, shapes: Shapes, dims: Mapping[str, int]
) -> InputError:
    size = signature.inputs[check.input].shape[check.axis]
    problem = f"{_where(check, signature)}: axis {check.axis} is "
    problem += str(shapes[check.input][check.axis])
    if size.constant is not None:
        return DimError(f"{problem}, expected {size}", _shape_hint(check, signature, shapes))
    expected = f"{size} is {size.evaluate(dims)}"
    if size.atom in signature.box.names:
        expected = f"dim '{size}' is {size.evaluate(dims)}"
    else:
        expected += f" at {_at(size, dims)}"
    other = _source_of(size, check, signature)
    return DimError(
        f"{problem}, but {expected}{other}",
        f"{_shape_hint(check, signature, shapes)}; {signature.noun}s must agree on every dim",
    )


def _source_of(size: Size, check: Check, signature: Signature) -> str:
    """Name another axis with the same size expression, if there is one."""
    for position, spec in enumerate(signature.inputs):
        for axis, other in enumerate(spec.shape):
            if other == size and (position, axis) != (check.input, check.axis):
                return f" in axis {axis} of {signature.noun} '{spec.name}'"
    return ""


def _constraint(
    check: Check, signature: Signature, shapes: Shapes, dims: Mapping[str, int]
) -> InputError:
    assert check.size is not None
    return DimError(
        f"{signature.noun}s of {signature.name}: the constraint {check.size} >= 0 does not hold at "
        f"{_at(check.size, dims)}",
        "choose sizes that meet it, or change the declared constraint",
    )


def _guard(
    check: Check, signature: Signature, shapes: Shapes, dims: Mapping[str, int]
) -> InputError:
    assert check.guard is not None
    told = choose_guard(check.guard, signature.guards, dims, signature.box)
    return guard_error(told, f"{signature.noun}s of {signature.name}", dims, signature.box)


def choose_guard(
    failed: Guard, guards: Sequence[Guard], dims: Mapping[str, int], box: Box
) -> Guard:
    """Choose the guard that an error reports for a failed one.

    Prefers a failed equality of the same dims to bounds of an index, if its advice differs: sizes
    within the bounds may still violate the equality.
    """
    if failed.relation == "==":
        return failed
    same = (each for each in guards if each.relation == "==" and each.symbols == failed.symbols)
    found = next((each for each in same if not sizes.is_met(each, dims)), failed)
    is_same = sizes.remedy(found, dims, box) == sizes.remedy(failed, dims, box)
    return failed if is_same else found


def guard_error(guard: Guard, what: str, dims: Mapping[str, int], box: Box) -> DimError:
    """Return the error for a violated guard: first the remedy, then the reason."""
    if str(guard.left).startswith(ASSERTION):
        return DimError(f"{what.removeprefix('sizes of ')}: {guard.message}", "give other values")
    at = _at(guard.left - guard.right, dims)
    needed = sizes.remedy(guard, dims, box)
    return DimError(
        f"{what}: sizes do not fit at {at or 'any size'}" + (f"; {needed}" if needed else ""),
        f"{guard.message}{_relation(guard, dims)}",
    )


def _relation(guard: Guard, dims: Mapping[str, int]) -> str:
    """Return the violated relation; a long one as the values of its two sides."""
    text = f"{guard.left} {guard.relation} {guard.right}"
    if len(text) <= _READABLE:
        return f": {text} does not hold"
    left, right = guard.left.evaluate(dims), guard.right.evaluate(dims)
    return "" if 0 in (left, right) else f": {left} {guard.relation} {right} does not hold"


def _large(
    check: Check, signature: Signature, shapes: Shapes, dims: Mapping[str, int]
) -> InputError:
    at = ", ".join(f"{name} = {value}" for name, value in dims.items())
    return DimError(
        f"{signature.noun}s of {signature.name}: at {at} a size of the program does not fit "
        "64 bits or divides by 0",
        "use smaller inputs, or give the dims upper bounds",
    )


_ERRORS = {
    "multiple": _multiple,
    "low": _outside,
    "high": _outside,
    "axis": _axis,
    "constraint": _constraint,
    "guard": _guard,
    "large": _large,
}
