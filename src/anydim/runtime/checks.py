"""What is checked when a program binds its sizes, and the errors for what does not hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anydim import sizes
from anydim.base.errors import DimError, InputError
from anydim.base.records import dataclass
from anydim.runtime.signature import Signature
from anydim.sizes import Box, Guard, Size

Shapes = Sequence[tuple[int, ...]]
_READABLE = 48  # letters of a relation between sizes that a reader takes in


@dataclass(frozen=True)
class Check:
    """One check of native code; its position in a table is the failure code minus 1.

    kind: 'multiple' (an axis linear in a dim has a whole solution), 'low' and 'high' (a dim is
    inside its bounds), 'axis' (an axis has the size that the dims ask for), 'constraint' (a size
    is >= 0), 'guard' (a relation holds), 'large' (all sizes fit 64 bits).
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
    """The error for a check that failed at a call with inputs of these shapes."""
    return _ERRORS[check.kind](check, signature, shapes, dims)


def _where(check: Check, signature: Signature) -> str:
    return f"{signature.noun} '{signature.inputs[check.input].name}' of {signature.name}"


def _expected(check: Check, signature: Signature, shapes: Shapes) -> str:
    wanted = ", ".join(map(str, signature.inputs[check.input].shape))
    came = ", ".join(map(str, shapes[check.input]))
    return f"expected shape [{wanted}], got [{came}]"


def _at(size: Size, dims: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {dims[name]}" for name in sorted(size.symbols))


def _multiple(
    check: Check, signature: Signature, shapes: Shapes, dims: Mapping[str, int]
) -> InputError:
    size = signature.inputs[check.input].shape[check.axis]
    return DimError(
        f"{_where(check, signature)}: axis {check.axis} is {shapes[check.input][check.axis]}, "
        f"which tells no size for dim '{check.dim}' in {size}",
        _expected(check, signature, shapes),
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
        f"{_expected(check, signature, shapes)}; declared {dim}; {remedy}",
    )


def _axis(
    check: Check, signature: Signature, shapes: Shapes, dims: Mapping[str, int]
) -> InputError:
    size = signature.inputs[check.input].shape[check.axis]
    problem = f"{_where(check, signature)}: axis {check.axis} is "
    problem += str(shapes[check.input][check.axis])
    if size.constant is not None:
        return DimError(f"{problem}, expected {size}", _expected(check, signature, shapes))
    told = f"{size} is {size.evaluate(dims)}"
    if size.atom in signature.box.names:
        told = f"dim '{size}' is {size.evaluate(dims)}"
    else:
        told += f" at {_at(size, dims)}"
    other = _told_by(size, check, signature)
    return DimError(
        f"{problem}, but {told}{other}",
        f"{_expected(check, signature, shapes)}; {signature.noun}s must agree on every dim",
    )


def _told_by(size: Size, check: Check, signature: Signature) -> str:
    """Which input has an axis of that very size, before the one that failed."""
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
    return broken(check.guard, f"{signature.noun}s of {signature.name}", dims, signature.box)


def broken(guard: Guard, what: str, dims: Mapping[str, int], box: Box) -> DimError:
    """The error for sizes of `what` at which a guard does not hold: what to do, then why."""
    at = _at(guard.left - guard.right, dims)
    needed = sizes.remedy(guard, dims, box)
    return DimError(
        f"{what}: sizes do not fit at {at or 'any size'}" + (f"; {needed}" if needed else ""),
        f"{guard.message}{_relation(guard, dims)}",
    )


def _relation(guard: Guard, dims: Mapping[str, int]) -> str:
    """The relation that does not hold; of one that nobody reads, the numbers of its two sides."""
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
