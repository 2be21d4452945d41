"""Promise: every operator record compiles in every element type that its definition takes.

The inputs of a case that share a type are given another one, if the definition takes it; results
are those of the case's reference on the same numbers. Beside the records, the operators of
tests/conformance/test_element_types.py come as nodes of files.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import DTYPES, DType, is_float
from anydim.base.errors import UserError
from anydim.compiler.graph.operator import OPERATORS
from tests.ops.cases import CASES
from tests.ops.test_operators import SIZES, build, feed

UNITS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-20, "float64": 2.0**-20}
OTHERS = {"float": ("float16", "bfloat16", "float64"), "int": ("int32", "int64", "int8", "int16"),
          "uint": ("uint8", "uint16", "uint32", "uint64")}  # fmt: skip
QUICK = ("lstm", "gru", "rnn", "matmul", "conv", "softmax", "layer_norm", "cum_sum", "top_k",
         "reduce_mean", "einsum", "attention", "resize", "gemm")  # fmt: skip
EXACT = (
    "bit_cast", "random", "unique", "sort", "round", "floor", "ceil", "quant", "mod", "arg_",
    "top_k", "non_max_suppression_fill",
)  # fmt: skip
"""What is in the names of operators that rounded numbers take elsewhere: they are compiled and
called, and their results not compared."""


OWN = ("pow", "max_pool", "roi_align")
"""Operators whose references have limits of the integers of their cases, or overflow in others."""


def cases() -> list[tuple[str, int, str, str]]:
    """(operator, number of its case, a type of its inputs, the type in its place)."""
    found = []
    for name, own in CASES.items():
        for number, case in enumerate(own):
            types = dict.fromkeys(text.partition("[")[0] for text in case.inputs)
            for before in types:
                if DTYPES[before].stored or (name in OWN and DTYPES[before].is_integer):
                    continue
                found += [
                    (name, number, before, after)
                    for after in OTHERS.get(DTYPES[before].kind, ())
                    if after != before
                ]
    return found


ALL = cases()
FAST = [
    each for each in ALL
    if each[0] in QUICK and each[1] == 0 and each[3] in ("float16", "bfloat16", "int32")
]  # fmt: skip
REST = [pytest.param(*each, marks=pytest.mark.slow) for each in ALL if each not in FAST]


def with_type(name: str, number: int, before: str, after: str):
    """The graph of a case in another type; None where its definition does not take it."""
    case = CASES[name][number]
    inputs = tuple(
        text.replace(before, after, 1) if text.partition("[")[0] == before else text
        for text in case.inputs
    )
    attributes = {
        key: DTYPES[after] if isinstance(value, DType) and value.name == before else value
        for key, value in case.attributes.items()
    }
    changed = replace(case, inputs=inputs, attributes=attributes)
    try:
        return changed, build(name, changed)
    except UserError:
        return None


@pytest.mark.sampled(most=11)
@pytest.mark.parametrize(("name", "number", "before", "after"), [*FAST, *REST])
def test_a_record_in_another_type(name, number, before, after):
    made = with_type(name, number, before, after)
    if made is None:
        return  # its definition does not take the type
    case, graph = made
    model = ad.compile(graph)
    compared = not any(part in name for part in EXACT)
    for n, m in (SIZES[0], SIZES[2], SIZES[4]):
        sizes = {"n": n, "m": m}
        values = feed(graph, case, OPERATORS[name].domain, sizes)
        if name == "batch_norm":
            values["x4"] = np.abs(values["x4"])
        bound = {d for i in graph.inputs for s in graph.types[i].shape for d in s.symbols}
        model.set_sizes(**{dim: size for dim, size in sizes.items() if dim not in bound})
        try:
            got = model(**values)
        except ad.DimError:
            continue
        exact = [v.astype(np.float64) if is_float(v.dtype) else v for v in values.values()]
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = case.reference(*exact, n=n, m=m)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for output, right in zip(graph.outputs, expected, strict=True):
            array = got[output]
            assert array.dtype == graph.types[output].dtype.numpy
            if compared:
                _compare(array, right, sizes)


def _compare(made: np.ndarray, right: np.ndarray, sizes: dict[str, int]) -> None:
    """By units of the result's type; integers wrap as numpy's do."""
    if not np.ndim(right):  # of nothing, references that are the standard's say 0
        right = np.broadcast_to(right, made.shape)
    assert made.shape == np.shape(right), sizes
    if made.dtype.kind in "iub":
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(made, np.asarray(right).astype(made.dtype), str(sizes))
        return
    unit = max(UNITS.get(made.dtype.name, 0), float(ml_dtypes.finfo(made.dtype).eps))
    with np.errstate(over="ignore"):  # what the type has not is infinite in it
        right = np.asarray(right).astype(made.dtype).astype(np.float64)
    finite = np.abs(right[np.isfinite(right)])
    largest = float(finite.max()) if finite.size else 0.0
    np.testing.assert_allclose(
        made.astype(np.float64), right, rtol=8 * unit, atol=8 * unit * max(largest, 1.0),
        err_msg=str(sizes),
    )  # fmt: skip
