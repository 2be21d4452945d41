"""The row of If: a node with two graphs of which one runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from anydim.base.dtypes import boolean
from anydim.compiler.frontends.onnx.file.tensors import MOST_AXES, Unsupported
from anydim.compiler.frontends.onnx.operators.call import Body, OnnxNode
from anydim.compiler.frontends.onnx.operators.relations import (
    Unlike,
    assume,
    decide,
    opposite,
    relation_of,
)
from anydim.compiler.frontends.onnx.values.bindings import Binding, Broken, Known, Result
from anydim.compiler.frontends.onnx.values.emitter import Relation
from anydim.compiler.frontends.onnx.values.forms import (
    common_form,
    elements_of,
    kind_of,
    rebuild,
    tensors_of,
    width,
)
from anydim.compiler.graph.regions import BRANCH, BranchRegion
from anydim.lang.tree import TensorType
from anydim.sizes import Guard, Interval, Size, Truth, as_size, bounds, maximum, minimum, prove


def if_(call: OnnxNode) -> Sequence[Result]:
    """If: a constant condition selects at import, and the other branch is not imported.

    Raises Unlike if the branches have results of different ranks or types; the nodes after the If
    are then moved into both branches (`graphs/cases.py`). If they are impossible after one
    branch, and sizes select it, a guard rejects such sizes.
    """
    known = call.emitter.known.get(call.input(0))
    if known is not None and not known.has_sizes and known.array.size == 1:
        return call.scope.inline(call.attribute(_branch(bool(numpy.all(known.array)))))
    relation = relation_of(call.emitter, call.input(0))
    taken = None if relation is None else decide(call.emitter, relation)
    if taken is not None:
        return call.scope.inline(call.attribute(_branch(taken)))
    bodies = [call.scope.body(call.attribute(_branch(first))) for first in (True, False)]
    for body in bodies:
        body.emitter.is_apart = call.scope.is_apart
    if relation is None:
        return joined_results(call, bodies, [body.run() for body in bodies], _condition(call))
    return _by_sizes(call, bodies, relation)


def _branch(taken: bool) -> str:
    return "then_branch" if taken else "else_branch"


def _by_sizes(call: OnnxNode, bodies: Sequence[Body], relation: Relation) -> Sequence[Result]:
    """The results of the branch that a relation between sizes selects."""
    cases = (relation, opposite(relation))
    tried = []
    for body, case in zip(bodies, cases):
        assume(body.emitter, case)
        tried.append(call.scope.tried(body))
    (first, problems), (second, others) = tried
    if first is not None and second is not None:
        try:
            return joined_results(call, bodies, (first, second), Guard(*relation, call.source))
        except Unlike as reason:
            raise Unlike(str(reason), relation, reason.results, reason.differing) from None
    if not call.scope.is_apart or (first is None and second is None):
        call.scope.refuse(problems or others)
    taken = first is not None
    _require(call, cases[not taken], (problems or others)[0])
    return call.scope.inline(call.attribute(_branch(taken)))


def _require(call: OnnxNode, relation: Relation, failure: Any) -> None:
    """Add a guard that requires a relation between sizes: a node is impossible without it."""
    message = (
        f"{call.source}: at other sizes its results have other axes, and node '{failure.node}' "
        f"({failure.operator}) is impossible after it: {failure.reason}"
    )
    left, sign, right = relation
    call.emitter.guards.append(Guard(left, sign, right, message))
    call.emitter.relations.append(relation)


def one_of(call: OnnxNode, bodies: Sequence[Body], condition: str | Guard) -> Sequence[Binding]:
    """The results of the first body if the condition holds, of the second otherwise."""
    made = joined_results(call, bodies, [body.run() for body in bodies], condition)
    return [held for held in made if not isinstance(held, Known)]  # builders have no known contents


def joined_results(
    call: OnnxNode, bodies: Sequence[Body], results: Sequence[Sequence[Binding]],
    condition: str | Guard,
) -> Sequence[Result]:  # fmt: skip
    """The merged results of both bodies, selected by the condition."""
    if len(results[0]) != len(results[1]):
        raise Unsupported(f"branches with {len(results[0])} and {len(results[1])} results")
    if any(isinstance(held, Broken) for result in results for held in result):
        return [Broken() for _ in results[0]]  # the failures inside are recorded
    final: list[Result | None] = [_common_contents(call, bodies, pair) for pair in zip(*results)]
    indices = [index for index, known in enumerate(final) if known is None]
    forms, owners = [], []
    tensors: list[list[str]] = [[], []]
    for index in indices:
        left, right = (result[index] for result in results)
        elements = elements_of(bodies[0].emitter, left) + elements_of(bodies[1].emitter, right)
        form = common_form(
            kind_of(bodies[0].emitter, left), kind_of(bodies[1].emitter, right), elements
        )
        forms.append(form)
        owners += [index] * width(form)
        for body, held, names in zip(bodies, (left, right), tensors):
            names += tensors_of(body, held, form)
    types = [[b.emitter.types[n] for n in names] for b, names in zip(bodies, tensors)]
    _expect_alike(call, owners, *types)
    kinds = [_either(call, bodies, left, right) for left, right in zip(*types)]
    made = _region(call, bodies, tensors, kinds, condition)
    for index, form in zip(indices, forms):
        final[index] = rebuild(form, made)
    return [held for held in final if held is not None]


def _region(
    call: OnnxNode, bodies: Sequence[Body], tensors: Sequence[list[str]],
    kinds: Sequence[TensorType], condition: str | Guard,
) -> list[str]:  # fmt: skip
    """Add a node that holds both bodies and return its results."""
    captures = list(dict.fromkeys(name for body in bodies for name in body.captures))
    for body in bodies:
        _take(body, captures)
    graphs = [body.graph(names) for body, names in zip(bodies, tensors)]
    region = BranchRegion(graphs[0], graphs[1], condition if isinstance(condition, Guard) else None)
    given = [condition] if isinstance(condition, str) else []
    return call.region(BRANCH, [*given, *captures], kinds, region)


def _common_contents(
    call: OnnxNode, bodies: Sequence[Body], pair: Sequence[Binding]
) -> Known | None:
    """The contents of a result if they are known and equal in both bodies."""
    left, right = (
        body.emitter.known.get(held) if isinstance(held, str) else None
        for body, held in zip(bodies, pair)
    )
    if left is None or right is None or left.type != right.type:
        return None
    items = list(zip(left.array.flat, right.array.flat))
    if not all(isinstance(item, (Size, int, numpy.integer)) for both in items for item in both):
        return left if left.array.tobytes() == right.array.tobytes() else None
    sizes = []
    for one, other in items:
        size = _same_size(call, bodies, (as_size(one), as_size(other)))
        if size is None:
            return None
        sizes.append(size)
    return Known(Known.sizes(sizes, left.dtype).array.reshape(left.array.shape), left.dtype)


def _take(body: Body, captures: Sequence[str]) -> None:
    """Give a branch the captured values of both as inputs, in one order."""
    for value in captures:
        body.outside(value)
    own = body.emitter.captured
    body.emitter.captured = {value: own[value] for value in captures}


def _condition(call: OnnxNode) -> str:
    kind = call.type(0)
    if kind.dtype != boolean:
        raise Unsupported(f"a condition of type {kind}")
    return call.emit("reshape", call.input(0), shape=()) if kind.rank else call.input(0)


def _expect_alike(
    call: OnnxNode, indices: Sequence[int], left: Sequence[TensorType], right: Sequence[TensorType]
) -> None:
    """Raise Unlike if results differ in type, rank or length; `indices` are results by tensor."""
    pairs = list(zip(indices, left, right))
    for _, one, other in pairs:
        if one.dtype != other.dtype:
            raise Unlike(f"its branches give {one.dtype} and {other.dtype}", differing="types")
    ranks = [(one.rank, other.rank) for _, one, other in pairs]
    unlike = [index for index, (one, other) in zip(indices, ranks) if one != other]
    if unlike:
        first, second = next((one, other) for one, other in ranks if one != other)
        raise Unlike(
            f"its branches give results with {first} and {second} axes, and the branch is "
            "selected at run time", None, unlike,
        )  # fmt: skip
    if call.scope.may_decide_ranks:
        unlike = [index for index, one, other in pairs if _are_lengths(one, other)]
        if unlike:
            problem = "its branches give shapes of different lengths"
            raise Unlike(problem, None, unlike, "lengths")


def _are_lengths(left: TensorType, right: TensorType) -> bool:
    """Whether two vectors of integers differ in length, as shapes of different ranks do."""
    if left.rank != 1 or not left.dtype.is_integer:
        return False
    one, other = left.shape[0].constant, right.shape[0].constant
    return one is not None and other is not None and one != other and max(one, other) <= MOST_AXES


def _either(
    call: OnnxNode, bodies: Sequence[Body], left: TensorType, right: TensorType
) -> TensorType:
    """The type of a merged result; a size that may differ becomes a new dim."""
    shape = []
    for pair in zip(left.shape, right.shape):
        same = _same_size(call, bodies, pair)
        if same is not None:
            shape.append(same)
        else:
            outside = all(size.symbols <= set(call.emitter.box.names) for size in pair)
            where = [bounds(size, body.emitter.box) for size, body in zip(pair, bodies)]
            shape.append(_fresh(call, where, pair if outside else None))
    return TensorType(left.dtype, tuple(shape))


def _same_size(call: OnnxNode, bodies: Sequence[Body], pair: tuple[Size, Size]) -> Size | None:
    """The size that both bodies have, as one expression; None if sizes differ."""
    if not all(size.symbols <= set(call.emitter.box.names) for size in pair):
        return None
    if call.proved(pair[0], "==", pair[1]):
        return pair[0]
    for body, other in zip(bodies, reversed(pair)):  # equal in this body, so `other` holds in both
        if prove(pair[0], "==", pair[1], body.emitter.box) is Truth.PROVED:
            return other
    return None


def _fresh(call: OnnxNode, where: Sequence[Interval], sizes: tuple[Size, Size] | None) -> Size:
    """A new dim for a size that is one of two, by the branch that runs."""
    low = max(min(w.lo or 0 for w in where), 0)
    highs = [w.hi for w in where]
    high = None if None in highs else max(h for h in highs if h is not None)
    dim = call.dim("size", low, high)
    if sizes is not None:
        call.emitter.constrain(maximum(*sizes) - dim, dim - minimum(*sizes))
    return dim
