"""Products of bytes are exact at every size, whatever the signs, zeros, layouts and constants.

The definitions' own meaning by numpy is the reference; integers agree bit by bit. The evaluator of
the loop IR checks every access to memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import numpy
import pytest

import anydim as ad
from anydim.base import settings
from anydim.base.dtypes import DTYPES, DType, int4, int8, uint8
from anydim.compiler.kernels.ir_text import print_kernel
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.int8.int8_form import int8_form_of
from anydim.compiler.kernels.matmul.int8.int8_template import TEMPLATE
from anydim.compiler.targets.llvm.host import this_machine
from anydim.compiler.targets.targets import target
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse
from anydim.lang.tree import Expr, Group, Literal, Read, TensorType
from anydim.lang.tree.affine import rewrite
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.launching import Prepared

BOX = Box.of(Dim("m", 0), Dim("k", 0), Dim("n", 0), Dim("p", 0))
HOST, AVX2, SSE = Machine(64, 32), Machine(32, 16), Machine(16, 16, 32 * 1024, 64 * 1024)
TILES, PICKING = Machine(64, 32, tiles=True), Machine(64, 32, permutes=True)
MACHINES = pytest.mark.parametrize(
    "machine", [HOST, AVX2, SSE, TILES], ids=["host", "avx2", "sse", "tiles"]
)
SIZES = ((0, 5, 3), (1, 0, 4), (1, 1, 1), (2, 3, 17), (7, 4, 48), (9, 66, 49), (70, 130, 101))

MATMUL = """
def product(A(M,K) a, B(K,N) b, A a_zero, B b_zero) -> (c) {
  c(m,n) +=! (int(a(m,k)) - int(a_zero)) * (int(b(k,n)) - int(b_zero))
}"""
PLAIN = "def product(A(M,K) a, B(K,N) b) -> (c) { c(m,n) +=! int(a(m,k)) * int(b(k,n)) }"
ROWS = """
def product(A(M,K) a, B(K,N) b, A(M) a_zero, B(N) b_zero) -> (c) {
  c(m,n) +=! (int(a(m,k)) - int(a_zero(m))) * (int(b(k,n)) - int(b_zero(n)))
}"""
TRANSPOSED = "def product(A(K,M) a, B(N,K) b) -> (c) { c(m,n) +=! int(a(k,m)) * int(b(n,k)) }"
BATCH = """
def product(A(M,3,K) a, B(M,K,N) b, B(M) b_zero) -> (c) {
  c(p,i,n) +=! int(a(p,i,k)) * (int(b(p,k,n)) - int(b_zero(p)))
}"""
SCALED = """
def product(A(M,K) a, B(K,N) b, A a_zero, float(N) scale, int(N) bias) -> (y) {
  t(m,n) +=! (int(a(m,k)) - int(a_zero)) * int(b(k,n))
  y(m,n) = cast<A>(int(min(max(round(float(t(m,n) + bias(n)) * scale(n)) + 3.0, 0.0), 99.0)))
}"""
WINDOWS = """
def product(A(3,K,5) a, B(K,N) b, B zero) -> (c) {
  c(i,n) +=! int(a(i,k,t)) * (int((b(k, n * 2 + t - 1) else zero)) - int(zero))
    where n in 0:N, i in 0:3, k in 0:K, t in 0:5
}"""
RUNS = "def product(A(2) a, B(K,N) b) -> (c) { c(i,n) +=! int(a(t)) * int(b(i,n + t)) }"
IMAGES = """
def product(A(3,K,3,2) a, B(K,M,N) b, A a_zero, B zero) -> (c) {
  c(i,h,w) +=! (int(a(i,k,r,s)) - int(a_zero)) * (
    int((b(k, h * 2 + r - 1, w + 2 * s - 1) else zero)) - int(zero))
    where i in 0:3, h in 0:M, w in 0:N, k in 0:K, r in 0:3, s in 0:2
}"""
TURNED = """
def product(A(3,K,3,3) a, B(2,K,M,N) b) -> (c) {
  c(p,i,h,w) +=! int(a(i,k,r,s)) * int((b(p, k, h - r + 1, w - s) else 7))
    where p in 0:2, i in 0:3, h in 0:M, w in 0:N, k in 0:K, r in 0:3, s in 0:3
}"""
PHASES = """
def product(A(5,K,3,3) a, B(P,K,M,N) b, A a_zero, B zero) -> (c) {
  c(p,i,h,w) +=! (int(a(i,k,r,s)) - int(a_zero)) * (
    int((b(p, k, h * 2 + r - 1, w * 2 + s - 1) else zero)) - int(zero))
    where p in 0:P, i in 0:5, h in 0:(M + 1) // 2, w in 0:(N + 1) // 2, k in 0:K, r in 0:3, s in 0:3
}"""
IN_PLACE = """
def product(A(3,K) a, B(2,K,M,N) b) -> (c) {
  c(p,i,h,w) +=! int(a(i,k)) * int((b(p, k, h + 0, w + 0) else 7))
    where p in 0:2, i in 0:3, h in 0:M, w in 0:N, k in 0:K
}"""
MANY_IMAGES = """
def product(A(20,K,3,3) a, B(P,K,M,N) b, A a_zero, B zero, float(P) scale) -> (y) {
  c(p,i,h,w) +=! (int(a(i,k,r,s)) - int(a_zero)) * (
    int((b(p, k, h + r - 1, w + s - 1) else zero)) - int(zero))
    where p in 0:P, i in 0:20, h in 0:M, w in 0:N, k in 0:K, r in 0:3, s in 0:3
  y(p,i,h,w) = float(c(p,i,h,w)) * scale(p)
}"""
MANY_PLACES = """
def product(A(20,K) a, B(P,K,M,N) b, A a_zero, B zero, float(P) scale) -> (y) {
  c(p,i,h,w) +=! (int(a(i,k)) - int(a_zero)) * (int(b(p,k,h,w)) - int(zero))
  y(p,i,h,w) = float(c(p,i,h,w)) * scale(p)
}"""
SIGNS = list(itertools.product((uint8, int8), repeat=2))
TEXTS = {
    "plain": PLAIN, "zeros": MATMUL, "zeros of rows": ROWS, "transposed": TRANSPOSED,
    "batch": BATCH, "scaled": SCALED, "windows": WINDOWS,
    "runs": RUNS, "images": IMAGES, "turned": TURNED, "in place": IN_PLACE,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _vectors_of_bytes(kernel_target: str) -> None:
    """OpenCL has none as wide as those of processors, and its devices are never asked for them."""
    if kernel_target == "opencl":
        pytest.skip("no vectors of 32 bytes")


def runs(machine: Machine) -> bool:
    """Whether this machine runs what is compiled for that one."""
    return not machine.tiles or target(settings.target).machine.tiles


def group_of(text: str, a: DType, b: DType, known: Mapping[str, int] | None = None) -> Group:
    """The group of a definition; sizes that are `known` are constants."""
    definition = parse(text)["product"]
    types = {"A": a, "B": b, "float": "float32", "int": "int32"}
    made = []
    for parameter in definition.parameters:
        names = [getattr(t, "name", None) or str(t.value) for t in parameter.shape]  # type: ignore[union-attr]
        sizes = [(known or {}).get(name.lower(), name.lower()) for name in names]
        made.append(TensorType(_dtype(types[parameter.type]), tuple(_size(s) for s in sizes)))
    return instantiate(definition, made, {}, BOX)


def _dtype(kind: DType | str) -> DType:
    return DTYPES[kind] if isinstance(kind, str) else kind


def _size(text: int | str):
    return as_size(int(text)) if str(text).isdigit() else as_size(text)


def arrays(group: Group, sizes: Mapping[str, int], seed: int) -> dict[str, numpy.ndarray]:
    """Random inputs, the ends of their types among them."""
    random = numpy.random.default_rng(seed)
    made = {}
    for tensor in group.inputs:
        shape = [size.evaluate(sizes) for size in tensor.type.shape]
        dtype = tensor.type.dtype
        if dtype.is_float:
            made[tensor.name] = random.uniform(0, 0.01, shape).astype(dtype.numpy)
            continue
        low, high = dtype.range if dtype.bits <= 8 else (-1000, 1000)
        values = random.integers(low, high + 1, shape)
        values = numpy.where(random.random(shape) < 0.2, low, values)
        made[tensor.name] = values.astype(dtype.numpy)
    return made


def check(
    prepared: Prepared, group: Group, sizes: Mapping[str, int],
    given: Mapping[str, numpy.ndarray] | None = None, compiled: bool = True, parts: int = 1,
) -> None:  # fmt: skip
    values = {**arrays(group, sizes, 7), **(given or {})}
    order = [values[tensor.name] for tensor in group.inputs]
    found = prepared.outputs(order, sizes, parts, compiled)
    wanted = evaluate(group, values, sizes)
    for tensor, array in zip(group.outputs, found):
        numpy.testing.assert_array_equal(array, wanted[tensor.name])


@pytest.mark.sampled(most=5)
@MACHINES
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("a", "b"), SIGNS)
def test_compiled(text: str, a: DType, b: DType, machine: Machine) -> None:
    if not runs(machine):
        pytest.skip("no tiles here")
    group = group_of(TEXTS[text], a, b)
    prepared = Prepared(group, [TEMPLATE], BOX, machine)
    for number, (m, k, n) in enumerate(SIZES):
        check(prepared, group, {"m": m, "k": k, "n": n}, parts=number % 3 + 1)


@pytest.mark.sampled("a1-b1-images", "a1-b1-runs", "a1-b1-scaled", "a1-b1-zeros of rows", most=3)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("a", "b"), [(uint8, int8), (int8, uint8)])
def test_no_access_leaves_its_memory(text: str, a: DType, b: DType) -> None:
    group = group_of(TEXTS[text], a, b)
    for machine, count in ((AVX2, 4), (TILES, 3)):
        prepared = Prepared(group, [TEMPLATE], BOX, machine)
        for m, k, n in ((0, 3, 3), (1, 1, 1), (5, 3, 9), (5, 34, 18))[:count]:
            check(prepared, group, {"m": m, "k": k, "n": n}, compiled=False, parts=2)


@pytest.mark.sampled(
    "a0-b0-windows-both", "a1-b1-scaled-b", "a1-b1-transposed-b", "a3-b3-batch-a", most=5
)
@pytest.mark.parametrize("constants", [{"a"}, {"b"}, {"a", "b"}], ids=["a", "b", "both"])
@pytest.mark.parametrize("text", ["plain", "zeros", "transposed", "scaled", "batch", "windows"])
@pytest.mark.parametrize(("a", "b"), SIGNS)
def test_constants(text: str, a: DType, b: DType, constants: set[str]) -> None:
    for known in ({"m": 3, "k": 5, "n": 50}, {"m": 20, "k": 64, "n": 7}):
        group = group_of(TEXTS[text], a, b, known)
        for machine in (HOST, TILES):
            prepared = Prepared(group, [TEMPLATE], BOX, machine, frozenset(constants))
            check(prepared, group, {}, compiled=runs(machine))


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("text", [MANY_IMAGES, MANY_PLACES], ids=["windows", "1x1"])
@pytest.mark.parametrize("constants", [frozenset(), frozenset("a")], ids=["of a call", "packed"])
def test_images_of_few_places(text: str, constants: frozenset[str]) -> None:
    group = group_of(text, int8, uint8, {"k": 6})
    for machine in (HOST, AVX2, TILES):
        prepared = Prepared(group, [TEMPLATE], BOX, machine, constants)
        check(prepared, group, {"p": 6, "m": 2, "n": 2}, compiled=False, parts=2)
        for p, m, n in (
            (0, 2, 2), (1, 1, 1), (13, 2, 2), (49, 1, 1), (5, 3, 3), (25, 1, 2), (3, 5, 5),
            (2, 0, 3), (2, 4, 6), (3, 7, 8),
        ):  # fmt: skip
            if runs(machine):
                check(prepared, group, {"p": p, "m": m, "n": n}, parts=1 + p % 3)


@pytest.mark.parametrize("text", ["plain", "scaled"])
@pytest.mark.parametrize(("a", "b"), [(uint8, int8), (uint8, uint8)])
def test_few_rows(text: str, a: DType, b: DType) -> None:
    for machine in (HOST, AVX2, TILES):
        group = group_of(TEXTS[text], a, b)
        prepared = Prepared(group, [TEMPLATE], BOX, machine)
        names = {each.name for each in prepared.launch.kernel.functions}
        vectors = not prepared.machine.max_lanes  # of any length
        assert ("few" in names) == (text == "plain" and vectors)  # else columns are summed up
        check(prepared, group, {"m": 2, "k": 6, "n": 67}, compiled=False)
        for m, k, n in ((1, 7, 1030), (4, 9, 65), (3, 4, 64), (2, 66, 2049), (3, 9, 31)):
            if runs(machine):
                check(prepared, group, {"m": m, "k": k, "n": n}, parts=m)


@pytest.mark.parametrize(("a", "b"), [(uint8, int8), (int8, uint8)])
def test_few_columns(a: DType, b: DType) -> None:
    """Half a vector of them, and one or two, whose words are summed up by vectors."""
    for machine in (HOST, AVX2):
        group = group_of(MATMUL, a, b)
        prepared = Prepared(group, [TEMPLATE], BOX, machine)
        check(prepared, group, {"m": 9, "k": 131, "n": 2}, compiled=False)
        for n in (1, 2, 3, 4, 5, 8, 9):
            for m, k in ((8, 124), (17, 128), (9, 200), (3, 300)):
                check(prepared, group, {"m": m, "k": k, "n": n}, parts=2)


def test_sums_over_nothing() -> None:
    for constants in (frozenset(), frozenset("b")):
        group = group_of(PLAIN, uint8, int8, {"k": 0, "n": 5})
        check(Prepared(group, [TEMPLATE], BOX, HOST, constants), group, {"m": 3})


def test_a_constant_without_columns() -> None:
    group = group_of(PLAIN, uint8, int8, {"k": 3, "n": 0})
    check(Prepared(group, [TEMPLATE], BOX, HOST, frozenset("b")), group, {"m": 3})


@pytest.mark.parametrize("text", [IMAGES, TURNED], ids=["images", "turned"])
def test_an_image_of_words(text: str) -> None:
    group = group_of(text, int8, uint8, {"k": 6})
    for machine in (AVX2, TILES):
        prepared = Prepared(group, [TEMPLATE], BOX, machine, frozenset("a"))
        assert "image" in {each.name for each in prepared.launch.kernel.functions}
        for m, n in ((0, 3), (1, 1), (5, 4), (2, 17), (3, 33)):
            check(prepared, group, {"m": m, "n": n}, compiled=False, parts=2)
            if runs(machine):
                check(prepared, group, {"m": m * 3, "n": n}, parts=3)


@pytest.mark.sampled(most=5)
@pytest.mark.parametrize("outside", [-128, -127, -5, -1, 3, 127])
@pytest.mark.parametrize("text", [TURNED, WINDOWS, PHASES], ids=["images", "windows", "phases"])
def test_signed_constants_outside_of_an_image(text: str, outside: int) -> None:
    """Zero points of padded convolutions; a word of them held the sign of each in the next ones."""
    group = group_of(text.replace("else zero", "else 7"), int8, int8, {"k": 6})

    def change(expr: Expr) -> Expr | None:
        if isinstance(expr, Read) and expr.default is not None:
            return replace(expr, default=Literal(outside, int8))
        return None

    statements = tuple(replace(s, body=rewrite(s.body, change)) for s in group.statements)
    group = replace(group, statements=statements)
    for machine in (HOST, AVX2):
        prepared = Prepared(group, [TEMPLATE], BOX, machine, frozenset("a"))
        for m, n in ((1, 1), (2, 17), (9, 5)):
            check(prepared, group, {"m": m, "n": n, "p": 2}, parts=2)


@pytest.mark.parametrize("step", [1, 2])
def test_rows_of_few_places_are_picked_out_of_vectors(step: int) -> None:
    text = f"""
