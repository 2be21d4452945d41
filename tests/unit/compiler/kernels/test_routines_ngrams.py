"""Promise: sequences are counted as the standard counts them; no table leads out of bounds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from anydim.base.dtypes import DTYPES, int64
from anydim.base.errors import GraphError
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.routines.ngrams import NGRAM_COUNTS
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.routine_running import Running, same

BOX = Box.of(*(Dim(name, 0, 4096) for name in ("n", "m", "a", "b", "c")))
MACHINE = Machine(vector_bytes=64, registers=32)


def counting(dtype=int64, **attributes) -> Running:
    shapes = ["n m", "a", "b", "b", "c"]
    dtypes = [dtype, *[int64] * 4]
    types = [
        TensorType(d, tuple(as_size(part) for part in shape.split()))
        for d, shape in zip(dtypes, shapes)
    ]
    attributes = {"count": as_size(6), "shortest": 1, "longest": 2, "skips": 0, **attributes}
    return Running(NGRAM_COUNTS, types, BOX, MACHINE, **attributes)


# the trie of 1, 2, 5, 1 2, 2 2, 2 5: node 0 leads by 1, 2, 5 to 1, 2, 3; then come the pairs
TABLES = [
    np.array([0, 3, 4, 6, 6, 6, 6, 6]), np.array([1, 2, 5, 2, 2, 5]),
    np.array([1, 2, 3, 4, 5, 6]), np.array([-1, 0, 1, 2, 3, 4, 5]),
]  # fmt: skip
SEQUENCES = [(1,), (2,), (5,), (1, 2), (2, 2), (2, 5)]


def environment(x, tables=TABLES):
    n, m = x.shape
    return {"n": n, "m": m, "a": len(tables[0]), "b": len(tables[1]), "c": len(tables[3])}


@pytest.mark.parametrize("skips", [0, 1, 5])
@pytest.mark.parametrize(("shortest", "longest"), [(1, 1), (1, 2), (2, 2), (3, 2)])
def test_counts(shortest, longest, skips):
    running = counting(shortest=shortest, longest=longest, skips=skips)
    for n, m in [(0, 3), (3, 0), (1, 1), (4, 9)]:
        x = np.random.default_rng(m).choice([1, 2, 5, 7, -3], (n, m))
        right = np.zeros((n, 6), np.float32)
        for row, result in zip(x.tolist(), right):
            found = Counter((v,) for v in row) if shortest == 1 <= longest else Counter()
            for step in range(1, skips + 2):
                if shortest <= 2 <= longest:
                    found.update(zip(row, row[step:]))
            result[:] = [found[sequence] for sequence in SEQUENCES]
        given = [x, *TABLES]
        same(running.expected(given, environment(x)), [right])
        for compiled in (False, True):
            same(running(given, environment(x), 2, compiled), [right])


def test_every_integer_type():
    for name in ("int8", "int32", "uint8", "uint16"):
        running = counting(DTYPES[name])
        x = np.array([[1, 2, 2, 5]], name)
        (found,) = running([x, *TABLES], environment(x), compiled=True)
        assert found.tolist() == [[1, 2, 1, 1, 1, 1]]


def test_wrong_tables_stay_inside():
    random = np.random.default_rng(0)
    x = random.integers(0, 4, (3, 12))
    running = counting(longest=4, skips=1)
    for _ in range(60):
        sizes = random.integers(0, 5, 3)
        tables = [random.integers(-9, 9, sizes[k]) for k in (0, 1, 1, 2)]
        running([x, *tables], environment(x, tables))


def test_misuse():
    with pytest.raises(GraphError, match="not a matrix of integers"):
        counting(DTYPES["float32"])
