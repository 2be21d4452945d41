"""Promise: results that no cache holds go past all of them, with the same bits: whole vectors at
multiples of their bytes (the evaluator watches that), and nothing where caches hold them."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import DType, float16, float32, float64, uint8
from anydim.compiler.kernels.ir_text import print_kernel
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.templates import TEMPLATES
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.launching import Prepared, once_for_each_target

BOX = Box.of(Dim("R", 0, 5000), Dim("C", 0, 5000))
KEPT = 4096  # bytes
CASES = {
    "one row": "y(r,c) = -x(r,c)",
    "rows": "y(r,c) = x(r,c) + b(c)",
    "two results": "y(r,c) = x(r,c) - b(c)  z(r,c) = y(r,c) * x(r,c)",
    "wider": "y(r,c) = double(x(r,c)) + b(c)",
    "ranges": "y(r,k) = k < C ? (x(r,k) else 0) : (b(k - C) else 0) where r in 0:R, k in 0:2*C",
}
LETTERS = {float32: "float", uint8: "uint8", float16: "half", float64: "double"}


@once_for_each_target
def prepared(name: str, dtype: DType, vector_bytes: int, kept: int) -> Prepared:
    kind = LETTERS[dtype]
    results = "y, z" if "z(" in CASES[name] else "y"
    text = f"def f({kind}(R,C) x, {kind}(C) b) -> ({results}) {{ {CASES[name]} }}"
    types = [TensorType(dtype, tuple(map(as_size, shape))) for shape in ("RC", "C")]
    group = instantiate(parse_definition(text), types, box=BOX)
    machine = Machine(vector_bytes, 32 if vector_bytes == 64 else 16, llc_bytes=kept)
    return Prepared(group, TEMPLATES, BOX, machine)


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("vector_bytes", (16, 64))
@pytest.mark.parametrize("dtype", (float32, uint8), ids=str)
@pytest.mark.parametrize("name", CASES)
def test_bits_are_the_same(name: str, dtype: DType, vector_bytes: int) -> None:
    past, plain = (prepared(name, dtype, vector_bytes, kept) for kept in (KEPT, 0))
    assert " past]" in print_kernel(past.launch.kernel)
    assert " past]" not in print_kernel(plain.launch.kernel)
    random = np.random.default_rng(3)
    for rows, columns in ((0, 5), (3, 0), (1, 300), (3, 512), (5, 509), (2, 1041), (40, 64)):
        env = {"R": rows, "C": columns}
        x = (random.random((rows, columns)) * 99).astype(dtype.numpy)
        b = (random.random(columns) * 99).astype(dtype.numpy)
        for parts, compiled in ((1, False), (3, False), (2, True)):
            wanted = plain.outputs([x, b], env, parts, compiled)
            for found, want in zip(past.outputs([x, b], env, parts, compiled), wanted):
                assert found.tobytes() == want.tobytes()


def test_what_takes_long_or_is_small_is_written_once() -> None:
    heavy = "def f(float(R,C) x) -> (y) { y(r,c) = exp(exp(x(r,c))) }"
    light = "def f(float(R,C) x) -> (y) { y(r,c) = -x(r,c) }"
    small = Box.of(Dim("R", 0, 10), Dim("C", 0, 10))
    types = [TensorType(float32, (as_size("R"), as_size("C")))]
    for text, box, expected in ((heavy, BOX, False), (light, small, False), (light, BOX, True)):
        group = instantiate(parse_definition(text), types, box=box)
        made = Prepared(group, TEMPLATES, box, Machine(64, 32, llc_bytes=KEPT))
        assert (" past]" in print_kernel(made.launch.kernel)) is expected


@pytest.mark.parametrize("threads", (1, 2))
def test_large_results_of_models(threads: int) -> None:
    """What follows reads what was written, in its place or another thread's part of it."""
    g = ad.Builder("large")
    x, b = g.input("x", "float32", ["n", "m"]), g.input("b", "float32", ["m"])
    y = g.add(x, b)
    g.output("y", y)
    g.output("z", g.concat(y, g.mul(y, 2.0), axis=1))
    model = ad.compile(g, threads=threads)
    for rows, columns in ((3, 5), (4099, 2048), (2600, 3001)):
        given = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
        shift = np.arange(columns, dtype=np.float32)
        found = model(given, shift)
        wanted = given + shift
        np.testing.assert_array_equal(found["y"], wanted)
        np.testing.assert_array_equal(found["z"][:, :columns], wanted)
        np.testing.assert_array_equal(found["z"][:, columns:], 2 * wanted)
