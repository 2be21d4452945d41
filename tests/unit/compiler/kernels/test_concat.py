"""Ranges: concatenations are a loop for each part, right at every size and split."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import DType, boolean, float32, float64, uint8
from anydim.compiler.kernels.concat import concat_template as ranges
from anydim.compiler.kernels.ir_text import print_kernel
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.rows import pointwise
from anydim.compiler.kernels.rows import row_template as rows
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import Group, TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.launching import Prepared, once_for_each_target

TEMPLATES = (ranges.TEMPLATE, rows.TEMPLATE, pointwise.TEMPLATE)
BOX = Box.of(*(Dim(name, 0, 5000) for name in "RPNC"))
TWO = """def two(T(R,P,C) a, T(R,N,C) b) -> (y) {
  y(r,k,c) = k < P ? (a(r,k,c) else 0) : (b(r, k - P, c) else 0)
    where r in 0:R, k in 0:P + N, c in 0:C
}"""
TURNED = """def turned(T(R,P,C) a, T(N,R,C) b) -> (y) {
  y(r,k,c) = k < P ? (a(r,k,c) else 0) : (b(k - P, r, c) else 0)
    where r in 0:R, k in 0:P + N, c in 0:C
}"""
TURNED_BLOCKS = """def blocks(T(R,P,C,D) a, T(N,R,C,D) b) -> (y) {
  y(r,k,c,d) = k < P ? (a(r,k,c,d) else 0) : (b(k - P, r, c, d) else 0)
    where r in 0:R, k in 0:P + N, c in 0:C, d in 0:D
}"""  # c and d are one loop in both parts, with k in the first alone
LAST = """def last(T(R,P) a, T(R,N) b, T(R,C) c) -> (y) {
  y(r,k) = k < P ? (a(r,k) else 0) : k < P + N ? (b(r, k - P) else 0) : (c(r, k - P - N) else 0)
    where r in 0:R, k in 0:P + N + C
}"""
SCALED = """def scaled(T(P,C) a, T(N,C) b, T(C) s) -> (y, z) {
  both(k,c) = k < P ? (a(k,c) else 0) : (b(k - P, c) else 0)
    where k in 0:P + N, c in 0:C
  y(k,c) = both(k,c) * s(c)
  z(k,c) = k < P ? both(k,c) : both(k,c) + 1
}"""
SUMMED = """def summed(T(R,P) a, T(R,N) b) -> (y) {
  y(r) +=! k < P ? (a(r,k) else 0) : (b(r, k - P) else 0)
    where r in 0:R, k in 0:P + N
}"""
Meaning = Callable[..., tuple[np.ndarray, ...]]


def scaled(a: np.ndarray, b: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, ...]:
    both = np.concatenate([a, b])
    return both * s, np.concatenate([a, b + 1])


CASES: dict[str, tuple[str, tuple[str, ...], Meaning]] = {
    "two": (TWO, ("R P C", "R N C"), lambda a, b: (np.concatenate([a, b], 1),)),
    "turned": (
        TURNED,
        ("R P C", "N R C"),
        lambda a, b: (np.concatenate([a, b.transpose(1, 0, 2)], 1),),
    ),
    "turned_blocks": (
        TURNED_BLOCKS,
        ("R P C 3", "N R C 3"),
        lambda a, b: (np.concatenate([a, b.transpose(1, 0, 2, 3)], 1),),
    ),
    "last": (LAST, ("R P", "R N", "R C"), lambda *x: (np.concatenate(x, 1),)),
    "scaled": (SCALED, ("P C", "N C", "C"), scaled),
}
LETTERS = {float32: "float", float64: "double", uint8: "uint8"}


@once_for_each_target
def prepared(name: str, vector_bytes: int, dtype: DType = float32) -> Prepared:
    text, shapes, _ = CASES[name]
    return Prepared(group(text, shapes, dtype), TEMPLATES, BOX, Machine(vector_bytes, 16))


def group(text: str, shapes: tuple[str, ...], dtype: DType) -> Group:
    definition = parse_definition(text.replace("T(", f"{LETTERS[dtype]}("))
    types = [
        TensorType(dtype, tuple(as_size(int(s) if s.isdigit() else s) for s in shape.split()))
        for shape in shapes
    ]
    return instantiate(definition, types, box=BOX)


def check(name: str, made: Prepared, env: dict[str, int], dtype: DType, *how: object) -> None:
    _, shapes, meaning = CASES[name]
    random = np.random.default_rng(0)
    arrays = [
        (random.random([int(s) if s.isdigit() else env[s] for s in shape.split()]) * 99).astype(
            dtype.numpy
        )
        for shape in shapes
    ]
    for found, want in zip(made.outputs(arrays, env, *how), meaning(*arrays), strict=True):
        np.testing.assert_array_equal(found, want)


def sizes(lanes: int) -> list[dict[str, int]]:
    some = ((2, 3, 1, 5), (0, 3, 1, 5), (3, 0, 2, 1), (2, 5, 0, lanes), (1, 0, 0, 3), (2, 2, 2, 0),
            (3, lanes - 1, 1, lanes + 1), (2, 1, lanes, 4 * lanes), (1, 4, 3, 131),
            (7, 1, 1, 1), (5, 16, 2, 16), (5, 16, 17, 1))  # fmt: skip
    return [dict(zip("RPNC", each)) for each in some]


@pytest.mark.parametrize("vector_bytes", (16, 64))
@pytest.mark.parametrize("name", CASES)
def test_every_access_is_near_its_tensor(name: str, vector_bytes: int) -> None:
    made = prepared(name, vector_bytes)
    assert made.template.name == "concat"
    for env in sizes(vector_bytes // 4):
        check(name, made, env, float32, 2, False)


@pytest.mark.parametrize("dtype", (float32, float64, uint8))
@pytest.mark.parametrize("name", CASES)
def test_compiled(name: str, dtype: DType) -> None:
    made = prepared(name, 64, dtype)
    for env in (*sizes(64 // dtype.bytes), {"R": 2, "P": 700, "N": 3, "C": 40}):
        for parts in (1, 3):
            check(name, made, env, dtype, parts, True)


def test_ranges_of_a_few_elements_are_a_vector_each() -> None:
    made = prepared("last", 64, uint8)
    whole = 6 if made.machine.max_lanes == 16 else 0  # what longer ranges end with is as long then
    text = print_kernel(made.launch.kernel)
    assert text.count(": 16 if ") == 6 + whole  # a load and a store of each range


def test_a_copy_between_reflected_ends_asks_once_a_row() -> None:
    """Rows may leave the tensor as far as is known, the lanes of the middle may not."""
    text = """def pad(float(N,C) x) -> (y) {
      y(r,k) = k < 20 ? (x(N - r,20 - k) else 0) : (x(N - r, k - 20) else 0)
        where r in 0:N, k in 0:C
    }"""
    made = Prepared(group(text, ("N C",), float32), TEMPLATES, BOX, Machine(64, 32))
    assert made.template.name == "concat"
    middle = print_kernel(made.launch.kernel).rpartition("if v")[0].rpartition("for c")[2]
    assert "iota" not in middle, "no mask for its lanes"
    x = np.arange(5 * 70, dtype=np.float32).reshape(5, 70)
    (found,) = made.outputs([x], {"N": 5, "C": 70, "R": 0, "P": 0}, 1, False)
    turned = np.concatenate([np.zeros((1, 70), np.float32), x[:0:-1]])
    np.testing.assert_array_equal(found[:, 20:], turned[:, :50])


def test_what_neighbours_share_is_read_once_for_all_of_a_vector() -> None:
    """Within a range a quotient lies in its axis, and vectors begin where it repeats."""
    text = """def pairs(float(N,C) x, float(N,H) s) -> (y) {
      y(r,k) = k < 64 ? (s(r, k // 2) else 0) * (x(r, k // 2 * 2 + 1 - k % 2) else 0) : x(r,k)
        where r in 0:N, k in 0:C
    }"""
    box = Box.of(Dim("N", 0, 9))
    kinds = [TensorType(float32, (as_size("N"), as_size(n))) for n in (100, 32)]
    made = Prepared(
        instantiate(parse_definition(text), kinds, box=box), TEMPLATES, box, Machine(64, 32)
    )
    assert made.template.name == "concat"
    assert "[[" not in print_kernel(made.launch.kernel), "nothing is gathered"
    random = np.random.default_rng(3)
    x, s = random.random((5, 100), np.float32), random.random((5, 32), np.float32)
    (found,) = made.outputs([x, s], {"N": 5}, 1, False)
    swapped = x[:, :64].reshape(5, 32, 2)[:, :, ::-1] * s[:, :, None]
    np.testing.assert_array_equal(found[:, :64], swapped.reshape(5, 64))
    np.testing.assert_array_equal(found[:, 64:], x[:, 64:])


@pytest.mark.parametrize("vector_bytes", (16, 64))
def test_a_reduction_over_parts_asks_before_it_loads(vector_bytes: int) -> None:
    """A thousand elements of the first part lie far before the second tensor."""
    made = Prepared(
        group(SUMMED, ("R P", "R N"), float32), TEMPLATES, BOX, Machine(vector_bytes, 16)
    )
    assert made.template.name == "rows"
    for env in ({"R": 2, "P": 1000, "N": 3}, {"R": 3, "P": 0, "N": 700}, {"R": 1, "P": 9, "N": 0}):
        a, b = (np.ones((env["R"], env[n]), np.float32) for n in "PN")
        (found,) = made.outputs([a, b], {**env, "C": 1}, 1, False)
        np.testing.assert_array_equal(found, np.full(env["R"], env["P"] + env["N"]))


def test_flags_and_integers_are_joined_too() -> None:
    g = ad.Builder()
    n, m = g.dim("n", 0, 300), g.dim("m", 0, 300)
    flags = [g.input(f"f{i}", boolean, (2, size)) for i, size in enumerate((n, m))]
    g.output("y", g.concat(*flags, axis=1))
    model = ad.compile(g)
    for sizes_ in ((0, 0), (1, 0), (0, 1), (65, 3), (3, 200)):
        arrays = [np.arange(2 * s).reshape(2, s) % 3 == 0 for s in sizes_]
        np.testing.assert_array_equal(model(*arrays)["y"], np.concatenate(arrays, 1))


PARTS = ((16, 17), (40, 3000), (4000, 5000), (65, 32), (16, 16), (8, 40))  # constant lengths


def test_concatenations_of_constant_parts_share_kernels() -> None:
    g = ad.Builder()
    rows, cases = g.dim("rows", 0, 50), [(parts, rest) for parts in PARTS for rest in ((), (3,))]
    for number, (lengths, rest) in enumerate(cases):
        shapes = [(rows, length, *rest) for length in lengths]
        parts = [g.input(f"x{number}_{i}", float32, shape) for i, shape in enumerate(shapes)]
        g.output(f"y{number}", g.concat(*parts, axis=1))
    model = ad.compile(g)
    assert len(model.program.sites) == len(cases)
    assert len({site.kernel for site in model.program.sites}) == 4
    generator = np.random.default_rng(3)
    for count in (0, 1, 7):
        given = [
            [generator.random((count, length, *rest), np.float32) for length in lengths]
            for lengths, rest in cases
        ]
        found = model(*(part for parts in given for part in parts))
        for number, parts in enumerate(given):
            np.testing.assert_array_equal(found[f"y{number}"], np.concatenate(parts, 1))


@pytest.mark.parametrize("dtype", [float32, uint8], ids=str)
@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_pads_are_copies_between_a_few_elements(mode: str, dtype: DType) -> None:
    """Sides that are known go element by element; others may be longer than what they surround."""
    g = ad.Builder("pads")
    n, c = g.dim("n", 0, 500), g.dim("c", 0, 500)
    x = g.input("x", dtype, (n, c))
    g.output("y", g.pad(x, before=(1, 2), after=(2, 1), mode=mode))
    g.output("z", g.pad(x, before=(0, 0), after=(0, c - 1), mode=mode))
    model = ad.compile(g.graph())
    assert "concat(" in str(model.explain(details=True))
    for shape in ((3, 3), (4, 64), (3, 67), (5, 200), (70, 3)):
        array = np.arange(shape[0] * shape[1]).reshape(shape).astype(dtype.numpy)
        y, z = model(array).values()
        np.testing.assert_array_equal(y, np.pad(array, ((1, 2), (2, 1)), mode))
        np.testing.assert_array_equal(z, np.pad(array, ((0, 0), (0, shape[1] - 1)), mode))
    with pytest.raises(ad.DimError, match="pad"):
        model(np.zeros((0, 5), dtype.numpy))
