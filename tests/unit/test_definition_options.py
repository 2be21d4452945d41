"""Promise: a function shows its schedules and why; a user may give others, right at all sizes, and
one that would be wrong is refused with the reason."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace

import numpy
import pytest

import anydim as ad
from anydim.compiler.kernels.matmul.schedules import Contraction
from anydim.compiler.kernels.rows.row_template import Rows
from anydim.compiler.kernels.templates import TEMPLATES
from anydim.compiler.passes.options import WHOLE, KernelOptions, given_options, parse_texts

MATMUL = "def matmul(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SOFTMAX = """def softmax(float(...p,C) x) -> (y) {
  top(...p)     max=! x(...p,c)
  e(...p,c)         = exp(x(...p,c) - top(...p))
  total(...p)   +=!   e(...p,c)
  y(...p,c)         = e(...p,c) / total(...p)
}"""
SCAN = """def scan(float(T,B,C) x) -> (y) {
  for t in 0:T { y(t,b,c) = x(t,b,c) + (y(t-1,b,c) else 0) }
}"""


def draw(*shape: int, seed: int = 0) -> numpy.ndarray:
    return numpy.random.default_rng((seed, *shape)).standard_normal(shape, numpy.float32)


def test_options_of_the_first_definition_of_a_process() -> None:
    """No template is imported before it."""
    text = f"import anydim as ad; ad.define({MATMUL!r}, options='matmul: contraction(rows=6)')"
    subprocess.run([sys.executable, "-c", text], check=True)


# ---- shown -------------------------------------------------------------------------------------


def test_what_was_chosen_and_why() -> None:
    options = ad.define(MATMUL).matmul.options
    assert list(options) == ["C"]
    assert isinstance(options["C"], Contraction)
    assert str(options).startswith("matmul.C: contraction(rows=")
    scan = str(ad.define(SCAN).scan.options)
    assert "parallel=b" in scan
    assert "y(t - 1, b, c) is read 1 iteration after it is written as y(t, b, c)" in scan


@pytest.mark.parametrize("text", (MATMUL, SOFTMAX, SCAN))
def test_what_is_shown_can_be_given(text: str) -> None:
    (name,) = ad.define(text)
    shown = str(ad.define(text)[name].options)
    again = ad.define(text, options=shown)[name].options
    assert str(again) == shown


# ---- given -------------------------------------------------------------------------------------


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize(
    "wish",
    [
        "contraction(rows=4, vectors=2)", "contraction(rows=1, vectors=1, unroll=1)",
        "contraction(block_k=8)", "contraction(lanes=4)", "contraction(rows=13)",
        "contraction(block_rows_bytes=1, block_columns_bytes=1)", "contraction(unroll=8)",
    ],
)  # fmt: skip
def test_a_tile_holds_at_all_sizes(wish: str) -> None:
    matmul = ad.define(MATMUL, options={"matmul": wish}).matmul
    for m, k, n in [(0, 3, 2), (1, 1, 1), (5, 0, 3), (17, 33, 65), (64, 200, 48), (3, 513, 130)]:
        a, b = draw(m, k), draw(k, n, seed=1)
        numpy.testing.assert_allclose(matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)
    given = wish[len("contraction(") : -1].split(", ")
    assert all(part in str(matmul.options) for part in given)


@pytest.mark.parametrize("wish", ("rows(lanes=4)", "rows(unroll=1)", "rows(lanes=1, unroll=1)"))
def test_rows_of_another_width(wish: str) -> None:
    softmax = ad.define(SOFTMAX, options=f"softmax.y: {wish}").softmax
    for shape in ((0, 4), (3, 1), (2, 5, 33), (7, 100)):
        x = draw(*shape)
        e = numpy.exp(x - x.max(-1, keepdims=True, initial=-numpy.inf))
        wanted = e / e.sum(-1, keepdims=True)
        numpy.testing.assert_allclose(softmax(x), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "wish",
    [
        "loop_nest(lanes=1)",
        "loop_nest(parallel=none)",
        "loop_nest(parallel=c)",
        "loop_nest(parallel=b, block=1)",
        "loop_nest(parallel=c, block=16, unroll=1)",
    ],
)
def test_ordered_loops_another_way(wish: str) -> None:
    scan = ad.define(SCAN, options={"scan": {"y": wish}}, threads=2).scan
    for shape in ((0, 3, 4), (5, 0, 3), (5, 2, 33), (40, 3, 64)):
        x = draw(*shape)
        numpy.testing.assert_allclose(scan(x), numpy.cumsum(x, 0), rtol=1e-4, atol=1e-4)


CONV = """def conv(float(N,C,H,W) x, float(O,C,KH,KW) w) -> (y) {
  y(n,o,h,v) +=! (x(n,c,h + kh - 1,v + kw - 1) else 0) * w(o,c,kh,kw)
    where n in 0:N, c in 0:C, h in 0:H, v in 0:W
}"""
POOL = """def pool(float(N,C,H,W) x) -> (y) {
  y(n,c,h,v) max=! x(n,c,2 * h + a,2 * v + b) where a in 0:3, b in 0:3
}"""
BYTES = "def bytes(int8(M,K) A, int8(K,N) B) -> (C) { C(m,n) +=! int32(A(m,k)) * int32(B(k,n)) }"
TURNED = "def turned(float(N,M) x) -> (y) { y(i,j) = x(j,i) }"


def convolved(x: numpy.ndarray, w: numpy.ndarray) -> numpy.ndarray:
    """A convolution of windows as high as wide, in float64, that keeps the size."""
    taps, border = w.shape[2], w.shape[2] // 2
    wide = numpy.pad(x.astype(numpy.float64), [(0, 0), (0, 0), (border,) * 2, (border,) * 2])
    height, width = x.shape[2:]
    return sum(
        numpy.einsum("nchw,oc->nohw", wide[:, :, a : a + height, b : b + width], w[:, :, a, b])
        for a in range(taps)
        for b in range(taps)
    )


@pytest.mark.parametrize(
    "wish",
    [
        "convolution(rows=5, vectors=1)", "convolution(lanes=4, unroll=8, chunk_k=8)",
        "convolution(block_tiles=3, block_panels=9)",
        pytest.param("convolution(rows=16, vectors=6, lanes=32)", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_convolutions_another_way(wish: str) -> None:
    conv = ad.define(CONV, options={"conv": wish}).conv
    cases = (((1, 3, 5, 6), 4), ((2, 8, 9, 33), 20), ((0, 3, 4, 4), 2), ((1, 1, 1, 1), 1))
    for shape, rows in cases:
        x, w = draw(*shape), draw(rows, shape[1], 3, 3, seed=1)
        numpy.testing.assert_allclose(conv(x, w), convolved(x, w), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "wish", ("window_reduction(lanes=2)", "window_reduction(lanes=64, vectors=8)")
)
def test_windows_another_way(wish: str) -> None:
    pool = ad.define(POOL, options={"pool": wish}).pool
    for shape in ((1, 3, 7, 9), (2, 3, 33, 70), (0, 3, 5, 5), (1, 1, 3, 3)):
        x = draw(*shape)
        windows = numpy.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::2, ::2]
        numpy.testing.assert_array_equal(pool(x), windows.max((-1, -2)))


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize(
    "wish",
    [
        "int8(rows=5, vectors=1)", "int8(lanes=4, unroll=8)", "int8(vectors=3)",
        "int8(rows=16, vectors=4)",
        pytest.param("int8(rows=16, lanes=32)", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_products_of_bytes_another_way(wish: str) -> None:
    product = ad.define(BYTES, options={"bytes": wish}).bytes
    for m, k, n in [(1, 1, 1), (5, 7, 9), (17, 33, 65), (0, 3, 2), (3, 0, 2), (1, 3, 257)]:
        chance = numpy.random.default_rng((m, k, n))
        a, b = (chance.integers(-128, 128, s).astype(numpy.int8) for s in ((m, k), (k, n)))
        numpy.testing.assert_array_equal(product(a, b), a.astype(numpy.int32) @ b)


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize(
    "lanes",
    [1, 2, 4, 8, 32, pytest.param(64, marks=pytest.mark.slow)],  # half a minute in LLVM
)
def test_transposed_copies_another_way(lanes: int) -> None:
    wish = f"transpose(lanes={lanes})"
    turned = ad.define(TURNED, options={"turned": wish}).turned
    for shape in ((1, 1), (5, 7), (33, 65), (0, 3), (200, 130)):
        x = draw(*shape)
        numpy.testing.assert_array_equal(turned(x), x.T)


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize(
    ("taps", "wish"),
    [
        (3, "winograd(rows=5)"), (3, "winograd(rows=3, block_tiles=2)"),
        (3, "winograd(vectors=1, lanes=4, unroll=8)"), (1, "convolution(direct=false)"),
        (1, "convolution(direct=true, rows=3)"),
    ],
)  # fmt: skip
def test_convolutions_with_constant_weights(taps: int, wish: str) -> None:
    w = draw(40, 36, taps, taps) / 10
    g = ad.Builder("net")
    n, h, v = (g.dim(name, 0, 80) for name in ("n", "h", "v"))
    x = g.input("x", ad.float32, (n, 36, h, v))
    g.output("y", g.conv(x, g.constant(w), pads=(taps // 2,) * 4))
    model = ad.compile(g, options=given_options({"net": wish}, ["net"])["net"])
    assert wish.partition(")")[0].partition("(")[2].split(", ")[0] in model.explain(details=True)
    for shape in ((1, 1, 1), (2, 17, 33), (0, 3, 3), (1, 64, 63)):
        x = draw(shape[0], 36, *shape[1:])
        numpy.testing.assert_allclose(model(x)["y"], convolved(x, w), rtol=1e-3, atol=1e-3)


def test_every_choice_of_a_schedule_has_a_rule() -> None:
    """What a record holds is chosen by a rule, or follows from the computation."""
    follows = {("contraction", "packed"), ("convolution", "packed")}
    follows |= {("weight_only_quant", "vectors"), ("weight_only_quant", "lanes"), ("int8", "depth")}
    follows |= {("bfloat16", "depth"), ("chosen_matrices", "vectors"), ("chosen_matrices", "lanes")}
    follows |= {("attention_bfloat16", name) for name in ("rows", "lanes", "copies")}
    follows |= {("row_phase", name) for name in ("lanes", "unroll", "phase", "version")}
    follows |= {("attention", name) for name in ("rows", "vectors", "lanes", "unroll")}
    for template in TEMPLATES:
        name = template.name
        for option in fields(template.schedule):
            assert (option.name in template.knobs) != ((name, option.name) in follows), (
                name,
                option,
            )


def test_records_and_no_fusion() -> None:
    chosen = ad.define(SOFTMAX).softmax.options["y"]
    softmax = ad.define(SOFTMAX, options={"softmax": {"y": replace(chosen, unroll=2)}}).softmax
    assert softmax.options["y"] == replace(chosen, unroll=2)
    split = ad.define(SOFTMAX, options={"softmax": {"fuse": False}}).softmax
    assert set(split.options) == {"top", "e", "total", "y"}
    assert isinstance(split.options["top"], Rows)
    x = draw(4, 9)
    numpy.testing.assert_allclose(split(x), softmax(x), rtol=1e-6)


def test_options_beside_the_program() -> None:
    text = f"# option matmul.C: contraction(rows=5)\n{MATMUL}"
    assert ad.define(text).matmul.options["C"].rows == 5
    over = ad.define(text, options={"matmul": "contraction(rows=3)"})
    assert over.matmul.options["C"].rows == 3


def test_another_template_that_takes_it_too() -> None:
    matmul = ad.define(MATMUL, options={"matmul": {"C": "rows(unroll=1)"}}).matmul
    assert isinstance(matmul.options["C"], Rows)
    a, b = draw(5, 7), draw(7, 19)
    numpy.testing.assert_allclose(matmul(a, b), a @ b, rtol=1e-5, atol=1e-5)


# ---- refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wish", "words"),
    [
        (
            SCAN,
            "loop_nest(parallel=t)",
            r"t runs in order: y\(t - 1, b, c\) is read 1 iteration after",
        ),
        (SCAN, "loop_nest(parallel=q)", "cannot be shared by threads"),
        (SCAN, "loop_nest(lanes=3)", "option 'lanes' of 'loop_nest' is 3, expected a power of two"),
        (SCAN, "loop_nest(block=-1)", "expected a whole number from 0"),
        (SCAN, "loop_nest(unroll=true)", "expected a power of two"),
        (MATMUL, "contraction(rows=99)", "expected a whole number from 1 to 16"),
        (MATMUL, "contraction(block_k=12)", "expected a multiple of 8"),
        (MATMUL, "contraction(packed=true)", "follows from the computation"),
        (MATMUL, "contraction(depth=3)", "its options are"),
        (MATMUL, "contraction(lanes=1)", "expected a power of two from 2 to 32"),
        (CONV, "convolution(direct=true)", "these windows are not rows of x"),
        (CONV, "convolution(chunk_k=4)", "expected a multiple of 8"),
        (POOL, "window_reduction(lanes=1)", "expected a power of two from 2 to 64"),
        (BYTES, "int8(rows=17)", "expected a whole number from 1 to 16"),
        (TURNED, "transpose(lanes=3)", "expected a power of two"),
        (SOFTMAX, "row_phase(phase=1)", "row_phase"),
        (MATMUL, "carpet(rows=3)", "there is no schedule 'carpet'"),
    ],
)
def test_what_is_refused(text: str, wish: str, words: str) -> None:
    with pytest.raises(ad.OptionError, match=words):
        (name,) = ad.define(text)
        _ = ad.define(text, options={name: wish})[name].options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"matmul": {"C": "loop_nest(lanes=8)"}}, "'loop_nest' does not take this computation"),
        ({"matmul": {"D": "contraction(rows=4)"}}, "no kernel makes 'D'"),
        ({"matmul": "rows(lanes=8)"}, "no kernel is of that kind"),
        ({"matmull": "contraction(rows=4)"}, "did you mean 'matmul'"),
        ({"matmul": {"fuse": 1}}, "expected true or false"),
        (3, "a text or a mapping"),
        ("matmul contraction(rows=4)", "line 1"),
        ("\nmatmul.C: contraction(rows=4", "is not a schedule"),
    ],
)
def test_what_speaks_of_nothing(options: object, words: str) -> None:
    with pytest.raises(ad.OptionError, match=words):
        _ = ad.define(MATMUL, options=options).matmul.options


def test_texts_of_options() -> None:
    text = "# a remark\n\nf.y: rows(lanes=4)  # why\nf: fuse=false\ng: nest(lanes=2)\n"
    found = parse_texts(text)
    assert found == {
        "f": KernelOptions({"y": "rows(lanes=4)"}, fuse=False),
        "g": KernelOptions({WHOLE: "loop_nest(lanes=2)"}),
    }
    assert given_options({"f": Rows(8)}, ["f"])["f"].schedules[WHOLE].startswith("rows(lanes=8")


def test_matmul_is_the_operators_kernel() -> None:
    """The same object code: the kernel's name is a hash of all that it consists of."""
    graph = ad.Builder()
    m, k, n = (graph.dim(name) for name in "MKN")
    a, b = graph.input("A", ad.float32, (m, k)), graph.input("B", ad.float32, (k, n))
    graph.output("C", graph.matmul(a, b))
    operator, own = ad.compile(graph), ad.define(MATMUL).matmul.model(draw(2, 2), draw(2, 2))
    names = [[site.kernel for site in model.program.sites] for model in (operator, own)]
    assert names[0] == names[1]
    assert operator.program.sites[0].sizes == own.program.sites[0].sizes


def test_a_row_of_a_product_has_the_same_bits_in_every_batch() -> None:
    matmul = ad.define(MATMUL).matmul
    for k, n in ((384, 96), (513, 33), (4000, 200), (96, 1)):
        a, b = draw(41, k), draw(k, n, seed=1)
        whole = matmul(a, b)
        for rows in (1, 2, 3, 4, 7, 8, 9, 12, 16, 17, 24, 25, 33):
            numpy.testing.assert_array_equal(matmul(a[:rows], b), whole[:rows])
