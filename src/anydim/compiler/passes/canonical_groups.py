"""Canonical form of groups, with names of tensors, checks and sizes normalised.

Groups with equal canonical forms share what templates produce for one of them.
"""

from __future__ import annotations

from dataclasses import replace

from anydim.base.records import dataclass
from anydim.compiler.kernels.launch import Launch
from anydim.compiler.passes.signatures import signature
from anydim.lang.tree import (
    Apply,
    Expr,
    Group,
    Read,
    Statement,
    Tensor,
    TensorType,
)
from anydim.lang.tree.affine import rewrite
from anydim.lang.tree.bounds_checks import (
    checks,
    index_from_end,
    index_tensor,
    number_of,
    renumber_checks,
    size_of,
)
from anydim.lang.tree.renaming import rename_steps, replace_sizes, sizes_in
from anydim.lang.tree.stepping import expressions_of, with_expressions
from anydim.sizes import Atom, Box, Condition, RelativeSizes, Size, as_size, own_sizes


@dataclass(frozen=True)
class IndexCheck:
    """An index check of a launch: its node's number and the tensor that the index addresses.

    `indices` is the graph value that holds the indices; empty if they are computed.
    """

    node: int
    tensor: str
    size: Size
    from_end: bool
    indices: str


def canonical(group: Group) -> tuple[Group, dict[str, str], tuple[IndexCheck, ...]]:
    """The group with tensors t0, t1, ... and checks 0, 1, ...; the original names and checks."""
    tensors = (*group.inputs, *group.outputs, *group.temporaries)
    names = {tensor.name: f"t{position}" for position, tensor in enumerate(tensors)}
    numbers: dict[Apply, int] = {}

    def change(expr: Expr) -> Expr | None:
        if isinstance(expr, Read):
            return replace(expr, tensor=names[expr.tensor])
        return None

    def statement(old: Statement) -> Statement:
        body = renumber_checks(rewrite(old.body, change), number)
        return replace(old, target=names[old.target], body=body)

    def number(check: Apply) -> int:
        return numbers.setdefault(check, len(numbers))

    def renamed(old: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(Tensor(names[tensor.name], tensor.type) for tensor in old)

    result = Group(
        inputs=renamed(group.inputs),
        outputs=renamed(group.outputs),
        statements=tuple(statement(s) for s in group.statements),
        temporaries=renamed(group.temporaries),
        steps=with_expressions(
            rename_steps(group.steps, names), lambda e: renumber_checks(e, number)
        ),
    )
    values = {new: old for old, new in names.items()}
    nodes = [number_of(check) for check in numbers]
    return result, values, _checks_by_number(result, values, nodes) if numbers else ()


def _checks_by_number(
    group: Group, values: dict[str, str], nodes: list[int]
) -> tuple[IndexCheck, ...]:
    """Checks of a canonical group, by number."""
    found: dict[int, IndexCheck] = {}
    expressions = [("", statement.body) for statement in group.statements]
    for target, expr in (*expressions, *expressions_of(group.steps)):
        for tensor, check in checks(expr, target):
            index = number_of(check)
            from_end = index_from_end(check) is not None
            indices = values.get(index_tensor(check), "")
            known = IndexCheck(
                nodes[index], values.get(tensor, ""), size_of(check), from_end, indices
            )
            found.setdefault(index, known)
    return tuple(found[index] for index in range(len(nodes)))


@dataclass(frozen=True, eq=False)
class Canonical:
    """A group in canonical size names and their box; `names` maps them to the model's sizes.

    Without names the group's sizes are the model's.
    """

    group: Group
    box: Box
    names: RelativeSizes | None = None

    def back(self, launch: Launch) -> Launch:
        """The launch in terms of the model's sizes."""
        if self.names is None:
            return launch
        back = self.names.back
        return replace(
            launch, sizes=tuple(map(back, launch.sizes)), parallel=back(launch.parallel),
            grain=back(as_size(launch.grain)), scratch=back(launch.scratch),
            flops=back(launch.flops), moved=back(launch.moved),
            versions=tuple((name, Condition(back(w.test))) for name, w in launch.versions),
        )  # fmt: skip

    def tensor(self, tensor: Tensor) -> Tensor:
        """The tensor in terms of the model's sizes."""
        if self.names is None:
            return tensor
        shape = tuple(map(self.names.back, tensor.type.shape))
        return Tensor(tensor.name, TensorType(tensor.type.dtype, shape))


def in_signature(group: Group, box: Box, llc_bytes: int) -> Canonical:
    """The group in the sizes of its signature (`signatures.py`), or with compound sizes renamed."""
    found = signature(group, box, llc_bytes)
    if found is not None:
        named, names = found
        return Canonical(named, names.box, names)
    return in_canonical_sizes(group, box)


def in_canonical_sizes(group: Group, box: Box) -> Canonical:
    """The group with sizes renamed; unchanged with plain dims, guards or steps."""
    tensors = (*group.inputs, *group.outputs, *group.temporaries)
    compound = any(
        isinstance(atom, Atom)
        for tensor in tensors
        for size in tensor.type.shape
        for monomial in size.coefficients
        for atom in monomial
    )
    names = own_sizes(sizes_in(group), box) if compound and not group.steps else None
    if names is None or group.guards:
        return Canonical(group, box)
    return Canonical(replace_sizes(group, names.own), names.box, names)