def product(A(3,K,3,3) a, B(K,M,N) b) -> (c) {{
  c(i,h,w) +=! int(a(i,k,r,s)) * int((b(k, h + r, w * {step} + s) else 7))
    where i in 0:3, h in 0:M, w in 0:N // {2 * step}, k in 0:K, r in 0:3, s in 0:3
}}"""
    group = group_of(text, int8, uint8, {"k": 6})
    prepared = Prepared(group, [TEMPLATE], BOX, PICKING, frozenset("a"))
    assert ("permute" in print_kernel(prepared.launch.kernel)) == prepared.machine.permutes
    picks = [False] + [True] * (settings.target == "llvm" and this_machine().machine.permutes)
    for number, (m, n) in enumerate(((3, 3), (12, 4), (9, 5), (40, 4), (9, 8), (7, 12), (3, 21))):
        for compiled in picks:
            check(prepared, group, {"m": m, "n": n}, compiled=compiled, parts=1 + number % 2)


@pytest.mark.parametrize("apart", [False, True], ids=["planes", "rows of channels"])
def test_phases_of_an_image(apart: bool) -> None:
    text = PHASES
    if apart:
        text = text.replace("p, k, h * 2 + r - 1", "p, h * 2 + r - 1, k").replace("K,M,N", "M,K,N")
    group = group_of(text, int8, uint8, {"k": 6})
    for machine in (HOST, AVX2, TILES):
        prepared = Prepared(group, [TEMPLATE], BOX, machine, frozenset("a"))
        (image,) = (f for f in prepared.launch.kernel.functions if f.name.endswith("image"))
        assert "unsorted" in {parameter.name for parameter in image.parameters}
        for p, m, n in ((1, 5, 3), (3, 2, 9)):
            check(prepared, group, {"p": p, "m": m, "n": n}, compiled=False, parts=2)
        for p, m, n in (
            (0, 2, 2), (1, 0, 3), (1, 1, 1), (5, 1, 1), (40, 2, 1), (2, 33, 1), (7, 3, 4),
            (1, 9, 100), (2, 17, 13), (1, 31, 33), (3, 8, 7),
        ):  # fmt: skip
            if runs(machine):
                check(prepared, group, {"p": p, "m": m, "n": n}, parts=1 + p % 3)


@pytest.mark.parametrize("row", [-1, 0, 1])
def test_an_only_row_of_windows_outside_of_the_image(row: int) -> None:
    """A convolution of images of one row, padded above: memory before the image was read."""
    text = f"""
