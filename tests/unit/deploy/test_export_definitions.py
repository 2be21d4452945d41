"""Promise: exported definitions with recursion and `while` have the bits of the model's own calls;
structures are arrays in the numbering of `ad.Structure`, and arrays that fit no structure are
errors."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anydim as ad
from tests.unit.deploy.kinds import Inputs, floats
from tests.unit.deploy.test_export import CC
from tests.unit.deploy.test_export_regions import (
    SANITIZERS,
    assert_same_bits,
    in_turns,
    outcome,
)

pytestmark = pytest.mark.skipif(
    CC is None or shutil.which("make") is None, reason="there is no C compiler, or no make"
)

TREE = """
type Tree { leaf(float(D) x); node(Tree left, Tree right) }
def total(Tree t) -> (s) {
  match t {
    leaf(x) { s(d) = x(d) }
    node(left, right) { a = total(left)  b = total(right)  s(d) = a(d) * 0.5 + b(d) }
  }
}
"""
BUSH = """
type Bush { bush(float x, Bush(K) children) }
def weight(Bush b, float scale) -> (w) {
  match b { bush(x, children) { below = weight(children, scale)  w = x  w += scale * below(k) } }
}
"""
LIST = """
type List<A> { nil; cons(A head, List<A> tail) }
def horner(List<float> l, float x) -> (y) { y = evaluated(l, 0.0, x) }
def evaluated(List<float> l, float sum, float x) -> (y) {
  match l { nil { y = sum } cons(c, rest) { next = sum * x + c  y = evaluated(rest, next, x) } }
}
"""
COLLATZ = """
def collatz(int64(N) x) -> (count) { count(i) = one(x(i)) }
def one(int64 start) -> (count) {
  x = start
  count = 0
  while x > 1 { x = x % 2 == 0 ? x // 2 : 3 * x + 1  count = count + 1 }
}
"""
FIB = """
def fib(int64 n; size depth = 20) -> (f) {
  if n < 2 { f = n } else {
    a = fib(n - 1)
    b = fib(n - 2)
    f = a + b
  }
}
"""


def compiled(text: str, name: str, folder: Path) -> ad.Model:
    (folder / "text.tc").write_text(text, "utf-8")
    return ad.compile(f"{folder / 'text.tc'}:{name}")


# ---- random structures: a node is part of later nodes only ---------------------------------------


def trees(random: np.random.Generator, leaves: int) -> tuple[Any, Inputs]:
    nodes = 2 * leaves if leaves else 0
    left, right = (
        np.array([random.integers(0, leaves + n) for n in range(nodes)], np.int64) for _ in "lr"
    )
    roots = random.integers(0, leaves + nodes, 5 if leaves else 0)
    x = floats(random, leaves, 3)
    given = ad.Structure({"leaf": {"x": x}, "node": {"left": left, "right": right}}, roots)
    return {"t": given}, {"x": x, "left": left, "right": right, "roots": roots}


def bushes(random: np.random.Generator, nodes: int) -> tuple[Any, Inputs]:
    counts = [int(random.integers(0, 1 + min(n, 3))) for n in range(nodes)]
    parts = [random.integers(0, n, count) for n, count in enumerate(counts)]
    children = np.concatenate([np.zeros(0, np.int64), *parts])
    offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)
    x, roots = floats(random, nodes), np.arange(nodes, dtype=np.int64)
    scale = np.array(0.25, np.float32)
    given = ad.Structure({"bush": {"x": x, "children": (children, offsets)}}, roots)
    arrays = {"x": x, "children": children, "offsets": offsets, "roots": roots, "scale": scale}
    return {"b": given, "scale": scale}, arrays


def lists(random: np.random.Generator, nodes: int) -> tuple[Any, Inputs]:
    tail = np.array([random.integers(0, n + 1) for n in range(nodes)], np.int64)  # 0 is nil
    head, roots = floats(random, nodes), np.arange(nodes + 1, dtype=np.int64)
    x = np.array(0.75, np.float32)
    given = ad.Structure({"cons": {"head": head, "tail": tail}}, roots)
    return {"l": given, "x": x}, {"head": head, "tail": tail, "roots": roots, "x": x}


KINDS: dict[str, tuple[str, str, Callable[[np.random.Generator, int], tuple[Any, Inputs]]]] = {
    "tree": (TREE, "total", trees),
    "bush": (BUSH, "weight", bushes),
    "list": (LIST, "horner", lists),
}


def _of_arrays(model: ad.Model, given: Any, **arrays: np.ndarray) -> dict[str, np.ndarray]:
    """The call with the structure of these arrays."""
    made: dict[str, np.ndarray] = model(**given)
    return made


@pytest.mark.parametrize("name", KINDS)
def test_structures_are_arrays(name: str, tmp_path: Path) -> None:
    text, entry, draw = KINDS[name]
    model, random = compiled(text, entry, tmp_path), np.random.default_rng(3)
    program = in_turns(model, tmp_path / "made", threads=2, code="llvm")
    for size in (0, 1, 2, 7, 17, 40):
        given, arrays = draw(random, size)
        assert_same_bits(partial(_of_arrays, model, given), program, arrays)


@pytest.mark.slow
def test_arrays_that_fit_no_structure_are_errors(tmp_path: Path) -> None:
    """Numbers outside of the nodes, cycles, offsets that fall: with sanitizers, in any place."""
    random = np.random.default_rng(4)
    for name, (text, entry, draw) in KINDS.items():
        folder = tmp_path / name
        folder.mkdir()
        program = in_turns(compiled(text, entry, folder), folder / "made", SANITIZERS)
        for wrong in (-1, -(2**62), 2**62, 10**6, 12):
            _, arrays = draw(random, 6)
            for key, array in arrays.items():
                if array.dtype == np.int64 and len(array):
                    spoiled = array.copy()
                    spoiled[random.integers(len(array))] = wrong
                    done = outcome(program, {**arrays, key: spoiled})
                    assert done.returncode in (0, 1), (name, key, wrong, done.stderr)


@pytest.mark.parametrize("wrong", [-1, 10**6])
def test_the_error_names_the_cause(wrong: int, tmp_path: Path) -> None:
    program = in_turns(compiled(TREE, "total", tmp_path), tmp_path / "made", code="llvm")
    _, arrays = trees(np.random.default_rng(5), 3)
    done = outcome(program, {**arrays, "left": np.full_like(arrays["left"], wrong)})
    assert done.returncode == 1
    assert b"the number of a node or an offset is out of its range" in done.stderr


def test_loops_that_data_ends(tmp_path: Path) -> None:
    model = compiled(COLLATZ, "collatz", tmp_path)
    program = in_turns(model, tmp_path / "made", threads=2, code="llvm")
    for x in ([], [1], [27, 0, 1, 97], range(1, 60)):
        assert_same_bits(model, program, {"x": np.array(x, np.int64)})


def test_recursion_beyond_its_bound_is_an_error(tmp_path: Path) -> None:
    model = compiled(FIB, "fib", tmp_path)
    program = in_turns(model, tmp_path / "made", code="llvm")
    for n in (-1, 0, 1, 2, 13, 20, 21, 40, 2**40):
        assert_same_bits(model, program, {"n": np.array(n)})
    done = outcome(program, {"n": np.array(40)})
    assert done.returncode == 1 and b"(error " in done.stderr
