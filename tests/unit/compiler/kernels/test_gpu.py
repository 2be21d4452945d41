"""Promise: kernels of groups are right at every size: the evaluator finds no race in them."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest

import anydim.compiler.ops  # noqa: F401  fills the registry of operators
from anydim.base import settings
from anydim.base.dtypes import DType, bfloat16, float16, float32, float64, int32
from anydim.compiler.graph.operator import operator
from anydim.compiler.kernels.attention import attention_template as host_attention
from anydim.compiler.kernels.gpu import (
    gpu_attention,
    group_rows,
    library_matmul,
    tensor_core_matmul,
    tiled_matmul,
)
from anydim.compiler.kernels.gpu.gpu_attention import Running
from anydim.compiler.kernels.gpu.gpu_matmul import product_form
from anydim.compiler.kernels.gpu.group_rows import Teams
from anydim.compiler.kernels.gpu.tensor_core_matmul import Fragments
from anydim.compiler.kernels.gpu.tiled_matmul import Tiles
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.schedule import parse_schedule, print_schedule
from anydim.lang.tree import Cast, Expr, Group, Read, TensorType
from anydim.lang.tree.affine import reads, rewrite
from anydim.sizes import Box, Dim, parse
from tests.kernel_targets import needs_device
from tests.unit.compiler.kernels import attention_cases
from tests.unit.compiler.kernels.convolution_cases import BOX as IMAGES
from tests.unit.compiler.kernels.convolution_cases import Case, check, convolved
from tests.unit.compiler.kernels.launching import Prepared

BOX = Box.of(Dim("m", 0, 512), Dim("n", 0, 512), Dim("k", 0, 512), Dim("b", 0, 64))
MACHINE = Machine(vector_bytes=4, registers=32)
SMALL = Tiles(rows=4, columns=6, depth=3, part_rows=2, part_columns=3)
SIZES = [
    (0, 3, 2, 1),
    (1, 1, 1, 1),
    (3, 0, 2, 2),
    (2, 3, 0, 1),
    (5, 7, 4, 2),
    (4, 6, 3, 1),
    (9, 13, 7, 1),
]
ON_DEVICE = [*SIZES, (65, 130, 33, 2), (64, 64, 16, 1), (127, 61, 97, 1)]


def group_of(name: str, *shapes: str, dtype: DType = float32, **attributes: object) -> Group:
    types = [TensorType(dtype, tuple(parse(p) for p in shape.split())) for shape in shapes]
    return operator(name).instantiate(types, attributes, BOX)


def sizes_of(m: int, n: int, k: int, b: int) -> dict[str, int]:
    return {"m": m, "n": n, "k": k, "b": b}


def softmax(x: np.ndarray) -> np.ndarray:
    made = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
    return made / made.sum(-1, keepdims=True)


def erf_half(x: np.ndarray) -> np.ndarray:
    """The share of a normal distribution below x."""
    return np.vectorize(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)), otypes=[float])(x)


def drawn(group: Group, env: dict[str, int]) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    made = []
    for tensor in group.inputs:
        shape = [size.evaluate(env) for size in tensor.type.shape]
        exact = tensor.type.dtype.is_integer
        data = random.integers(-9, 9, shape) if exact else random.standard_normal(shape)
        made.append(data.astype(tensor.type.dtype.numpy))
    return made


PRODUCTS = {
    "plain": ("m k", "k n"),
    "batched": ("b m k", "b k n"),
    "shared": ("b m k", "k n"),
    "vector": ("k", "k n"),
    "columns apart": ("m k", "b k n"),
}


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("shapes", PRODUCTS.values(), ids=list(PRODUCTS))
@pytest.mark.parametrize("dtype", [float32, int32], ids=str)
def test_products(shapes: tuple[str, str], dtype: DType) -> None:
    group = group_of("matmul", *shapes, dtype=dtype)
    made = Prepared(group, [tiled_matmul.TEMPLATE], BOX, MACHINE, schedule=SMALL)
    for sizes in SIZES:
        env = sizes_of(*sizes)
        a, b = drawn(group, env)
        (found,) = made.outputs([a, b], env, parts=2)
        exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)  # sums of a few floats


@needs_device
@pytest.mark.slow
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_products_on_a_device(dtype: DType) -> None:
    group = group_of("matmul", "b m k", "k n", dtype=dtype)
    with settings.override(target="opencl"):
        made = Prepared(group, [tiled_matmul.TEMPLATE], BOX, MACHINE)
        for sizes in ON_DEVICE:
            env = sizes_of(*sizes)
            a, b = drawn(group, env)
            (found,) = made.outputs([a, b], env, compiled=True)
            exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
            bound = 1e-4 if dtype == float32 else 1e-12  # of sums of 100 products
            np.testing.assert_allclose(found, exact, rtol=bound, atol=bound)


WARPS = replace(MACHINE, warps=True, tf32=True)
ONE_WARP = Fragments(rows=16, columns=16, depth=16, part_rows=16, part_columns=16)
TWO_WARPS = Fragments(rows=16, columns=16, depth=16, part_rows=16, part_columns=8)
NARROW = [float16, bfloat16]
# of the sum of all |a * b|: both factors rounded to 11 bits; else sums of float32 alone
APART = {float32: 2.0**-10, float16: 2.0**-20, bfloat16: 2.0**-20}


def halved(group: Group, dtype: DType) -> Group:
    """The group with factors of 16 bits, which are converted where they are multiplied."""
    if dtype == float32:
        return group

    def wide(expr: Expr) -> Expr | None:
        return Cast(float32, expr) if isinstance(expr, Read) and expr.tensor in given else None

    given = {tensor.name for tensor in group.inputs}
    changed = [
        s.with_body(rewrite(s.body, wide)) if s.combine == "add" and len(reads(s.body)) == 2 else s
        for s in group.statements
    ]
    inputs = [replace(t, type=replace(t.type, dtype=dtype)) for t in group.inputs]
    return replace(group, statements=tuple(changed), inputs=tuple(inputs))


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("shapes", PRODUCTS.values(), ids=list(PRODUCTS))
@pytest.mark.parametrize("dtype", [float32, *NARROW], ids=str)
def test_products_by_warps(shapes: tuple[str, str], dtype: DType) -> None:
    group = halved(group_of("matmul", *shapes), dtype)
    schedule = TWO_WARPS if dtype == float32 else ONE_WARP
    made = Prepared(group, [tensor_core_matmul.TEMPLATE], BOX, WARPS, schedule=schedule)
    for sizes in ((0, 3, 2, 1), (3, 4, 0, 1), (5, 16, 24, 2), (17, 19, 20, 1)):
        env = sizes_of(*sizes)  # copies are of 16 bytes where rows begin at multiples of that
        a, b = drawn(group, env)
        (found,) = made.outputs([a, b], env)
        a, b = a.astype(np.float64), b.astype(np.float64)
        bound = APART[dtype] * np.matmul(abs(a), abs(b))
        assert (abs(found - np.matmul(a, b)) <= bound).all()


def test_products_by_warps_of_swapped_factors() -> None:
    group = halved(group_of("matmul", "m k", "k n"), float16)

    def turned(expr: Expr) -> Expr | None:
        if not isinstance(expr, Read):
            return None
        inner, outer = expr.indices[1], expr.indices[0]
        return replace(expr, indices=(inner, outer))

    inputs = tuple(replace(t, type=replace(t.type, shape=t.type.shape[::-1])) for t in group.inputs)
    changed = tuple(s.with_body(rewrite(s.body, turned)) for s in group.statements)
    group = replace(group, statements=changed, inputs=inputs)
    made = Prepared(group, [tensor_core_matmul.TEMPLATE], BOX, WARPS, schedule=ONE_WARP)
    for sizes in ((1, 1, 1, 1), (17, 5, 20, 1)):
        env = sizes_of(*sizes)
        a, b = drawn(group, env)
        (found,) = made.outputs([a, b], env)
        exact = np.matmul(a.T.astype(np.float64), b.T.astype(np.float64))
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)  # sums of a few floats


def test_what_warps_multiply() -> None:
    plain = group_of("matmul", "m k", "k n")
    for group, machine, fine in (
        (plain, WARPS, True), (plain, replace(WARPS, tf32=False), False), (plain, MACHINE, False),
        (halved(plain, float16), replace(WARPS, tf32=False), True),
        (halved(plain, float16), MACHINE, False),
        (group_of("matmul", "m k", "k n", dtype=float64), WARPS, False),
    ):  # fmt: skip
        assert (
            tensor_core_matmul.TEMPLATE.match(group, BOX, machine, frozenset()) is not None
        ) == fine


def test_products_of_16_bits_without_warps() -> None:
    group = halved(group_of("matmul", "m k", "k n"), bfloat16)
    made = Prepared(group, [tiled_matmul.TEMPLATE], BOX, MACHINE, schedule=SMALL)
    env = sizes_of(5, 7, 4, 1)
    a, b = drawn(group, env)
    (found,) = made.outputs([a, b], env)
    exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shapes", PRODUCTS.values(), ids=list(PRODUCTS))
def test_products_for_a_library(shapes: tuple[str, str]) -> None:
    """What is done where it does not take the numbers."""
    for dtype in (float32, float16):
        group = halved(group_of("matmul", *shapes), dtype)
        made = Prepared(group, [library_matmul.TEMPLATE], BOX, replace(MACHINE, library=True))
        for sizes in SIZES[:5]:
            env = sizes_of(*sizes)
            a, b = drawn(group, env)
            (found,) = made.outputs([a, b], env, parts=2)
            exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
            np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)  # sums of a few floats


def test_what_is_no_product_for_a_library() -> None:
    groups = (CONVOLUTIONS[0].group(), group_of("matmul", "m k", "k n", dtype=int32))
    product, machine = group_of("matmul", "m k", "k n"), replace(MACHINE, library=True)
    for group, given in (*((group, machine) for group in groups), (product, MACHINE)):
        assert library_matmul.TEMPLATE.match(group, BOX, given, frozenset()) is None
    assert library_matmul.TEMPLATE.match(product, BOX, machine, frozenset()) is not None


CONVOLUTIONS = [
    Case("n c h v", "5 c 3 3", {"pads": (1, 1, 1, 1)}, bias=True),
    Case("n 4 h v", "6 2 3 2", {"groups": 2, "strides": (2, 1)}),
    Case("n c h", "3 c 2", {"dilations": (2,)}),
]


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda case: case.w)
def test_convolutions(case: Case) -> None:
    made = Prepared(case.group(), [tiled_matmul.TEMPLATE], IMAGES, MACHINE, schedule=SMALL)
    for n, h, v, c in ((0, 5, 5, 1), (1, 3, 4, 1), (2, 5, 4, 3)):
        check(case, made, {"n": n, "h": h, "v": v, "c": c, "d": 1}, compiled=False)


def test_convolutions_by_warps() -> None:
    case = CONVOLUTIONS[0]
    made = Prepared(case.group(), [tensor_core_matmul.TEMPLATE], IMAGES, WARPS, schedule=ONE_WARP)
    for n, h, v in ((1, 5, 4), (2, 2, 4)):
        env = {"n": n, "h": h, "v": v, "c": 2, "d": 1}
        x, w, bias = case.arrays(env)
        (found,) = made.outputs([x, w, bias], env)
        bound = APART[float32] * convolved(abs(x), abs(w), **case.attributes) + 1e-6
        assert (abs(found - convolved(x, w, bias, **case.attributes)) <= bound).all()


def test_axes_that_are_one_walk_are_one() -> None:
    def axes(group: Group) -> tuple[int, ...]:
        form = product_form(group)
        assert form is not None
        return tuple(map(len, (form.a.axes, form.b.axes, form.batch, form.depth)))

    assert axes(group_of("matmul", "b m k", "k n")) == (1, 1, 0, 1)  # a row each of b and m
    assert axes(group_of("matmul", "b m k", "b k n")) == (1, 1, 1, 1)
    assert axes(group_of("matmul", "m k", "b k n")) == (1, 2, 0, 1)  # results of b lie apart
    assert axes(CONVOLUTIONS[0].group())[:2] == (1, 3)  # 0 around an image is seen by each


SOFTMAX = group_of("softmax", "m n", axis=-1)
FEW = Teams(items=4, each=3)
WIDE = Teams(items=64, lanes=4)
HELD = Teams(items=64, lanes=2, held=2)
ROWS = {
    "softmax": (SOFTMAX, softmax),
    "means": (group_of("reduce_mean", "b m n", axes=(1,)), lambda x: x.mean(1)),
    "largest": (group_of("reduce_max", "m n", axes=(1,)), lambda x: x.max(1, initial=-np.inf)),
    "gelu": (group_of("gelu", "m n"), lambda x: x * erf_half(x)),
    "swapped": (group_of("transpose", "b m n", perm=(2, 0, 1)), lambda x: x.transpose(2, 0, 1)),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("schedule", [FEW, WIDE, HELD], ids=["few", "wide", "held"])
def test_rows_and_elements(name: str, schedule: Teams) -> None:
    group, reference = ROWS[name]
    machine = MACHINE if schedule == FEW else WARPS
    made = Prepared(group, [group_rows.TEMPLATE], BOX, machine, schedule=schedule)
    assert bool(made.launch.in_place) == (name == "gelu")
    more = () if schedule == FEW else ((3, 32, 1, 1), (1, 67, 1, 1), (2, 256, 1, 1))
    for sizes in ((0, 3, 1, 1), (1, 1, 1, 1), (3, 0, 1, 2), (2, 13, 1, 1), (5, 7, 1, 3), *more):
        env = sizes_of(*sizes)
        (x,) = drawn(group, env)
        (found,) = made.outputs([x], env)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's mean of nothing
            expected = reference(x.astype(np.float64))
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)  # a few roundings


@needs_device
@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax", "gelu"])
def test_rows_and_elements_on_a_device(name: str) -> None:
    group, reference = ROWS[name]
    with settings.override(target="opencl"):
        made = Prepared(group, [group_rows.TEMPLATE], BOX, MACHINE)
        for sizes in ((0, 3, 1, 1), (3, 0, 1, 1), (5, 127, 1, 1), (300, 500, 1, 1)):
            env = sizes_of(*sizes)
            (x,) = drawn(group, env)
            (found,) = made.outputs([x], env, compiled=True)
            np.testing.assert_allclose(found, reference(x.astype(np.float64)), rtol=3e-6, atol=1e-6)


RUNNING = [
    case
    for case in attention_cases.CASES
    if gpu_attention.TEMPLATE.match(case.group(), attention_cases.BOX, MACHINE, frozenset())
    is not None
]


def test_most_attentions_are_taken() -> None:
    assert len(RUNNING) > len(attention_cases.CASES) * 3 // 4


# two rows and two keys of an item, columns of the result and the depth in parts; or all at a time
PARTS = Running(items=4, rows=4, keys=4, across=2, depth=16, columns=16, few=2)
WHOLE = Running(items=4, rows=2, keys=4, across=2, depth=40, columns=40, few=2)


SHORT = [case for case in RUNNING if case.name in ("narrow", "odd", "chosen", "keys as columns")]


def check_attention(case: attention_cases.Case, machine: Machine, schedule: Running) -> None:
    box = attention_cases.BOX
    made = Prepared(case.group(), [gpu_attention.TEMPLATE], box, machine, schedule=schedule)
    for queries, keys in ((0, 2), (2, 0), (1, 5), (3, 6)):
        env = {"B": 1, "H": 1 + (queries == 1), "Q": queries, "K": keys}
        arrays = case.arrays(env, 30.0 if queries == 1 else 1.0)  # the largest score moves
        (found,) = made.outputs(arrays, env)
        expected = case.expected(arrays, env)
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("case", SHORT, ids=lambda case: case.name)
def test_attention(case: attention_cases.Case) -> None:
    check_attention(case, WARPS, PARTS)


@pytest.mark.parametrize("machine", [MACHINE, WARPS], ids=["plain", "warps"])
def test_attention_of_whole_rows(machine: Machine) -> None:
    """Copies of the next keys go on beside products, or are made between them."""
    check_attention(attention_cases.BY_NAME["keys as columns"], machine, WHOLE)


@pytest.mark.slow
@pytest.mark.parametrize("case", RUNNING, ids=lambda case: case.name)
def test_all_attentions(case: attention_cases.Case) -> None:
    check_attention(case, WARPS, (PARTS, WHOLE)[RUNNING.index(case) % 2])


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("schedule", [PARTS, WHOLE], ids=["parts", "whole"])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_attention_of_16_bits(dtype: DType, schedule: Running) -> None:
    case, box = RUNNING[0], attention_cases.BOX
    group = halved(case.group(), dtype)
    assert host_attention.TEMPLATE.match(group, box, MACHINE, frozenset()) is None
    made = Prepared(group, [gpu_attention.TEMPLATE], box, WARPS, schedule=schedule)
    env = {"B": 1, "H": 2, "Q": 3, "K": 5}
    arrays = [array.astype(dtype.numpy) for array in case.arrays(env)]
    (found,) = made.outputs(arrays, env)
    expected = case.expected([array.astype(np.float32) for array in arrays], env)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_rows_of_attention_have_the_same_bits_beside_any_others() -> None:
    """Few queries have another tile, which adds up in the same order."""
    case, box = RUNNING[0], attention_cases.BOX
    made = Prepared(case.group(), [gpu_attention.TEMPLATE], box, WARPS, schedule=PARTS)
    env = {"B": 1, "H": 1, "Q": 5, "K": 7}
    queries, keys, values = case.arrays(env, 3.0)
    (whole,) = made.outputs([queries, keys, values], env)
    for row in range(5):
        alone = [queries[:, :, row : row + 1], keys, values]
        (found,) = made.outputs(alone, {**env, "Q": 1})
        np.testing.assert_array_equal(found[:, :, 0], whole[:, :, row])


@pytest.mark.parametrize(("machine", "most"), [(MACHINE, 32 << 10), (WARPS, 48 << 10)])
def test_every_attention_has_a_tile_that_fits(machine: Machine, most: int) -> None:
    """OpenCL promises 32 KiB of local memory to a group, CUDA 48 KiB."""
    for depth, width in ((1, 1), (64, 64), (80, 128), (128, 128), (200, 7), (4096, 4096)):
        group = attention_cases.simple("sized", depth=depth, width=width).group()
        launch = Prepared(group, [gpu_attention.TEMPLATE], attention_cases.BOX, machine).launch
        used = sum(array.count * array.dtype.bytes for array in launch.kernel.locals)
        assert used <= most, launch.schedule


@needs_device
@pytest.mark.slow
def test_attention_on_a_device() -> None:
    case, box = RUNNING[0], attention_cases.BOX
    with settings.override(target="opencl"):
        made = Prepared(case.group(), [gpu_attention.TEMPLATE], box, MACHINE)
        for queries, keys in ((0, 2), (2, 0), (5, 63), (7, 200)):
            env = {"B": 2, "H": 3, "Q": queries, "K": keys}
            arrays = case.arrays(env)
            (found,) = made.outputs(arrays, env, compiled=True)
            np.testing.assert_allclose(found, case.expected(arrays, env), rtol=1e-5, atol=1e-5)


def test_schedules_print_and_parse() -> None:
    assert parse_schedule(print_schedule(SMALL)) == SMALL
    assert parse_schedule(print_schedule(FEW)) == FEW
    assert parse_schedule(print_schedule(PARTS)) == PARTS
    assert parse_schedule(print_schedule(TWO_WARPS)) == TWO_WARPS
    assert (SMALL.items, ONE_WARP.items, TWO_WARPS.items) == (4, 32, 64)