def product(A(5,K,3) a, B(P,K,1,N) b) -> (c) {{
  c(p,i,w) +=! int(a(i,k,s)) * int((b(p, k, {row}, w + s - 1) else 0))
    where p in 0:P, i in 0:5, w in 0:N, k in 0:K, s in 0:3
}}"""
    group = group_of(text, int8, int8, {"k": 6})
    for machine in (HOST, AVX2, TILES):
        prepared = Prepared(group, [TEMPLATE], BOX, machine, frozenset("a"))
        check(prepared, group, {"p": 3, "n": 5}, compiled=False)
        for p, n in ((1, 1), (64, 2), (5, 33)):
            if runs(machine):
                check(prepared, group, {"p": p, "n": n}, parts=2)


@pytest.mark.parametrize(("kernel", "pads"), [
    ((2, 2), (0, 1, 1, 1)), ((3, 2), (0, 1, 2, 1)), ((3, 3), (0, 1, 2, 1)),
    ((3, 2), (1, 1, 1, 1)), ((3, 2), (2, 1, 0, 1)),
])  # fmt: skip
def test_rows_of_windows_are_summed_over_beyond_the_image(
    kernel: tuple[int, int], pads: tuple[int, int, int, int]
) -> None:
    """A depthwise convolution of images of one row, whose result has one row: rows of the windows
    that lie behind the image were read from the next channel."""
    random = numpy.random.default_rng(0)
    weights = random.integers(-20, 20, (3, 1, *kernel)).astype(numpy.int8)
    g = ad.Builder("depthwise")
    x = g.input("x", ad.uint8, (g.dim("n", 0, 4), 3, 1, g.dim("w", 0, 40)))
    zeros = (g.constant(numpy.uint8(0)), g.constant(numpy.int8(0)))
    g.output("y", g.conv_integer(x, g.constant(weights), zeros[0], zeros[1], groups=3, pads=pads))
    model = ad.compile(g, threads=1)
    for count, width in ((0, 1), (1, 1), (2, 5), (1, 33)):
        given = random.integers(0, 256, (count, 3, 1, width)).astype(numpy.uint8)
        top, left, bottom, right = pads
        padded = numpy.pad(given.astype(int), ((0, 0), (0, 0), (top, bottom), (left, right)))
        windows = numpy.lib.stride_tricks.sliding_window_view(padded, kernel, (2, 3))
        expected = numpy.einsum("nchwrs,crs->nchw", windows, weights[:, 0].astype(int))
        numpy.testing.assert_array_equal(model(x=given)["y"], expected)


def test_windows_of_one_place_are_no_windows() -> None:
    prepared = Prepared(group_of(IN_PLACE, int8, uint8), [TEMPLATE], BOX, AVX2)
    assert int8_form_of(prepared.group, frozenset()).columns == ()


@pytest.mark.parametrize(("a", "b"), SIGNS)
def test_runs_of_columns_beside_a_constant(a: DType, b: DType) -> None:
    group = group_of(RUNS, a, b)
    prepared = Prepared(group, [TEMPLATE], BOX, HOST, frozenset("a"))
    for k, n in ((0, 3), (1, 2), (5, 18), (3, 34)):
        check(prepared, group, {"k": k, "n": n})


def test_narrower_types() -> None:
    for a, b in ((int4, uint8), (uint8, int4), (int4, int4)):
        for constants in (frozenset(), frozenset("b")):
            group = group_of(PLAIN, a, b, {"k": 37, "n": 50})
            prepared = Prepared(group, [TEMPLATE], BOX, HOST, constants)
            check(prepared, group, {"m": 5})


@pytest.mark.parametrize("other", [
    "def product(A(M,K) a, float(K,N) b) -> (c) { c(m,n) +=! float(a(m,k)) * b(k,n) }",
    "def product(A(M,K) a, B(K,N) b, A(K) z) -> (c) { "
    "c(m,n) +=! (int(a(m,k)) - int(z(k))) * int(b(k,n)) }",
    "def product(A(M,K) a) -> (c) { c(m) +=! int(a(m,k)) }",
    "def product(A(M,K) a, B(K,N) b) -> (c) { c(m,n) max=! int(a(m,k)) * int(b(k,n)) }",
    "def product(A(M,K) a, B(K) b) -> (c) { c(m) +=! int(a(m,k)) * int(b(k)) }",
], ids=["floats", "a zero along k", "one factor", "another reduction", "a vector"])  # fmt: skip
def test_what_it_does_not_take(other: str) -> None:
    assert TEMPLATE.match(group_of(other, uint8, int8), BOX, HOST, frozenset()) is None
