"""Imports nodes whose results have different ranks from case to case.

The node becomes an If, if it is none, on the relation between sizes that decides the case. The
nodes after it are moved into its branches, a few more each time, until the results are equal. If no
nodes remain, the enclosing graph has different results in turn; the rank of a model's results then
depends on the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anydim.base.errors import ModelError
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.graphs.apart import Numbered, flat_of, follow_of, split_of
from anydim.compiler.frontends.onnx.graphs.inside import Emission
from anydim.compiler.frontends.onnx.graphs.names import Names
from anydim.compiler.frontends.onnx.operators.relations import Unlike
from anydim.compiler.frontends.onnx.values.emitting import Emitter, Relation
from anydim.compiler.frontends.onnx.values.held import Broken, Held, Known, Ranked

MOST_APART = 4  # nested nodes with different ranks that are compiled for both cases


def is_split(names: Names, relation: Relation | None) -> bool:
    """Whether the sizes of a graph decide a relation."""
    if relation is None:
        return False
    left, _, right = relation
    return left.symbols | right.symbols <= set(names.emitter.box.names)


def split(names: Names, proto: Any, own: str, relation: Relation) -> Any:
    """An If on a relation with a node in both branches."""
    expect_few(names, own, relation)
    emission = Emission(names, names.path + own)
    left, sign, right = relation
    operands = []
    for size in (left, right):
        value = names.emitter.fresh(f"{own}/size")
        names.emitter.add_known(value, Known.size(size), emission.source)
        operands.append(value)
    operator = {"==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal"}[sign]
    condition = names.emitter.fresh(f"{own}/condition")
    names.held[condition] = emission.emit(operator, *operands)
    return split_of(proto, condition, own)


def follow(
    names: Names, numbered: Numbered, remaining: Sequence[Numbered], results: Sequence[str],
    own: str, count: int, reason: Unlike,
) -> list[Numbered]:  # fmt: skip
    """The nodes that replace an If with different results and the nodes after it.

    Raises Unlike if the results of the graph differ, Unsupported if types do.
    """
    position, proto = numbered
    expect_few(names, own, reason.relation)
    names.apart.add(names.path + own)
    follow = follow_of(numbered, remaining, results, own, count)
    if follow:
        return follow
    problem = f"{reason}; no later node makes them equal"
    if reason.differing == "types":
        raise Unsupported(problem)
    unlike = [proto.output[index] for index in reason.results]
    indices = [number for number, name in enumerate(results) if name in unlike]
    lengths = reason.differing == "lengths"
    is_last = names.is_model or (lengths and not _may_follow(names, reason.relation))
    if indices and not is_last:
        raise Unlike(problem, reason.relation, indices, reason.differing)
    if lengths:
        names.settled.add(names.path + own)
        return [numbered, *remaining]
    parts = {name: _parts(names, name) for name in unlike if name}
    names.flat.update(parts)
    return [(position, flat_of(proto, parts)), *remaining]


def _may_follow(names: Names, relation: Relation | None) -> bool:
    """Whether nodes after the enclosing one may read shapes as shapes."""
    if names.is_settled or names.around is None:
        return False
    return is_split(names.around, relation)


def _parts(names: Names, name: str) -> tuple[str, str]:
    return names.emitter.fresh(f"{name}.elements"), names.emitter.fresh(f"{name}.shape")


def expect_few(names: Names, own: str, relation: Relation | None) -> None:
    """ModelError if a node would be compiled for too many cases."""
    if names.emitter.apart < MOST_APART:
        return
    known = [] if relation is None else [relation]
    at: Emitter | None = names.emitter
    while at is not None:
        known, at = [*at.relations, *known], at.outer
    decided = ", ".join(dict.fromkeys(f"{left} {sign} {right}" for left, sign, right in known))
    raise ModelError(
        f"{names.model.name}, node '{names.path + own}': how many axes its result has depends on "
        f"more than {MOST_APART} relations: {decided}",
        "name the axes of each Squeeze, or give such a dim a size or a bound: dims={'batch': 1}",
    )


def results_of_any_rank(names: Names) -> dict[str, Held]:
    """The results of a model whose rank depends on the call."""
    made: dict[str, Held] = {}
    for name, parts in names.flat.items():
        elements, shape = (names.held.get(part) for part in parts)
        whole = isinstance(elements, str) and isinstance(shape, str)
        made[name] = Ranked(str(elements), str(shape)) if whole else Broken()
    return made
