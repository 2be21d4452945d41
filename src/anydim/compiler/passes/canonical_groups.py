"""Canonical form of groups, with names of tensors, checks and sizes normalised.

Groups with equal canonical forms share what templates produce for one of them. The constant sizes
of a concatenation get names, too: concatenations of equal form share a kernel.
"""

from __future__ import annotations

from dataclasses import replace

from anydim.base.records import dataclass
from anydim.compiler.kernels.concat.concat_form import stop_of
from anydim.compiler.kernels.launch import Launch
from anydim.compiler.kernels.rows.row_body import PIECE
from anydim.lang.tree import (
    Apply,
    Axis,
    Expr,
    Group,
    Index,
    Read,
    SizeTerm,
    Statement,
    Tensor,
    TensorType,
)
from anydim.lang.tree.affine import affine, rewrite
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
from anydim.sizes import Atom, Box, Condition, Dim, RelativeSizes, Size, as_size, own_sizes


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


# ---- concatenations ----------------------------------------------------------------------------

_VECTOR = 16  # code of parts with fewer elements depends on their number


def with_named_parts(own: Canonical) -> Canonical:
    """A concatenation of long parts of constant size, with names for its constant sizes; other
    groups unchanged."""
    found = _concatenation(own.group)
    if found is None:
        return own
    position, reads, lengths = found
    (statement,) = own.group.statements
    back = {f"part{number}": as_size(length) for number, length in enumerate(lengths)}
    shape = list(statement.shape)
    for dimension, size in enumerate(shape):
        if dimension != position and (size.constant or 0) > 1:
            back[f"extent{dimension}"] = size
            shape[dimension] = Size.symbol(f"extent{dimension}")
    most = PIECE // len(lengths)  # as rows of a piece are not split, if the parts are rows
    parts = [
        Dim(f"part{number}", min(length, _VECTOR + 1), most if max(lengths) <= most else None)
        for number, length in enumerate(lengths)
    ]
    box = own.box.also(*parts, *(Dim(name, 1) for name in back if name.startswith("extent")))
    known = own.names
    if known is None:
        names = RelativeSizes(box, back, {})
    else:
        names = RelativeSizes(box, {**known.sizes, **back}, known.atoms)
    return Canonical(_concatenate(own.group, position, reads, shape), box, names)


def _concatenation(group: Group) -> tuple[int, list[Read], list[int]] | None:
    """The dimension, the reads and the constant lengths of a group that only concatenates."""
    if len(group.statements) != 1 or group.temporaries or group.steps or group.guards:
        return None
    (statement,) = group.statements
    reads: list[Read] = []
    stops, axes, rest = [as_size(0)], list[str](), statement.body
    while isinstance(rest, Apply) and rest.function == "select":
        condition, taken, rest = rest.arguments
        stop = stop_of(condition)
        if stop is None or not isinstance(taken, Read):
            return None
        axes.append(stop[0])
        stops.append(stop[1])
        reads.append(taken)
    if not isinstance(rest, Read) or statement.combine or len(set(axes)) != 1:
        return None
    reads.append(rest)
    names = [axis.name for axis in statement.axes]
    position = names.index(axes[0])
    ends = [*stops[1:], statement.shape[position]]
    lengths = [(end - start).constant or 0 for start, end in zip(stops, ends)]
    types = {tensor.name: tensor.type for tensor in group.inputs}
    if types.keys() != {read.tensor for read in reads} or len(types) < len(reads):
        return None
    for read, start, length in zip(reads, stops, lengths):
        shape = list(statement.shape)
        shape[position] = as_size(length)
        indices: list[Expr] = [Index(name) for name in names]
        indices[position] = read.indices[position] if not read.flat else indices[position]
        form = affine(indices[position])
        own = form is not None and form.constant == -start and dict(form.terms) == {axes[0]: 1}
        if read.flat or not own or list(read.indices) != indices:
            return None
        if types[read.tensor].shape != tuple(shape) or length < _VECTOR:
            return None
    return position, reads, lengths


def _concatenate(group: Group, position: int, reads: list[Read], shape: list[Size]) -> Group:
    """The concatenation of parts named part0, part1, ...; `shape` has the other extents."""
    (statement,) = group.statements
    axis = Index(statement.axes[position].name)
    stop, stops, bodies = as_size(0), list[Size](), list[Expr]()
    types: dict[str, TensorType] = {}
    for number, read in enumerate(reads):
        part = Size.symbol(f"part{number}")
        index = Apply("add", (axis, SizeTerm(-stop))) if number else axis
        indices = (*read.indices[:position], index, *read.indices[position + 1 :])
        bodies.append(replace(read, indices=indices))
        dtype = next(t.type.dtype for t in group.inputs if t.name == read.tensor)
        types[read.tensor] = TensorType(dtype, (*shape[:position], part, *shape[position + 1 :]))
        stop += part
        stops.append(stop)
    body = bodies[-1]
    for before, end in zip(bodies[-2::-1], stops[-2::-1]):
        body = Apply("select", (Apply("less", (axis, SizeTerm(end))), before, body))
    whole = (*shape[:position], stop, *shape[position + 1 :])
    axes = tuple(Axis(axis.name, extent) for axis, extent in zip(statement.axes, whole))
    (output,) = group.outputs
    return replace(
        group,
        inputs=tuple(Tensor(t.name, types[t.name]) for t in group.inputs),
        outputs=(Tensor(output.name, TensorType(output.type.dtype, whole)),),
        statements=(replace(statement, axes=axes, body=body),),
    )
