"""Writes of every k-th element: several fill a tensor together where no remainder is left out."""

import itertools

import numpy as np
import pytest

from anydim.base.dtypes import float32
from anydim.base.errors import LanguageError
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.resolve.witness import early_read
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.lang.language import check, random

SIZES = [0, 1, 2, 3, 8, 17]
BOX = Box.of(Dim("n"))


def group(text):
    return instantiate(parse_definition(text), [TensorType(float32, (as_size("n"),))], {}, BOX)


@pytest.mark.parametrize("n", SIZES)
def test_two_statements_fill_a_tensor(n):
    text = """def f(float(N) x, float(N) z) -> (y) { y(2 * i) = x(i) y(2 * i + 1) = z(i) }"""
    x, z = random(n), random(n) + 1
    check(text, np.stack([x, z], 1).reshape(2 * n), x, z)


@pytest.mark.parametrize("n", SIZES)
def test_rows_of_which_every_third_is_another(n):
    text = """def f(float(N,M) x) -> (y) {
      y(3 * i + 2,j) = 3 * x(i,j)
      y(3 * i,j) = x(i,j)
      y(3 * i + 1,j) = 2 * x(i,j)
    }"""
    x = random(n, 4)
    expected = np.stack([x, 2 * x, 3 * x], 1).reshape(3 * n, 4)
    check(text, expected, x)


@pytest.mark.parametrize("n", SIZES)
def test_two_loops_fill_a_tensor(n):
    text = """def f(float(N) x) -> (y) {
      for t in 0:N:2 { y(t) = x(t) }
      for t in 1:N:2 { y(t) = -x(t) }
    }"""
    x = random(n)
    check(text, x * np.where(np.arange(n) % 2, -1, 1).astype(np.float32), x)


@pytest.mark.parametrize("n", SIZES)
def test_one_loop_writes_pairs(n):
    text = "def f(float(N) x) -> (y) { for t in N { y(2 * t) = x(t) y(2 * t + 1) = -x(t) } }"
    x = random(n)
    check(text, np.stack([x, -x], 1).reshape(2 * n), x)


@pytest.mark.parametrize("text", [
    "y(2 * i) = x(i)", "y(3 * i) = x(i) y(3 * i + 1) = x(i)", "y(2 * i) = x(i) y(2 * i + 2) = x(i)",
    "y(2 * i) = x(i) y(2 * i + 3) = x(i)", "y(2 * i) = x(i) y(4 * i + 1) = x(i)",
    "for t in 0:N:2 { y(t) = x(t) } for t in 1:N-2:2 { y(t) = x(t) }",
    "for t in 0:N:3 { y(t) = x(t) } for t in 1:N:3 { y(t) = x(t) }",
])  # fmt: skip
def test_a_gap_is_told(text):
    with pytest.raises(LanguageError, match="never written"):
        group(f"def f(float(N) x) -> (y) {{ {text} }}")


WRITES = [f"y({k} * i + {r}) = x(i)" for k, r in ((2, 0), (2, 1), (2, 3), (3, 0), (3, 1), (3, 2))]
WRITES += ["y(2 * i + 1) = x(i + 1) where i in 0:N-1", "y(2 * i) = x(2 * i)"]
WRITES += [f"for t in {lo}:N:{k} {{ y(t) = x(t) }}" for lo, k in ((0, 2), (1, 2), (0, 3), (2, 3))]
WRITES += ["if N > 2 { y(2 * i) = x(i) }", "for t in N { y(2 * t + 1) = x(t) }"]


@pytest.mark.slow
def test_what_is_accepted_has_no_gap():
    """Every set of up to three writes: a witness of a gap at small sizes is an error."""
    accepted = 0
    for count in (1, 2, 3):
        for chosen in list(itertools.combinations(WRITES, count))[::count]:
            try:
                made = group(f"def f(float(N) x) -> (y) {{ {' '.join(chosen)} }}")
            except LanguageError:
                continue
            accepted += 1
            assert early_read(made, BOX) is None, chosen
    assert accepted > 3
