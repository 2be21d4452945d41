"""Derivation of dims from the shapes of inputs, and the checks of a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from anydim.base.errors import DimError, GraphError
from anydim.base.records import dataclass
from anydim.base.text import quote_list, suggestion
from anydim.runtime.checks import Check
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Box, Size, Truth, as_size, prove


@dataclass(frozen=True)
class Source:
    """dim = (size of an input's axis - rest) / factor; both are sizes of dims solved earlier."""

    dim: str
    input: int
    axis: int
    factor: Size
    rest: Size

    @property
    def direct(self) -> bool:
        """Whether the axis is the dim plus a constant or other dims, so that a solution always
        exists."""
        return self.factor == 1


def solve(
    signature: Signature, needed: frozenset[str], given: frozenset[str] = frozenset()
) -> tuple[Source, ...]:
    """Return a source for every dim that shapes determine, in an order of computation.

    Axes that are just a dim come first, then those linear in it. `given` dims have values already.
    Raises GraphError if a needed dim cannot be determined.
    """
    axes = [
        (i, a, size) for i, spec in enumerate(signature.inputs) for a, size in enumerate(spec.shape)
    ]
    axes.sort(key=lambda axis: axis[2].atom not in signature.box.names)
    sources: list[Source] = []
    known: set[str] = set(given)
    progress = True
    while progress:
        progress = False
        for input, axis, size in axes:
            source = _source(input, axis, size, known)
            if source is not None:
                sources.append(source)
                known.add(source.dim)
                progress = True
    lost = [name for name in signature.box.names if name in needed and name not in known]
    if lost:
        raise GraphError(
            f"{signature.name}: no input determines the size of dim {quote_list(lost)}",
            "an input needs an axis whose size is that dim, or linear in it",
        )
    return tuple(sources)


def requested_dims(signature: Signature, needed: frozenset[str]) -> tuple[str, ...]:
    """Return the needed dims that no input determines."""
    found: list[str] = []
    while True:
        known = {source.dim for source in solve(signature, frozenset(), frozenset(found))}
        known.update(found)
        lost = (name for name in signature.box.names if name in needed and name not in known)
        name = next(lost, None)
        if name is None:
            return tuple(found)
        found.append(name)


def determined_dims(box: Box, specs: Sequence[TensorSpec], known: frozenset[str]) -> frozenset[str]:
    """Return the dims that tensors of these shapes determine if others are known."""
    signature = Signature("", box, tuple(specs), ())
    return frozenset(source.dim for source in solve(signature, frozenset(), known))


def _source(input: int, axis: int, size: Size, known: set[str]) -> Source | None:
    unknown = size.symbols - known
    if len(unknown) != 1:
        return None
    (name,) = unknown
    split = size.linear_in((name,))
    if split is None:
        return None
    return Source(name, input, axis, split[0][name], split[1])


def first_checks(signature: Signature, sources: tuple[Source, ...]) -> tuple[Check, ...]:
    """Return the checks that give each dim a value within its bounds."""
    checks = []
    for source in sources:
        dim = signature.box.dim(source.dim)
        if not source.direct:
            checks.append(Check("multiple", source.input, source.axis, source.dim))
        low = 0 if source.direct and source.rest == 0 else None
        if low is None or dim.lo > low:
            checks.append(Check("low", source.input, source.axis, source.dim))
        if dim.hi is not None:
            checks.append(Check("high", source.input, source.axis, source.dim))
    return tuple(checks)


def second_checks(signature: Signature, sources: tuple[Source, ...]) -> tuple[Check, ...]:
    """Return the checks between dims: all other axes, constraints, guards, overflow."""
    solved = {(source.input, source.axis) for source in sources}
    checks = [
        Check("axis", i, a, size=size)
        for i, spec in enumerate(signature.inputs)
        for a, size in enumerate(spec.shape)
        if (i, a) not in solved
    ]
    checks += [Check("constraint", size=size) for size in signature.box.constraints]
    for guard in signature.guards:
        if prove(guard.left, guard.relation, guard.right, signature.box) is not Truth.PROVED:
            checks.append(Check("guard", guard=guard))
    checks.append(Check("large", size=as_size(0)))
    return tuple(checks)


def check_names(name: str, box: Box, dims: Iterable[str], keywords: Iterable[str] = ()) -> None:
    """Raise DimError for unknown dims; the name may be a misspelled keyword of a call."""
    for dim in dims:
        if dim not in box.names:
            hint = (
                suggestion(dim, (*box.names, *keywords)) or f"the dims are {quote_list(box.names)}"
            )
            raise DimError(f"{name} has no dim '{dim}'", hint)


def check_sizes(name: str, box: Box, sizes: Mapping[str, int]) -> None:
    """Raise DimError unless `sizes` has every dim of the box, within its bounds."""
    check_names(name, box, sizes)
    violations = box.violations(sizes)
    if violations:
        every = "" if sizes.keys() >= set(box.names) else "; give every dim a size"
        hint = "; ".join(violations[1:]) or f"declared {box}{every}"
        raise DimError(f"{name}: {violations[0]}", hint)
