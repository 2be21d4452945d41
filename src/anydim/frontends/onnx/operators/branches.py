"""The row of If: two graphs of which one runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from anydim.base.dtypes import boolean
from anydim.frontends.onnx.file.tensors import Unsupported
from anydim.frontends.onnx.operators.call import Body, OnnxNode
from anydim.frontends.onnx.operators.relations import opposite, relation_of
from anydim.frontends.onnx.values.held import Broken, Held
from anydim.frontends.onnx.values.kinds import elements_of, joined, kind_of, rebuilt, tensors_of
from anydim.graph.regions import BRANCH, BranchRegion
from anydim.lang.tree import TensorType
from anydim.sizes import Guard, Interval, Size, bounds, maximum, minimum


class Unlike(Unsupported):
    """Results of two branches that cannot be one value: of other ranks or element types."""


def if_(call: OnnxNode) -> Sequence[Held]:
    """A condition that is known chooses now; the other branch may be anything then.

    Where branches are unlike and a relation between sizes chooses, the one with which the rest of
    the model can be imported is what the model is, and the relation has to hold (`choices.py`).
    Elsewhere Unlike is raised: what follows goes into both branches (`graphs/apart.py`).
    """
    known = call.emitter.known.get(call.input(0))
    if known is not None and known.array.dtype != object and known.array.size == 1:
        branch = "then_branch" if bool(numpy.all(known.array)) else "else_branch"
        return call.scope.inline(call.attribute(branch))
    if call.scope.chosen is not None:
        return _only(call, call.scope.chosen)
    bodies = [call.scope.body(call.attribute(name)) for name in ("then_branch", "else_branch")]
    try:
        return one_of(call, bodies, _condition(call))
    except Unlike as reason:
        if call.scope.is_apart or relation_of(call.emitter, call.input(0)) is None:
            raise
        call.scope.choose(str(reason))


def _only(call: OnnxNode, taken: bool) -> Sequence[Held]:
    """The branch that is taken where a relation between sizes holds, or where it does not."""
    relation = relation_of(call.emitter, call.input(0))
    if relation is None:
        raise Unsupported("a condition that is no relation between sizes any more")
    left, sign, right = relation if taken else opposite(relation)
    message = (
        f"{call.source}: the model has no meaning after the branch that is taken elsewhere, whose "
        "results have other axes"
    )
    call.emitter.guards.append(Guard(left, sign, right, message))
    return call.scope.inline(call.attribute("then_branch" if taken else "else_branch"))


def one_of(call: OnnxNode, bodies: Sequence[Body], condition: str | Guard) -> Sequence[Held]:
    """The results of the first body where the condition holds, of the second elsewhere."""
    results = [body.run() for body in bodies]
    if len(results[0]) != len(results[1]):
        raise Unsupported(f"branches with {len(results[0])} and {len(results[1])} results")
    if any(isinstance(held, Broken) for result in results for held in result):
        return [Broken() for _ in results[0]]  # what is missing inside is noted there
    forms = []
    tensors: list[list[str]] = [[], []]
    for left, right in zip(*results):
        elements = elements_of(bodies[0].emitter, left) + elements_of(bodies[1].emitter, right)
        form = joined(kind_of(bodies[0].emitter, left), kind_of(bodies[1].emitter, right), elements)
        forms.append(form)
        for body, held, names in zip(bodies, (left, right), tensors):
            names += tensors_of(body, held, form)
    types = [[b.emitter.types[n] for n in names] for b, names in zip(bodies, tensors)]
    for pair in zip(*types):
        _alike(*pair)
    kinds = [_either(call, bodies, left, right) for left, right in zip(*types)]
    captures = list(dict.fromkeys(name for body in bodies for name in body.captures))
    for body in bodies:
        _take(body, captures)
    graphs = [body.graph(names) for body, names in zip(bodies, tensors)]
    region = BranchRegion(graphs[0], graphs[1], condition if isinstance(condition, Guard) else None)
    given = [condition] if isinstance(condition, str) else []
    made = call.region(BRANCH, [*given, *captures], kinds, region)
    return [rebuilt(form, made) for form in forms]


def _take(body: Body, captures: Sequence[str]) -> None:
    """Make all values that either branch reads the inputs of this one, in one order."""
    for value in captures:
        body.outside(value)
    own = body.emitter.captured
    body.emitter.captured = {value: own[value] for value in captures}


def _condition(call: OnnxNode) -> str:
    kind = call.type(0)
    if kind.dtype != boolean:
        raise Unsupported(f"a condition of type {kind}")
    return call.emit("reshape", call.input(0), shape=()) if kind.rank else call.input(0)


def _alike(left: TensorType, right: TensorType) -> None:
    """Raise Unlike for results that cannot be one value."""
    if left.dtype != right.dtype:
        raise Unlike(f"its branches give {left.dtype} and {right.dtype}")
    if left.rank != right.rank:
        raise Unlike(
            f"its branches give results with {left.rank} and {right.rank} axes, and only a run "
            "can tell which one is taken"
        )


def _either(
    call: OnnxNode, bodies: Sequence[Body], left: TensorType, right: TensorType
) -> TensorType:
    """The type of a result of either branch; a size that may differ is a new dim."""
    shape = []
    for pair in zip(left.shape, right.shape):
        outside = all(size.symbols <= set(call.emitter.box.names) for size in pair)
        if outside and call.proved(pair[0], "==", pair[1]):
            shape.append(pair[0])
        else:
            where = [bounds(size, body.emitter.box) for size, body in zip(pair, bodies)]
            shape.append(_fresh(call, where, pair if outside else None))
    return TensorType(left.dtype, tuple(shape))


def _fresh(call: OnnxNode, where: Sequence[Interval], sizes: tuple[Size, Size] | None) -> Size:
    """A dim that is one of two sizes."""
    low = max(min(w.lo or 0 for w in where), 0)
    highs = [w.hi for w in where]
    high = None if None in highs else max(h for h in highs if h is not None)
    dim = call.dim("size", low, high)
    if sizes is not None:
        call.emitter.constrain(maximum(*sizes) - dim, dim - minimum(*sizes))
    return dim
