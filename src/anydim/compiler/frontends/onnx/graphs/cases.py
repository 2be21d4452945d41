"""Imports nodes whose results have different ranks for different sizes.

A relation between sizes decides the rank: `n == 1` for a Squeeze without axes. The node becomes an
If on this relation, unless it is an If. The nodes after it are moved into its branches, a few more
each time, until both branches have results of the same ranks. If none remain, the enclosing graph
has results of different ranks in turn; at the top, the rank of a result depends on the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anydim.base.errors import ModelError
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.graphs.moved_nodes import Numbered, flat_of, follow_of, split_of
from anydim.compiler.frontends.onnx.graphs.names import Names
from anydim.compiler.frontends.onnx.graphs.subgraphs import Emission
from anydim.compiler.frontends.onnx.operators.relations import Unlike
from anydim.compiler.frontends.onnx.values.bindings import Binding, Broken, Known, Ranked
from anydim.compiler.frontends.onnx.values.emitter import Emitter, Relation

MOST_APART = 4  # nested nodes with different ranks that are compiled for both cases


def is_split(names: Names, relation: Relation | None) -> bool:
    """Whether a relation uses dims of this graph only, so that an If in it can test it."""
    if relation is None:
        return False
    left, _, right = relation
    return left.symbols | right.symbols <= set(names.emitter.box.names)


def split(names: Names, proto: Any, own: str, relation: Relation) -> Any:
    """Wrap a node in an If on a relation, with the node in both branches."""
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
    """Whether nodes of the enclosing graph may use vectors of different lengths as shapes."""
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


def results_of_any_rank(names: Names) -> dict[str, Binding]:
    """The results of a model whose rank depends on the call."""
    made: dict[str, Binding] = {}
    for name, parts in names.flat.items():
        elements, shape = (names.held.get(part) for part in parts)
        whole = isinstance(elements, str) and isinstance(shape, str)
        made[name] = Ranked(str(elements), str(shape)) if whole else Broken()
    return made
