"""Which tensors have derivatives: floats that depend on a float input and that a result needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from anydim.lang.derivatives.flow import carries
from anydim.lang.tree import Group, OrderedStep, Statement, TensorType, Write
from anydim.lang.tree.affine import reads
from anydim.lang.tree.stepping import writes


def steps_of(group: Group) -> tuple[OrderedStep, ...]:
    """The steps of a group, ordered or not."""
    return group.steps or group.statements


def tensor_types(group: Group) -> dict[str, TensorType]:
    """The types of all tensors of a group."""
    return {t.name: t.type for t in (*group.inputs, *group.outputs, *group.temporaries)}


def active_tensors(
    steps: Sequence[OrderedStep], group: Group, types: Mapping[str, TensorType],
    inputs: Collection[str],
) -> frozenset[str]:  # fmt: skip
    """The tensors of `steps` of a group whose cotangents those of `inputs` depend on."""
    floats = {name for name, kind in types.items() if kind.dtype.kind == "float"}
    own = [step for step in writes(steps) if step.target in floats]
    varied = _grow_until_stable(set(inputs) & floats, own, _spreads)
    useful = _grow_until_stable({t.name for t in group.outputs} & floats, own, _needs)
    return frozenset(varied & useful & floats)


def _grow_until_stable(
    found: set[str], steps: Sequence[Statement | Write], add: object
) -> set[str]:
    """Least fixed point: `add` extends the set step by step until nothing changes."""
    while True:
        more = {name for step in steps for name in add(step, found)}  # type: ignore[operator]
        if more <= found:
            return found
        found = found | more


def _spreads(step: Statement | Write, found: Collection[str]) -> set[str]:
    return {step.target} if carries(step.body, found) else set()


def _needs(step: Statement | Write, found: Collection[str]) -> set[str]:
    if step.target not in found:
        return set()
    return {read.tensor for read in reads(step.body) if carries(step.body, {read.tensor})}
