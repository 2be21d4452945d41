"""Promise: calls that divide integers by a size of 0 are refused, whatever a program is made of.

ONNX files: tests/models/test_sizes_as_data.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import anydim as ad
from anydim.base.errors import InputError

OPERATORS = {"div": "/", "floor_div": "//", "mod": "%", "fmod": ""}
NONE = np.zeros(0, np.float32)


def defined(body, **options):
    head = "def share(int64(N) a, float(M) b) -> (q)"
    return ad.define(f"{head} {{ {body} }}", **options).share


@pytest.mark.parametrize("operator", ["/", "//", "%"])
def test_definitions(operator):
    share, a = defined(f"q(i) = a(i) {operator} M"), np.arange(5)
    with pytest.raises(InputError, match="share: integer division by M, which is 0"):
        share(a, NONE)
    assert share(a[:0], NONE).shape == (0,)
    expected = a % 3 if operator == "%" else a // 3
    assert np.array_equal(share(a, np.zeros(3, np.float32)), expected)


def test_a_size_that_is_fixed():
    share = defined("q(i) = a(i) / M", fixed={"M": 0})
    with pytest.raises(InputError, match="share: integer division by 0"):
        share(np.arange(5), NONE)
    assert share(np.arange(0), NONE).shape == (0,)


def test_an_expression_of_sizes_and_a_place():
    share = defined("q(i) = a(i // (M - 2)) where i in 0:N")
    with pytest.raises(InputError, match="division by M - 2, which is 0"):
        share(np.arange(3), np.zeros(2, np.float32))
    assert share(np.arange(3), np.zeros(3, np.float32)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("body", [
    "q(i) = M > 0 ? a(i) / M : 0",
    "q(i) = a(i)\n if M > 0 { q(i) = a(i) / M }",
    "q(i) = 0 where exists a(i)\n for t in 0:M { q(i) += a(i) / M }",
    "q(i) = a(i) * int64(float(i) / M > 1)",
])  # fmt: skip
def test_what_a_size_of_0_does_not_reach_is_no_error(body):
    assert defined(body)(np.arange(3), NONE).shape == (3,)


@pytest.mark.parametrize("body", [
    "s = int64(0)\n for t in 0:N { s += a(t) / M }\n q(i) = a(i) + s",
    "q(i) = a(i)\n q(i) += N % M + a(i) % M",
])  # fmt: skip
def test_loops_that_run(body):
    with pytest.raises(InputError):
        defined(body)(np.arange(3), NONE)
    assert defined(body)(np.arange(0), np.ones(1, np.float32)).shape == (0,)


def model(operator, lo=0):
    g = ad.Builder("scorer")
    n, m = g.dim("n"), g.dim("m", lo)
    x, z = g.input("x", "int64", (n,)), g.input("z", "float32", (m,))
    g.output("y", getattr(g, operator)(x, g.size_tensor(values=(m,), scalar=True)))
    g.output("all", g.reduce_sum(z, axes=(0,)))
    return ad.compile(g)


@pytest.mark.parametrize("operator", OPERATORS)
def test_builders(operator, tmp_path: Path):
    made = model(operator)
    made.save(tmp_path / "scorer.anydim")
    for each in (made, ad.load(tmp_path / "scorer.anydim")):
        with pytest.raises(InputError, match=f"scorer: {operator}: integer division by m"):
            each(x=np.arange(5), z=NONE)
        assert each(x=np.arange(0), z=NONE)["y"].shape == (0,)
        expected = np.arange(5) % 2 if "mod" in operator else np.arange(5) // 2
        assert np.array_equal(each(x=np.arange(5), z=np.ones(2, np.float32))["y"], expected)


def test_a_branch_is_refused_where_it_is_taken():
    g = ad.Builder("scorer")
    n, m = g.dim("n"), g.dim("m")
    x, z, c = g.input("x", "int64", (n,)), g.input("z", "float32", (m,)), g.input("c", "bool", ())
    size = g.size_tensor(values=(m,), scalar=True)
    g.output("y", g.branch(c, lambda b: b.div(x, size), lambda b: b.neg(x)))
    g.output("all", g.reduce_sum(z, axes=(0,)))
    made = ad.compile(g)
    with pytest.raises(InputError, match="scorer/branch: div: integer division by m"):
        made(x=np.arange(3), z=NONE, c=np.array(True))
    assert made(x=np.arange(3), z=NONE, c=np.array(False))["y"].tolist() == [0, -1, -2]


def test_a_definition_in_a_graph():
    g = ad.Builder("scorer")
    n, m = g.dim("n"), g.dim("m")
    x, z = g.input("x", "int64", (n,)), g.input("z", "float32", (m,))
    g.output("y", g.call(defined("q(i) = a(i) / M"), x, z))
    made = ad.compile(g)
    with pytest.raises(InputError, match="integer division by m, which is 0"):
        made(x=np.arange(3), z=NONE)
    assert made(x=np.arange(3), z=np.ones(1, np.float32))["y"].tolist() == [0, 1, 2]
