"""Promise: random programs have the types and results that the language says, by two ways to it.

The resolver and its evaluator are one, the interpreter of the surface tree the other; they share
nothing but the tree.
"""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anydim.base.dtypes import float64
from anydim.base.errors import UserError
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.printer import print_definition
from anydim.lang.surface.syntax import Definition
from tests.interpreter.run import run
from tests.unit.lang.generated import programs
from tests.unit.lang.language import known

TYPES = ("float64", "float32", "float16", "int64", "int32", "int8", "uint8", "uint64")
CLOSE = {"rtol": 1e-4, "atol": 1e-4, "equal_nan": True}


def arguments(n: int, m: int, q: int, kind: str) -> list[np.ndarray]:
    """Arrays for the head of a random program: a(N, M), b(M), ids(N), s, e(...q, M)."""
    chance = np.random.default_rng([n, m, q])
    shapes = [(n, m), (m,), (n,), (), (*(2,) * q, m)]
    low = 0 if kind.startswith("uint") else -4
    drawn = [chance.integers(low, 9, shape) for shape in shapes]
    if kind.startswith("float"):
        drawn = [array / 2 for array in drawn]
    kinds = [kind, kind, "int64", kind, kind]
    return [array.astype(kind) for array, kind in zip(drawn, kinds)]


@settings(
    max_examples=150, deadline=None, database=None, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(programs, st.integers(0, 4), st.integers(1, 4), st.integers(0, 2), st.sampled_from(TYPES))
def test_random_programs(program: Definition, n: int, m: int, q: int, kind: str) -> None:
    arrays = arguments(n, m, q, kind)
    try:
        group = instantiate(program, [known(array) for array in arrays], {})
        tensors = {p.name: array for p, array in zip(program.parameters, arrays)}
        (wanted,) = evaluate(group, tensors, {}, float64).values()
    except UserError:
        return
    (found,) = run(program, arrays).values()
    text = f"{print_definition(program)} at {kind}, n = {n}, m = {m}, {q} more"
    assert found.kind == group.outputs[0].type.dtype.name, text
    assert found.values.shape == wanted.shape, text
    with np.errstate(all="ignore"):
        assert np.allclose(found.values.astype(float), wanted.astype(float), **CLOSE), text
