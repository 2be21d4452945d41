"""`precision="bfloat16x3"` and `"bfloat16x2"`: documented errors, and bits of each row.

Tiles are emulated (tests/tile_emulator.py); processors without them keep float32.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import anydim as ad
from anydim.api.precision_choice import measure_rungs
from anydim.base import settings
from anydim.base.errors import OptionError
from anydim.compiler.kernels.matmul.int8.float_parts import LARGEST
from anydim.compiler.targets.llvm.host import machine
from tests.models.building import graph, model, node
from tests.tile_emulator import Emulator
from tests.tile_emulator import tiles as tiles

RUNGS = pytest.mark.parametrize("precision", ["bfloat16x3", "bfloat16x2"])
PRODUCTS = {"bfloat16x3": 6, "bfloat16x2": 3}
DROPPED = {"bfloat16x3": 2.0**-22.9, "bfloat16x2": 2.0**-14.4}
N = 48
RANDOM = np.random.default_rng(0)


def layer(w: np.ndarray, last: str = "y = Add(t, b)") -> onnx.ModelProto:
    bias = np.zeros(w.shape[1], np.float32)
    nodes = [node("t = MatMul(x, w)"), node(last)]
    return model(graph("layer", [f"x f[rows, {len(w)}]"], nodes, [f"y f[rows, {w.shape[1]}]"],
                       {"w": w, "b": bias}))  # fmt: skip


def drawn(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def call(run: ad.Model, x: np.ndarray) -> np.ndarray:
    (result,) = run(x).values()
    return result.copy()


def scales(low: int, high: int, *shape: int) -> np.ndarray:
    return 2.0 ** RANDOM.integers(low, high, shape)


def hostile_rows(k: int) -> np.ndarray:
    """Rows of huge, tiny, subnormal and mixed numbers, of cancelling ones, and not finite ones."""
    rows = [drawn(k) * scales(low, high, k) for low, high in (
        (0, 1), (30, 38), (38, 40), (-60, 40), (-126, -100), (-149, -120), (-149, 38), (60, 120),
    ) for _ in range(3)]  # fmt: skip
    half = drawn(k // 2) * scales(-20, 20, k // 2)
    rows += [np.resize(np.stack([half, -half], 1), k), np.zeros(k), np.full(k, LARGEST)]
    with np.errstate(over="ignore"):
        found = np.array(rows).astype(np.float32)
    special = drawn(6, k)
    special[np.arange(6), RANDOM.integers(0, k, 6)] = (
        np.inf, -np.inf, np.nan, 3.4e38, 2 * LARGEST, np.nextafter(np.float32(LARGEST), np.inf)
    )  # fmt: skip
    return np.concatenate([found, special])


def hostile_weights(k: int) -> np.ndarray:
    """Likewise, as far as they have parts; pairs of rows are nearly equal, so that sums cancel."""
    kinds = ((0, 1), (20, 39), (-60, 39), (-126, -100), (-149, -120), (-149, 39))
    columns = [drawn(k) * scales(*kinds[at % len(kinds)], k) for at in range(N)]
    w = np.clip(np.array(columns).T, -LARGEST, LARGEST).astype(np.float32)
    w[1 : 2 * (k // 2) : 2, :8] = w[0 : 2 * (k // 2) : 2, :8] * np.float32(1 + 2.0**-20)
    return w


@RUNGS
@pytest.mark.parametrize("k", [32, 33, 71, 96])
def test_errors_of_hostile_products(tiles: Emulator, precision: str, k: int) -> None:
    """33 rows by 48 columns for each k: 1,584 products."""
    x, w = hostile_rows(k), hostile_weights(k)
    found = call(ad.compile(layer(w), precision=precision, threads=1), x)
    counted = tiles.counted()
    assert not counted or counted["bfloat16"]
    fit = (abs(x) <= LARGEST).all(1)
    assert 20 < fit.sum() < len(x) - 5
    with np.errstate(all="ignore"):
        exact = x.astype(np.longdouble) @ w.astype(np.longdouble)
        size = abs(x).astype(np.longdouble) @ abs(w).astype(np.longdouble)
        error = abs(found - exact)
    roundings = 18 + PRODUCTS[precision] * -(-k // 32)
    bound = (DROPPED[precision] + 1.02 * roundings * 2.0**-24) * size + k * 2.0**-83
    assert (error[fit] <= bound[fit]).all()
    if precision == "bfloat16x2":
        assert (error[fit] > 2.0**-19 * size[fit]).any(), "nothing was rounded"
    # rows without parts: float32 sums of the weights' own values, or of 16 bits of them
    rest, finite = ~fit[:, None], np.isfinite(size) & (size < 3e38)
    own = {"bfloat16x3": 0.0, "bfloat16x2": 2.0**-16}[precision]
    with np.errstate(all="ignore"):
        small = k * abs(x).max(1, keepdims=True) * 2.0**-133  # of weights below 2^-110
        bound = (own + (k + 1) * 2.0**-24) * size + small + k * 2.0**-149
    assert (error <= bound)[rest & finite].all()
    odd = rest & ~np.isfinite(x).all(1)[:, None]
    nonzero = odd & (w != 0).all(0)
    with np.errstate(all="ignore"):
        want = exact.astype(np.float32)
    np.testing.assert_array_equal(found[nonzero], want[nonzero])


@RUNGS
def test_a_row_has_the_same_bits_in_every_batch(tiles: Emulator, precision: str) -> None:
    w, most = drawn(71, N), 200
    run, shared = (ad.compile(layer(w), precision=precision, threads=n) for n in (1, 2))
    x = drawn(most, 71)
    x[::7, 3] = np.resize(np.float32([np.nan, 1e20, np.inf, 1e-42]), len(x[::7]))
    whole = call(run, x)
    for rows in range(0, most + 1, 3):
        np.testing.assert_array_equal(call(run, x[:rows]), whole[:rows])
        np.testing.assert_array_equal(call(run, x[most - rows :]), whole[most - rows :])
    for at in range(0, most, 11):
        np.testing.assert_array_equal(call(run, x[at : at + 1]), whole[at : at + 1])
    for rows in (1, 128, most):
        np.testing.assert_array_equal(call(shared, x[:rows]), whole[:rows])
    assert tiles.in_use == 0


@pytest.mark.usefixtures("tiles")
def test_three_parts_are_as_good_as_float32() -> None:
    x, w = drawn(64, 768), drawn(768, 64)
    exact = x.astype(np.float64) @ w
    errors = {p: abs(call(ad.compile(layer(w), precision=p, threads=1), x) - exact).max()
              for p in ("exact", "bfloat16x3", "bfloat16x2", "bfloat16")}  # fmt: skip
    assert errors["bfloat16x3"] < 1.5 * errors["exact"]
    assert 1e-5 < errors["bfloat16x2"] < errors["bfloat16"] / 64


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("value", [np.inf, np.nan, 2 * LARGEST, 3.4e38])
def test_weights_without_parts_stay_float32(value: float) -> None:
    w = drawn(64, N)
    w[3, 5] = value
    x, run = drawn(9, 64), ad.compile(layer(w), precision="bfloat16x3", threads=1)
    assert "bfloat16x3: 0 of 1 product" in " ".join(str(run.explain()).split())
    want = call(ad.compile(layer(w), precision="fast", threads=1), x)
    np.testing.assert_array_equal(call(run, x), want)


@RUNGS
def test_convolutions(tiles: Emulator, precision: str) -> None:
    """Channels last; windows and images of several lines."""
    w = drawn(69, 33, 3, 3)
    nodes = [node("r = Abs(x)"), node("t = Conv(r, w)", strides=[2, 2], pads=[1] * 4),
             node("y = Relu(t)")]  # fmt: skip
    made = model(graph("image", ["x f[n, 33, h, v]"], nodes, ["y f[n, m, i, j]"], {"w": w}))
    x = drawn(3, 33, 9, 14)
    with settings.override(layout="channels_last"):
        exact = call(ad.compile(made, threads=1), x)
        tiles.counted()
        run = ad.compile(made, precision=precision, threads=1)
    whole = call(run, x)
    counted = tiles.counted()
    assert not counted or counted["bfloat16"] % PRODUCTS[precision] == 0 < counted["bfloat16"]
    error = abs(whole - exact).max() / abs(exact).max()
    assert error < {"bfloat16x3": 2e-6, "bfloat16x2": 1e-4}[precision]
    np.testing.assert_array_equal(call(run, x[1:2]), whole[1:2])


@RUNGS
def test_saved_files_and_the_check(tiles: Emulator, precision: str, tmp_path: Path) -> None:
    x, run = drawn(7, 96), ad.compile(layer(drawn(96, N)), precision=precision, threads=1)
    run.save(tmp_path / "layer.anydim", targets=["native", "x86-64-v4+amx-bfloat16", "x86-64-v4"])
    np.testing.assert_array_equal(call(ad.load(tmp_path / "layer.anydim"), x), call(run, x))
    assert run.check(samples=4).ok
    assert tiles.in_use == 0


@pytest.mark.usefixtures("tiles")
def test_other_weights_are_split_again() -> None:
    first, second, x = drawn(64, N), drawn(64, N), drawn(5, 64)
    run = ad.compile(layer(first), precision="bfloat16x3", threads=1)
    want = call(ad.compile(layer(second), precision="bfloat16x3", threads=1), x)
    run.load_weights(layer(second))
    np.testing.assert_array_equal(call(run, x), want)


@pytest.mark.usefixtures("tiles")
def test_explain_and_nodes() -> None:
    w = drawn(64, 64)
    nodes = [node("t = MatMul(x, w)"), node("y = MatMul(t, w)")]
    nodes[0].name, nodes[1].name = "head", "tail"
    made = model(graph("two", ["x f[rows, 64]"], nodes, ["y f[rows, 64]"], {"w": w}))
    rules = {"head": "bfloat16x2", "*": "exact"}
    text = " ".join(str(ad.compile(made, precision=rules, threads=1).explain()).split())
    assert "bfloat16x2: 1 of 2 products, each factor is off by up to 2^-16" in text
    whole = ad.compile(made, precision="bfloat16x3", threads=1)
    text = " ".join(str(whole.explain()).split())
    assert "bfloat16x3: 2 of 2 products" in text
    assert "factors in 3 parts of bfloat16" in " ".join(str(whole.explain(details=True)).split())


@pytest.mark.skipif(machine().pair_tiles, reason="tiles")
@RUNGS
def test_processors_without_tiles_keep_float32(precision: str) -> None:
    x, w = drawn(9, 64), drawn(64, N)
    run = ad.compile(layer(w), precision=precision, threads=1)
    np.testing.assert_array_equal(
        call(run, x), call(ad.compile(layer(w), precision="fast", threads=1), x)
    )
    assert "adds no bfloat16 products, all are float32" in " ".join(str(run.explain()).split())


@pytest.mark.usefixtures("tiles")
def test_auto_tries_them() -> None:
    x, made = drawn(16, 96), layer(drawn(96, N))
    report = measure_rungs(
        lambda source, precision: ad.compile(source, precision=precision, threads=1),
        made, {"x": x}, 2e-6,
    )  # fmt: skip
    errors = {rung.precision: rung.error for rung in report.rungs}
    assert list(errors) == ["exact", "fast", "bfloat16x3", "bfloat16x2", "bfloat16", "int8"]
    assert errors["bfloat16x3"] < 2e-6 < errors["bfloat16x2"] < errors["bfloat16"]


def test_the_command_line_and_wrong_names() -> None:
    with pytest.raises(OptionError, match="'bfloat16x3'"):
        ad.compile(layer(drawn(64, N)), precision="bfloat16x4")
    with pytest.raises(OptionError, match="bfloat16x2"):
        ad.compile(layer(drawn(64, N)), precision={"t": "bf16x3", "*": "exact"})
