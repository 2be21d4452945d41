"""Derivatives of definitions compared with differences of their values, in float64, by numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anydim.api.derivatives import derive_vjp
from anydim.compiler.frontends.definition import kinds_of
from anydim.compiler.frontends.definition_graph import graph_of
from anydim.compiler.graph.evaluate import bind, check_guards
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.surface.syntax import Definition

STEP = 1e-6
TOLERANCE = 2e-6  # of differences with this step, relative to the largest term


def values(definition: Definition, arrays: Sequence[Any], attributes: Mapping[str, Any]) -> list:
    """The results of a definition, evaluated by numpy with all sizes free."""
    graph = graph_of(definition, kinds_of(definition, arrays, attributes), attributes)
    given = dict(zip(graph.inputs, arrays))
    sizes = bind(graph, given)
    check_guards(graph, sizes)
    with np.errstate(all="ignore"):
        found = evaluate(graph.nodes[0].attributes["group"], given, sizes)
    return [found[name] for name in graph.outputs]


def check(
    definition: Definition,
    arrays: Sequence[np.ndarray],
    attributes: Mapping[str, Any] | None = None,
    seed: int = 0,
    run: Any = values,
) -> float:
    """Compare the derivative along random directions; returns the largest error, relative.

    `run(definition, arrays, attributes)` returns the results of a definition as a list.
    """
    attributes = attributes or {}
    rng = np.random.default_rng(seed)
    results = run(definition, arrays, attributes)
    cotangents = [
        rng.standard_normal(r.shape).astype(r.dtype) for r in results if r.dtype.kind == "f"
    ]
    vjp = derive_vjp(definition, arrays, attributes, {})
    made = run(vjp.definition, [*arrays, *cotangents], {})
    names = [parameter.name for parameter in definition.parameters]
    worst = 0.0
    for name, gradient in zip(vjp.inputs, made):
        place = names.index(name)
        assert gradient.shape == arrays[place].shape
        direction = rng.standard_normal(arrays[place].shape)
        found = float((gradient * direction).sum())
        wanted, scale = _difference(
            definition, arrays, attributes, cotangents, place, direction, run
        )
        if not np.isfinite(found) and np.isfinite(wanted):
            return float("inf")
        if np.isfinite(wanted):
            worst = max(worst, abs(found - wanted) / max(1.0, scale))
    return worst


def _difference(
    definition: Definition, arrays: Sequence[Any], attributes: Mapping[str, Any],
    cotangents: Sequence[Any], place: int, direction: Any, run: Any,
) -> tuple[float, float]:  # fmt: skip
    """The central difference along a direction, and the size of its terms."""
    total, scale = 0.0, 0.0
    for sign in (1, -1):
        moved = list(arrays)
        moved[place] = arrays[place] + sign * STEP * direction
        results = [r for r in run(definition, moved, attributes) if r.dtype.kind == "f"]
        terms = [float((r * c).sum()) for r, c in zip(results, cotangents)]
        total += sign * sum(terms)
        scale = max(scale, *(abs(term) for term in terms), 0.0) if terms else scale
    return total / (2 * STEP), scale
