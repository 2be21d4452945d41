"""`precision="int8"`: bits of each row, errors within the documented bound, what is quantised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

import anydim as ad
from bench.networks.narrow import narrowed
from tests.models.building import graph, model, node

K, N, MOST = 71, 50, 200
RANDOM = np.random.default_rng(0)
W, BIAS = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((K, N), (N,)))


def layer(w: np.ndarray = W) -> onnx.ModelProto:
    nodes = [node("t = MatMul(x, w)"), node("u = Add(t, b)"), node("y = Relu(u)")]
    return model(graph("layer", [f"x f[rows, {len(w)}]"], nodes, [f"y f[rows, {N}]"],
                       {"w": w, "b": BIAS}))  # fmt: skip


def compiled(made: onnx.ModelProto | None = None, **options: object) -> ad.Model:
    return ad.compile(made or layer(), **{"precision": "int8", "threads": 1, **options})


def call(run: ad.Model, *arrays: np.ndarray) -> np.ndarray:
    (result,) = run(*arrays).values()
    return result


def rows_of(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def in_steps(x: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """127 steps of the largest magnitude along an axis, and that."""
    top = abs(x).max(axis, keepdims=True).astype(np.float32)
    return np.rint(x * (np.float32(127) / top)), top


def test_sums_are_those_of_integers() -> None:
    x = rows_of(33, K)
    (q, top), (w, most) = in_steps(x, 1), in_steps(W, 0)
    scale = (most.astype(np.float64) / 127 / 127).astype(np.float32)
    want = np.maximum((q @ w).astype(np.float32) * (top * scale) + BIAS, 0)
    np.testing.assert_allclose(call(compiled(), x), want, rtol=2e-6, atol=2e-6)


def test_a_row_has_the_same_bits_in_every_batch() -> None:
    x, run = rows_of(MOST, K), compiled()
    whole = call(run, x)
    for rows in range(MOST + 1):
        np.testing.assert_array_equal(call(run, x[:rows]), whole[:rows])
    for at in range(MOST):
        np.testing.assert_array_equal(call(run, x[at : at + 1]), whole[at : at + 1])
    np.testing.assert_array_equal(call(compiled(threads=3), x), whole)


def test_errors_are_within_the_bound() -> None:
    """A factor is off by half a step: 1/254 of the largest of its row or column."""
    x = rows_of(64, K)
    exact = x.astype(np.float64) @ W + BIAS
    of_row, of_column = (abs(a).max(axis, keepdims=True) / 253.9 for a, axis in ((x, 1), (W, 0)))
    bound = abs(x).sum(1, keepdims=True) * of_column + of_row * abs(W).sum(0)
    bound += K * of_row * of_column + 1e-5
    error = abs(call(compiled(), x) - np.maximum(exact, 0))
    assert (error <= bound).all()
    assert error.max() > 1e-3, "nothing was quantised"


def test_hostile_rows_stay_alone() -> None:
    """A number that is not finite makes its row NaN; no row changes another."""
    x, run = rows_of(9, K), compiled()
    plain = call(run, x)
    x[1, 3], x[2, 70], x[3, 0], x[4], x[5] = np.nan, np.inf, -np.inf, 0, 1e-40
    x[6, 9] = 3e38
    found = call(run, x)
    kept = [0, 7, 8]
    np.testing.assert_array_equal(found[kept], plain[kept])
    assert np.isnan(found[1:4]).all()
    np.testing.assert_array_equal(found[4:6], np.maximum([BIAS, BIAS], 0))
    assert np.isfinite(found[6]).any()
    for at in range(9):
        np.testing.assert_array_equal(call(run, x[at : at + 1])[0], found[at])


def test_hostile_weights() -> None:
    """Columns of zeros, of subnormal numbers, and with a number that is not finite."""
    w = W.copy()
    w[:, 0], w[:, 1], w[4, 2], w[4, 3] = 0, 1e-40, np.nan, np.inf
    run, x = compiled(layer(w)), rows_of(5, K)
    found = call(run, x)
    np.testing.assert_array_equal(found[:, :2], np.maximum(BIAS[None, :2], 0).repeat(5, 0))
    assert np.isnan(found[:, 2:4]).all()
    np.testing.assert_array_equal(found[:, 4:], call(compiled(), x)[:, 4:])


def test_products_share_the_bytes_of_their_rows() -> None:
    nodes = [node("t = MatMul(x, w)"), node("u = MatMul(x, v)"), node("y = Add(t, u)")]
    made = model(graph("shared", [f"x f[rows, {K}]"], nodes, [f"y f[rows, {N}]"],
                       {"w": W, "v": W[::-1].copy()}))  # fmt: skip
    run = compiled(made)
    assert len(run.program.sites) == 3, str(run.explain())


def is_quantised(made: onnx.ModelProto) -> bool:
    return "int8: 1 of 1 product" in " ".join(str(compiled(made).explain()).split())


def test_what_is_quantised() -> None:
    """Not few terms or columns, nor products of two values of the call."""

    def product(depth: int, columns: int) -> onnx.ModelProto:
        return model(graph("product", [f"x f[rows, {depth}]"], [node("y = MatMul(x, w)")],
                           [f"y f[rows, {columns}]"], {"w": rows_of(depth, columns)}))  # fmt: skip

    assert is_quantised(product(64, 32)) and is_quantised(product(65, 47))
    assert not is_quantised(product(63, 64)) and not is_quantised(product(64, 31))
    pair = graph("pair", ["x f[m, 64]", "w f[64, 64]"], [node("y = MatMul(x, w)")], ["y f[m, 64]"])
    assert not is_quantised(model(pair))


def test_weights_of_eight_bits_become_columns_those_of_four_stay() -> None:
    """Codes of 8 bits with a scale for 32 of them have one scale for a column."""
    x, w = rows_of(3, 64), rows_of(64, 96)

    def made(bits: int) -> onnx.ModelProto:
        wide = graph("wide", ["x f[rows, 64]"], [node("y = MatMul(x, w)")], ["y f[rows, 96]"],
                     {"w": w})  # fmt: skip
        return narrowed(model(wide), bits)

    for bits, template in ((4, {"int8", "weight_only_quant"}), (8, {"int8"})):
        plain = call(compiled(made(bits), precision="exact"), x)
        found = compiled(made(bits))
        assert template & {site.schedule.partition("(")[0] for site in found.program.sites}
        error = abs(call(found, x) - plain).max()
        assert 0 < error < 0.02 * abs(plain).max()


def test_products_with_four_bits_are_sums_of_blocks() -> None:
    """Exact sums of a block, scaled and added in order; one rounding for each block.

    float64 holds a product of two float32 exactly, and nearly always its sum with a third.
    """
    for depth, columns, block in ((64, 32, 32), (576, 49, 32), (100, 70, 32), (77, 50, 128),
                                  (160, 130, 40), (96, 33, 8)):  # fmt: skip
        codes = RANDOM.integers(-8, 8, (depth, columns)).astype(np.int8)
        scales = rows_of(-(-depth // block), columns)
        x = rows_of(35, depth)
        run = compiled(of_codes(codes, scales, block))
        found = call(run, x)
        q, top = in_steps(x, 1)
        total = np.zeros(found.shape, np.float32)
        for number, scale in enumerate(scales):
            part = slice(number * block, (number + 1) * block)
            sums = (q[:, part].astype(np.int64) @ codes[part].astype(np.int64)).astype(float)
            total = (sums * scale + total).astype(np.float32)
        want = total * (top * np.float32(1 / 127))
        kept = {site.schedule.partition("(")[0] for site in run.program.sites}
        if "weight_only_quant" in kept:  # tile registers take bytes
            np.testing.assert_allclose(found, want, rtol=3e-7, atol=1e-6 * abs(want).max())
        for count in (*range(1, 10), 33):
            for first in (0, 35 - count):
                own = call(run, x[first : first + count])
                np.testing.assert_array_equal(own, found[first : first + count])


def of_codes(codes: np.ndarray, scales: np.ndarray, block: int) -> onnx.ModelProto:
    """A product with codes of 4 bits, a scale for each block."""
    made = graph("codes", [f"x f[rows, {len(codes)}]"],
                 [node("w = DequantizeLinear(q, s)", axis=0, block_size=block),
                  node("y = MatMul(x, w)")], [f"y f[rows, {codes.shape[1]}]"],
                 {"s": scales})  # fmt: skip
    kind, numbers = onnx.TensorProto.INT4, codes.reshape(-1).tolist()
    made.initializer.append(onnx.helper.make_tensor("q", kind, codes.shape, numbers))
    opsets = [onnx.helper.make_opsetid("", 21)]
    return onnx.helper.make_model(made, opset_imports=opsets, ir_version=10)


def test_weights_take_a_quarter_of_the_memory_and_files_keep_them(tmp_path: Path) -> None:
    wide = model(graph("wide", ["x f[rows, 512]"], [node("y = MatMul(x, w)")], ["y f[rows, 512]"],
                       {"w": rows_of(512, 512)}))  # fmt: skip
    exact, run = (compiled(wide, precision=p) for p in ("exact", "int8"))
    sizes = [sum(c.bytes for c in each.program.constants) for each in (exact, run)]
    assert sizes[1] < 0.27 * sizes[0]
    run.save(tmp_path / "wide.anydim")
    x = rows_of(4, 512)
    np.testing.assert_array_equal(call(ad.load(tmp_path / "wide.anydim"), x), call(run, x))


def test_check_permits_the_steps_and_no_more() -> None:
    report = compiled().check(samples=8)
    assert report.ok, str(report)
    assert report.factor < compiled(precision="exact").check(samples=2).factor
