"""Messages for the error codes of an exported program: fixed texts without the call's sizes."""

from __future__ import annotations

from anydim.runtime import stopping
from anydim.runtime.checks import Check
from anydim.runtime.failures import Failure
from anydim.runtime.positions import Position
from anydim.runtime.signature import Signature


def failure_text(failure: Failure, name: str) -> str:
    """Describe a failure of a call of the program `name`, in one line."""
    if failure.position is not None:
        return _position(failure.position, name)
    if failure.kind in _TEXTS:
        return f"{failure.signature.name}: {_TEXTS[failure.kind]}"
    if failure.kind in stopping.FAILURES:  # nothing stops it
        return "the call was ended"
    if failure.dim:
        return f"{failure.signature.name}: {_outside(failure)}"
    assert failure.check is not None
    return _check(failure.check, failure.signature)


_TEXTS = {
    "slice": "an iteration produced a slice of another shape than earlier ones",
    "place": "a slice is outside its stack",
    "count": "the number of sizes that data defines is wrong",
}


_STRUCTURES = (
    "the arrays of a structure do not fit: the number of a node or an offset is out of its range, "
    "a structure contains itself, or structures share nodes too often"
)


def _outside(failure: Failure) -> str:
    dim = failure.signature.box.dim(failure.dim)
    if failure.kind == "found" and dim.name.endswith(".fault"):
        return _STRUCTURES
    by = ", as data defines it" if failure.kind == "found" else ""
    return f"dim '{dim.name}' is outside its bounds {dim.range}{by}"


def _check(check: Check, signature: Signature) -> str:
    if check.input < 0:
        return _general(check)
    spec = signature.inputs[check.input]
    shape = ", ".join(map(str, spec.shape))
    return f"{signature.noun} '{spec.name}': {_input(check, signature)}; expected shape [{shape}]"


def _input(check: Check, signature: Signature) -> str:
    size = signature.inputs[check.input].shape[check.axis]
    if check.kind == "multiple":
        return f"axis {check.axis} determines no size for dim '{check.dim}' in {size}"
    if check.kind == "axis":
        note = "" if size.constant is not None else ", as other axes determine it"
        return f"axis {check.axis} is not {size}{note}"
    dim = signature.box.dim(check.dim)
    side, bound = ("below", dim.lo) if check.kind == "low" else ("above", dim.hi)
    return f"dim '{dim.name}' is {side} its bound {bound}"


def _general(check: Check) -> str:
    if check.guard is not None:
        guard = check.guard
        return f"{guard.left} {guard.relation} {guard.right} does not hold: {guard.message}"
    if check.kind == "constraint":
        return f"the constraint {check.size} >= 0 does not hold"
    return "a size of the program does not fit 64 bits or divides by 0"


def _position(position: Position, name: str) -> str:
    where = position.source.removeprefix(f"{name}: ") or name
    low = f"-({position.size})" if position.from_end else "0"
    of = f" of '{position.tensor}'" if position.tensor else ""
    source = f"; indices come from input '{position.indices}'" if position.indices else ""
    return f"{where}: an index is outside {low}..{position.size - 1}{of}{source}"
