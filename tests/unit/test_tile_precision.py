"""Machine code for AMX tiles: documented sums, the bits of vectors for integers, no tile kept.

Processors without tiles run it by emulation (tests/tile_emulator.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import anydim as ad
from anydim.base import settings
from anydim.compiler.targets.llvm import host
from anydim.runtime import cpu
from tests.kernel_targets import needs_compiler
from tests.models.building import graph, model, node
from tests.tile_emulator import TILE_FLAGS, Emulator, reason
from tests.tile_emulator import tiles as tiles
from tests.unit.compiler.kernels.test_bfloat16 import product

K, N, MOST = 71, 50, 200
BFLOAT16, VECTORS, BYTES = (f"x86-64-v4+{more}" for more in ("amx-bfloat16", "bfloat16", "amx"))
RANDOM = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def layer(k: int = K, n: int = N) -> onnx.ModelProto:
    held = {"w": np.random.default_rng(k + n).standard_normal((k, n)).astype(np.float32)}
    return model(graph("layer", [f"x f[rows, {k}]"], [node("y = MatMul(x, w)")],
                       [f"y f[rows, {n}]"], held))  # fmt: skip


def weights(made: onnx.ModelProto) -> np.ndarray:
    return onnx.numpy_helper.to_array(made.graph.initializer[0])


def convolution(
    w: np.ndarray, layout: str, threads: int = 1, precision: str = "bfloat16", sizes: str = "h, v"
) -> ad.Model:
    """With stride 2, between two pointwise nodes, so that the layout of its image may be chosen."""
    words = {"strides": [2, 2], "pads": [w.shape[2] // 2] * 4}
    nodes = [node("r = Abs(x)"), node("t = Conv(r, w)", **words), node("y = Relu(t)")]
    shape = f"x f[n, {w.shape[1]}, {sizes}]"
    made = model(graph("convolution", [shape], nodes, ["y f[n, m, i, j]"], {"w": w}))
    with settings.override(layout=layout):
        return ad.compile(made, precision=precision, threads=threads)


def convolved(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The documented sums: tap by tap, channels of a tap padded with a zero to whole pairs."""
    window, odd = w.shape[2], w.shape[1] % 2
    pad = window // 2
    x = np.pad(abs(x), ((0, 0), (0, odd), (pad, pad), (pad, pad))).transpose(0, 2, 3, 1)
    w = np.pad(w, ((0, 0), (0, odd), (0, 0), (0, 0))).transpose(2, 3, 1, 0)
    high, wide = ((size - window) // 2 + 1 for size in x.shape[1:3])
    taps = [x[:, r : r + 2 * high - 1 : 2, s : s + 2 * wide - 1 : 2]
            for r in range(window) for s in range(window)]  # fmt: skip
    rows = np.concatenate(taps, axis=3)
    sums = product(rows.reshape(-1, rows.shape[3]), w.reshape(rows.shape[3], -1), tiles=True)
    return np.maximum(sums.reshape(*rows.shape[:3], -1).transpose(0, 3, 1, 2), 0)


def of_bytes() -> onnx.ModelProto:
    """A product and a convolution of bytes, with zero points."""
    random = np.random.default_rng(4)
    held = {
        "w": random.integers(-128, 128, (64, 70)).astype(np.int8),
        "v": random.integers(0, 256, (20, 9, 3, 3)).astype(np.uint8),
        "z": np.uint8(3), "o": np.uint8(131),
    }  # fmt: skip
    nodes = [
        node("y = MatMulInteger(x, w, z)"), node("u = ConvInteger(t, v, z, o)", pads=[1] * 4)
    ]  # fmt: skip
    return model(graph("bytes", ["x u[rows, 64]", "t u[n, 9, h, v]"], nodes,
                       ["y i[rows, 70]", "u i[n, 20, h, v]"], held))  # fmt: skip


def call(run: ad.Model, *arrays: np.ndarray) -> list[np.ndarray]:
    return [result.copy() for result in run(*arrays).values()]


def assert_same(found: list[np.ndarray], want: list[np.ndarray]) -> None:
    for one, other in zip(found, want, strict=True):
        np.testing.assert_array_equal(one, other)


def assert_used(emulator: Emulator, kind: str) -> None:
    """Products of this kind ran, and each configuration was released."""
    assert emulator.in_use == 0
    counted = emulator.counted()
    if counted:
        assert counted[kind] and counted["configure"] == counted["release"], counted


@pytest.mark.parametrize("k, n", [(71, 50), (32, 32), (64, 48), (33, 65), (95, 96), (129, 33)])
def test_bfloat16_has_the_documented_bits(tiles: Emulator, k: int, n: int) -> None:
    made, x = layer(k, n), drawn(37, k)
    (found,) = call(ad.compile(made, precision="bfloat16", threads=1), x)
    assert_used(tiles, "bfloat16")
    np.testing.assert_array_equal(found, product(x, weights(made), tiles=True))
    exact = x.astype(np.float64) @ weights(made)
    bound = (2.0**-7 + 2.0**-16 + k * 2.0**-23) * (abs(x) @ abs(weights(made)))
    assert (abs(found - exact) <= bound).all()


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_row_has_the_same_bits_in_every_batch(tiles: Emulator, precision: str) -> None:
    run, shared = (ad.compile(layer(), precision=precision, threads=n) for n in (1, 2))
    x = drawn(MOST, K)
    (whole,) = call(run, x)
    for rows in range(MOST + 1):
        assert_same(call(run, x[:rows]), [whole[:rows]])
        assert_same(call(run, x[MOST - rows :]), [whole[MOST - rows :]])
    for at in range(0, MOST, 7):
        assert_same(call(run, x[at : at + 1]), [whole[at : at + 1]])
    for rows in (1, 31, 128, MOST):
        assert_same(call(shared, x[:rows]), [whole[:rows]])
    assert_used(tiles, "int8" if precision == "int8" else "bfloat16")


def test_int8_has_the_bits_of_vectors(request: pytest.FixtureRequest) -> None:
    """Sums of integers are exact, so that the instructions do not matter."""
    vectors = {n: ad.compile(layer(n, 65), precision="int8", threads=1) for n in (64, 71, 130)}
    bytes_ = ad.compile(of_bytes(), threads=1)
    emulator = request.getfixturevalue("tiles")
    for k, run in vectors.items():
        made = ad.compile(layer(k, 65), precision="int8", threads=1)
        for rows in (1, 4, 5, 16, 17, 33, 100):
            x = drawn(rows, k)
            assert_same(call(made, x), call(run, x))
    assert_used(emulator, "int8")
    random = np.random.default_rng(6)
    for threads in (1, 2):
        made = ad.compile(of_bytes(), threads=threads)
        for rows, n, h, v in ((0, 0, 1, 1), (1, 1, 1, 1), (5, 1, 7, 9), (40, 3, 17, 33)):
            sizes = (rows, 64), (n, 9, h, v)
            given = [random.integers(0, 256, size).astype(np.uint8) for size in sizes]
            assert_same(call(made, *given), call(bytes_, *given))
    assert_used(emulator, "int8")


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
@pytest.mark.parametrize("window", [1, 3, 5])
def test_convolutions(tiles: Emulator, layout: str, window: int) -> None:
    """Windows of several lines; an image has its bits in every batch."""
    w = np.random.default_rng(2).standard_normal((69, 33, window, window)).astype(np.float32)
    run, shared = (convolution(w, layout, threads) for threads in (1, 2))
    x = drawn(5, 33, 9, 14)
    (whole,) = call(run, x)
    assert_used(tiles, "bfloat16")
    np.testing.assert_array_equal(whole, convolved(w, x))
    for start, stop in ((0, 1), (1, 3), (4, 5), (0, 0)):
        assert_same(call(run, x[start:stop]), [whole[start:stop]])
    assert_same(call(shared, x), [whole])
    for size in (1, 2):
        few = drawn(1, 33, size, size)
        assert_same(call(run, few), [convolved(w, few)])
    assert_used(tiles, "bfloat16")


@pytest.mark.parametrize("channels, window", [(64, 3), (48, 5)])
def test_convolutions_of_int8(request: pytest.FixtureRequest, channels: int, window: int) -> None:
    """The bits of vectors, and of each image alone."""
    w, x = drawn(69, channels, window, window), drawn(3, channels, 17, 19)
    given = ("auto", 1, "int8", "17, 19")
    (want,) = call(convolution(w, *given), x)
    emulator = request.getfixturevalue("tiles")
    run = convolution(w, *given)
    assert_same(call(run, x), [want])
    assert_used(emulator, "int8")
    assert_same(call(run, x[1:2]), [want[1:2]])


def test_saved_code(tiles: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file has code for tiles and code without; a process without tiles takes the other."""
    made, x = layer(), drawn(19, K)
    run = ad.compile(made, precision="bfloat16", threads=1)
    path = tmp_path / "layer.anydim"
    run.save(path, targets=[BFLOAT16, VECTORS])
    assert_same(call(ad.load(path), x), call(run, x))
    assert_used(tiles, "bfloat16")
    level = cpu.this_level()
    few = cpu.Level(level.name, level.architecture, level.flags - TILE_FLAGS)
    monkeypatch.setattr("anydim.deploy.load.this_level", lambda: few)
    (found,) = call(ad.load(path), x)
    np.testing.assert_array_equal(found, product(x, weights(made), tiles=False))
    assert not any(tiles.counted().values())


def test_saved_bytes(tiles: Emulator, tmp_path: Path) -> None:
    made, x = layer(), drawn(19, K)
    run = ad.compile(made, precision="int8", threads=1)
    run.save(tmp_path / "layer.anydim", targets=[BYTES])
    assert_same(call(ad.load(tmp_path / "layer.anydim"), x), call(run, x))
    assert_used(tiles, "int8")


@needs_compiler
@pytest.mark.parametrize("precision", ["bfloat16", "bfloat16x3", "int8"])
def test_a_compiler_of_c(tiles: Emulator, precision: str) -> None:
    """Files of C have the instructions, with the bits of LLVM's code, exported ones too."""
    made, x = layer(96, 65), drawn(37, 96)
    run, own = (ad.compile(made, precision=precision, threads=1, target=t) for t in ("llvm", "c"))
    want = call(run, x)
    tiles.counted()
    for rows in (1, 5, 37):
        assert_same(call(own, x[:rows]), [want[0][:rows]])
    assert_used(tiles, "int8" if precision == "int8" else "bfloat16")


def test_a_call_that_ends_early_releases_its_tiles(tiles: Emulator) -> None:
    """Tiles are released at the end of a launch; a limit of time ends a call between launches."""
    held = {"w": np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)}
    nodes = [node(f"t{i + 1} = MatMul(t{i}, w)") for i in range(40)]
    made = model(graph("chain", ["t0 f[rows, 64]"], nodes, ["t40 f[rows, 64]"], held))
    run, x = ad.compile(made, precision="bfloat16", threads=2), drawn(300, 64)
    run.limit_time(1e-4)
    with pytest.raises(ad.TimeLimitError):
        call(run, x)
    assert_used(tiles, "bfloat16")
    run.limit_time(None)
    call(run, x)
    assert_used(tiles, "bfloat16")


@pytest.mark.skipif(
    bool(reason()) or host.this_machine().machine.tiles, reason=reason() or "permission is granted"
)
def test_a_process_without_permission_uses_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor has tiles, as far as its features say, and Linux refuses the request."""
    asked = host.reported_text("GetHostCPUFeatures")
    features = f"{asked},+amx-bf16,+amx-int8,+amx-tile"
    values, given = cpu.cpuinfo_value, host.reported_text
    monkeypatch.setattr(cpu, "cpuinfo_value", lambda *names: f"{values(*names)} amx_tile")
    monkeypatch.setattr(host, "reported_text",
                        lambda name: features if "Features" in name else given(name))  # fmt: skip
    known = (cpu.tiles_allowed, cpu.this_level, host._describe_host)
    x = drawn(37, K)
    try:
        for each in known:
            each.cache_clear()
        assert not cpu.tiles_allowed()
        assert not host.this_machine().machine.tiles
        assert not host.this_machine().machine.pair_tiles
        for precision in ("bfloat16", "int8"):
            call(ad.compile(layer(), precision=precision, threads=1), x)
        (found,) = call(ad.compile(layer(), precision="bfloat16", threads=1), x)
    finally:
        monkeypatch.undo()
        for each in known:
            each.cache_clear()
    np.testing.assert_array_equal(found, product(x, weights(layer()), tiles=False))
