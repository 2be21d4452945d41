"""`precision="bfloat16"`: the same bits in every batch, and errors within the documented bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import anydim as ad
from anydim import ort
from anydim.base import settings
from anydim.base.dtypes import bfloat16, convert_array
from anydim.base.errors import OptionError
from anydim.cli.app import main
from anydim.compiler.targets.evaluated.functions import fused_flushing
from anydim.compiler.targets.llvm.host import machine
from tests.models.building import graph, model, node

K, N, MOST = 71, 50, 200
RANDOM = np.random.default_rng(0)
W, BIAS = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((K, N), (N,)))
needs_pairs = pytest.mark.skipif(
    not machine().pairs or machine().pair_tiles, reason="another order of sums, or none"
)


def layer() -> onnx.ModelProto:
    nodes = [node("t = MatMul(x, w)"), node("u = Add(t, b)"), node("y = Relu(u)")]
    return model(graph("layer", [f"x f[rows, {K}]"], nodes, [f"y f[rows, {N}]"],
                       {"w": W, "b": BIAS}))  # fmt: skip


def compiled(**options: object) -> ad.Model:
    return ad.compile(layer(), **{"precision": "bfloat16", "threads": 1, **options})


def call(run: ad.Model, *arrays: np.ndarray) -> np.ndarray:
    (result,) = run(*arrays).values()
    return result


def rounded(array: np.ndarray) -> np.ndarray:
    return convert_array(convert_array(array, bfloat16.numpy), np.dtype(np.float32))


def expected(x: np.ndarray) -> np.ndarray:
    """The order of the documents: pairs of k-steps, the second one of a pair first."""
    a, b = (
        np.pad(rounded(each), pad) for each, pad in ((x, ((0, 0), (0, 1))), (W, ((0, 1), (0, 0))))
    )
    total = np.zeros((len(x), N), np.float32)
    for k in range(0, K + 1, 2):
        for at in (k + 1, k):
            total = fused_flushing(a[:, at, None], b[None, at], total)
    return np.maximum(total + BIAS, 0)


@needs_pairs
def test_a_row_has_the_same_bits_in_every_batch() -> None:
    x = RANDOM.standard_normal((MOST, K)).astype(np.float32)
    run, want = compiled(), expected(x)
    for rows in range(MOST + 1):
        np.testing.assert_array_equal(
            call(run, x[:rows]).view(np.uint32), want[:rows].view(np.uint32)
        )
    for at in range(MOST):
        np.testing.assert_array_equal(call(run, x[at : at + 1]), want[at : at + 1])


RUNGS = ("exact", "fast", "bfloat16", "int8", {"t": "bfloat16", "*": "int8"},
         {"v": "bfloat16", "t": "exact", "*": "fast"})  # fmt: skip


@pytest.mark.parametrize("precision", RUNGS, ids=str)
def test_a_row_keeps_its_bits_in_every_precision(precision: object) -> None:
    """Of 1 to 200 rows, alone and on threads, also where nodes have precisions of their own."""
    random = np.random.default_rng(3)
    w, v = (random.standard_normal(shape).astype(np.float32) for shape in ((96, 64), (64, 80)))
    nodes = [node("t = MatMul(x, w)"), node("u = Sigmoid(t)"), node("y = MatMul(u, v)")]
    made = model(graph("two", ["x f[rows, 96]"], nodes, ["y f[rows, 80]"], {"w": w, "v": v}))
    made.graph.node[2].name = "v"
    one, shared = (ad.compile(made, precision=precision, threads=n) for n in (1, 3))  # type: ignore[arg-type]
    x = random.standard_normal((MOST, 96)).astype(np.float32)
    whole = call(one, x)
    np.testing.assert_array_equal(call(shared, x), whole)
    for rows in range(1, MOST):
        np.testing.assert_array_equal(call(one, x[MOST - rows :]), whole[MOST - rows :])


@needs_pairs
def test_any_number_of_threads() -> None:
    x = RANDOM.standard_normal((MOST, K)).astype(np.float32)
    for threads in (1, 2, 3):
        np.testing.assert_array_equal(call(compiled(threads=threads), x), expected(x))


@needs_pairs
def test_hostile_rows_stay_alone() -> None:
    """Infinities, NaN, subnormal and huge numbers in one row change no other."""
    x = RANDOM.standard_normal((12, K)).astype(np.float32)
    hard = [np.inf, -np.inf, np.nan, 1e-40, 3.4e38, -3.4e38, 1e-38, 2.0**-133, 0.0, -0.0, 1e30, 1]
    x[np.arange(12), RANDOM.integers(0, K, 12)] = np.float32(hard)
    run = compiled()
    found, want = call(run, x), expected(x)
    np.testing.assert_array_equal(found, want)
    for at in range(12):
        np.testing.assert_array_equal(call(run, x[at : at + 1])[0], found[at])


def test_errors_are_within_the_bound() -> None:
    """2^-7 of the sum of magnitudes for both factors, and float32's own for the sum."""
    x = RANDOM.standard_normal((33, K)).astype(np.float32)
    x[0] = np.copysign(1 + 2.0**-8, W[:, 0])  # halfway between two numbers, all in one direction
    exact = x.astype(np.float64) @ W + BIAS
    bound = (2.0**-7 + 2.0**-16 + K * 2.0**-23) * (abs(x) @ abs(W)) + 1e-6 * abs(exact)
    error = abs(call(compiled(), x) - np.maximum(exact, 0))
    assert (error <= bound).all()
    if machine().pairs:
        assert error.max() > 1e-3, "nothing was rounded"


def test_the_default_is_unchanged() -> None:
    x = RANDOM.standard_normal((9, K)).astype(np.float32)
    plain, exact = compiled(precision=None), compiled(precision="exact")
    np.testing.assert_array_equal(call(plain, x), call(exact, x))
    assert "bfloat16" not in str(plain.explain())


