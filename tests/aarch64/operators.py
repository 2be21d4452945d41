"""Operators of the library, one case of each, compiled and called at a few sizes.

What they mean is `evaluate`'s result, numpy's, in the same process.
"""

from __future__ import annotations

import sys
import time
import traceback

import numpy

import anydim as ad
from anydim.base.dtypes import convert_array
from anydim.base.errors import UserError
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.graph.operator import OPERATORS
from tests.ops.cases import CASES
from tests.ops.test_operators import build, feed

SIZES = ((7, 2), (0, 1), (9, 5), (1, 1))


def main() -> int:
    """Print what is wrong; the number of wrong operators."""
    start, wrong, calls = time.perf_counter(), 0, 0
    for name, cases in CASES.items():
        try:
            calls += _judge(name, build(name, cases[0]))
        except AssertionError as problem:
            wrong += 1
            print(f"{name}: {str(problem).strip()[:500]}", flush=True)
        except Exception:  # one operator says nothing of the next
            wrong += 1
            print(f"{name}: {traceback.format_exc()[-800:]}", flush=True)
    print(f"{len(CASES) - wrong} passed, {wrong} failed, {calls} calls, "
          f"{time.perf_counter() - start:.0f} s")  # fmt: skip
    return wrong


def _judge(name: str, graph: Graph) -> int:
    """How many calls agree; AssertionError for one that does not."""
    model, calls = ad.compile(graph), 0
    names = {spec.name for spec in model.inputs}
    for n, m in SIZES:
        values = feed(graph, CASES[name][0], OPERATORS[name].domain, {"n": n, "m": m})
        if name == "batch_norm":
            values["x4"] = abs(values["x4"])
        values = {key: value for key, value in values.items() if key in names}
        model.set_sizes()
        told = {s for spec in model.inputs for size in spec.shape for s in size.symbols}
        untold = {k: v for k, v in (("n", n), ("m", m)) if k in model.dims.names and k not in told}
        model.set_sizes(**untold)
        try:
            with numpy.errstate(all="ignore"):
                right = evaluate(graph, values)
        except UserError:  # it needs a dim that no input tells, or refuses these sizes
            continue
        if any(numpy.asarray(value).dtype == object for value in right.values()):
            continue  # sizes that no input of the case tells
        came = model(**values)
        for key, value in right.items():
            kind = graph.types[key]
            one, other = came[key], value
            if not kind.dtype.is_native:
                wide = numpy.dtype(numpy.float64)
                one, other = (convert_array(numpy.asarray(a), wide) for a in (one, other))
            unit = 2e-2 if kind.dtype.bytes < 4 and kind.dtype.is_float else 2e-5
            numpy.testing.assert_allclose(one, other, rtol=unit, atol=unit, err_msg=f"{n} {m}")
        calls += 1
    return calls


if __name__ == "__main__":
    sys.exit(min(main(), 100))