def test_explain_says_what_is_rounded() -> None:
    text = " ".join(str(compiled().explain()).split())
    if machine().pairs:
        assert "precision bfloat16: 1 of 1 product, each factor is off by up to 2^-8" in text
    else:
        assert "0 of 1 product" in text and "all are float32" in text


def test_other_targets_stay_float32() -> None:
    """No instruction: the float32 kernels, and a note."""
    x = RANDOM.standard_normal((9, K)).astype(np.float32)
    with settings.override(vector_bits=256):
        run = compiled()
        exact = compiled(precision="exact")
        np.testing.assert_array_equal(call(run, x), call(exact, x))
        assert "all are float32" in " ".join(str(run.explain()).split())


def test_products_of_two_values_of_the_call_stay_float32() -> None:
    made = model(
        graph("pair", ["x f[m, 8]", "y f[8, n]"], [node("z = MatMul(x, y)")], ["z f[m, n]"])
    )
    run = ad.compile(made, precision="bfloat16", threads=1)
    x, y = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((5, 8), (8, 7)))
    np.testing.assert_allclose(call(run, x, y), x @ y, rtol=1e-5, atol=1e-5)


def test_check_permits_the_rounding_and_no_more() -> None:
    report = compiled().check(samples=12)
    assert report.ok, str(report)
    assert report.factor < ad.compile(layer(), threads=1).check(samples=2).factor


@needs_pairs
def test_weights_take_half_of_the_memory() -> None:
    wide = model(graph("wide", ["x f[rows, 512]"], [node("y = MatMul(x, w)")], ["y f[rows, 512]"],
                       {"w": np.ones((512, 512), np.float32)}))  # fmt: skip
    sizes = [sum(c.bytes for c in ad.compile(wide, precision=p, threads=1).program.constants)
             for p in ("exact", "bfloat16")]  # fmt: skip
    assert sizes[1] < 0.52 * sizes[0]


def test_a_weight_with_two_readers_is_kept_once_in_each_width() -> None:
    nodes = [node("s = MatMul(x, w)"), node("t = MatMul(s, w)"), node("y = Add(t, w)")]
    square = RANDOM.standard_normal((48, 48)).astype(np.float32) / 7
    made = model(graph("twice", ["x f[48, 48]"], nodes, ["y f[48, 48]"], {"w": square}))
    x = RANDOM.standard_normal((48, 48)).astype(np.float32)
    want = x.astype(np.float64) @ square @ square + square
    np.testing.assert_allclose(call(ad.compile(made, precision="bfloat16"), x), want, atol=0.05)


def test_saved_files_keep_it(tmp_path: Path) -> None:
    x = RANDOM.standard_normal((7, K)).astype(np.float32)
    run = compiled()
    run.save(tmp_path / "layer.anydim")
    loaded = ad.load(tmp_path / "layer.anydim")
    np.testing.assert_array_equal(call(loaded, x), call(run, x))


@pytest.mark.parametrize("wrong", ["bf16", "BFLOAT16", "float16", 16, ["bfloat16"]])
def test_a_wrong_name_lists_all(wrong: object) -> None:
    with pytest.raises(OptionError) as caught:
        compiled(precision=wrong)
    for name in ("exact", "fast", "tf32", "bfloat16"):
        assert f"'{name}'" in str(caught.value)


DENSE = """
# option dense: precision=bfloat16
def dense(float(M,K) x, float(K,N) w) -> (y) { y(m,n) +=! x(m,k) * w(k,n) }
"""


def test_definitions_take_it_by_line_and_by_argument() -> None:
    """A definition has no constants, so that its products stay float32."""
    x = RANDOM.standard_normal((5, K)).astype(np.float32)
    for library in (ad.define(DENSE), ad.define(DENSE, precision="bfloat16")):
        np.testing.assert_allclose(library.dense(x, W), x @ W, rtol=1e-4, atol=1e-4)


def rounds(k: int, n: int, text: str = "y = MatMul(x, w)", x: str = "") -> bool:
    """Whether a product with k x n weights is rounded."""
    held = {"w": np.ones((k, n) if not x else (n, k), np.float32)}
    made = graph("product", [x or f"x f[rows, {k}]"], [node(text)], ["y f[p, q]"], held)
    found = ad.compile(model(made), precision="bfloat16", threads=1)
    return "bfloat16: 1 of 1 product" in " ".join(str(found.explain()).split())


@pytest.mark.skipif(not machine().pairs, reason="no bfloat16 products")
def test_products_that_would_take_longer_stay_float32() -> None:
    """Few terms, few columns, and weights of rows, as the columns may be a single one."""
    assert rounds(32, 32) and rounds(33, 47)
    assert not rounds(31, 64) and not rounds(64, 31) and not rounds(0, 64)
    assert not rounds(64, 64, "y = MatMul(w, x)", "x f[64, columns]")


def test_the_session_of_onnxruntime_takes_it() -> None:
    options = ort.SessionOptions()
    options.compile_options = ad.Options(precision="bfloat16")
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(layer().SerializeToString(), options)
    x = RANDOM.standard_normal((5, K)).astype(np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], call(compiled(), x))


def test_the_command_line_takes_it(tmp_path: Path) -> None:
    onnx.save(layer(), tmp_path / "layer.onnx")
    path, runner = str(tmp_path / "layer.onnx"), CliRunner()
    shown = runner.invoke(main, ["explain", path, "--precision", "bfloat16"])
    assert "precision bfloat16" in shown.output, shown.output
    wrong = runner.invoke(main, ["explain", path, "--precision", "bf16"])
    assert wrong.exit_code and "'bfloat16'" in wrong.output
