"""Promise: Fourier transforms of every length are numpy's; every way gives the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from anydim.base.dtypes import DTYPES, convert_array, float32, float64
from anydim.base.errors import GraphError
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.routines import fourier
from anydim.compiler.kernels.routines.fourier_plan import Sizes, plain, worked_on
from anydim.compiler.kernels.routines.spectra import DFT, STFT
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.routine_running import Running

BOX = Box.of(Dim("n", 0, 1 << 20), Dim("m", 0, 4096))
MACHINE = Machine(vector_bytes=64, registers=32)
LENGTHS = [0, 1, 2, 3, 4, 15, 16, 17, 30, 31, 32, 36, 37, 62, 97, 128, 400, 961, 1009, 1023, 1031]
WAYS = [
    ("m n 2", 1, False, False), ("m n 1", 1, False, True), ("n m 2", 0, True, False),
    ("m n 2", 1, True, True),
]  # fmt: skip


def transform(shape: str, axis: int, dtype=float32, machine=MACHINE, box=BOX, **given) -> Running:
    kind = TensorType(dtype, tuple(as_size(part) for part in shape.split()))
    attributes = {"length": as_size("n"), "axis": axis, "inverse": False, "onesided": False}
    return Running(DFT, [kind], box, machine, **(attributes | given))


def signal(shape: str, dtype=float32, **env) -> np.ndarray:
    extents = [env[part] if part in env else int(part) for part in shape.split()]
    values = np.random.default_rng(sum(extents)).standard_normal(extents)
    return convert_array(values, dtype.numpy)


def near(found: np.ndarray, right: np.ndarray, length: int, bits: int = 24) -> None:
    """Each number carries the rounding of every pass over all elements: log n steps, of the size of
    the largest result; those of a chirp have as many again, of a longer transform."""
    assert found.shape == right.shape and found.dtype == right.dtype
    if right.size:
        steps = 2 * np.log2(max(2, length)) + 2
        largest = np.abs(right).max()
        assert np.abs(found.astype("d") - right.astype("d")).max() <= steps * 2.0**-bits * largest


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize(("shape", "axis", "inverse", "onesided"), WAYS)
def test_every_length(shape, axis, inverse, onesided):
    code = transform(shape, axis, inverse=inverse, onesided=onesided)
    for n in LENGTHS:
        for m in (1, 9):
            x, env = signal(shape, n=n, m=m), {"n": n, "m": m}
            (right,) = code.expected([x], env)
            (found,) = code([x], env, parts=3, compiled=True)
            near(found, right, n)
            if 0 < n * m < 40 and not inverse:
                np.testing.assert_allclose(code([x], env)[0], found, atol=1e-5)


def test_double_precision():
    code = transform("m n 2", 1, float64)
    for n in [*range(50, 70), 4099, 32768, 39601, 65537]:
        x = signal("m n 2", float64, n=n, m=2)
        (found,) = code([x], {"n": n, "m": 2}, parts=2, compiled=True)
        near(found, code.expected([x], {"n": n, "m": 2})[0], n, 53)


@pytest.mark.parametrize("n", [60, 74])
def test_known_lengths_and_every_vector(n):
    for width in (16, 32, 64):
        machine = Machine(vector_bytes=width, registers=16)
        box = Box.of(Dim("m", 0, 100))
        code = transform(f"m {n} 2", 1, float64, machine, box, length=as_size(n))
        x = signal(f"m {n} 2", float64, m=5)
        (found,) = code([x], {"m": 5}, compiled=True)
        near(found, code.expected([x], {"m": 5})[0], n, 53)


@pytest.mark.parametrize("n", [10, 37, 1000])
def test_what_cancels_is_nothing_beside_great_numbers(n):
    """float32 is rounded at the end alone: a ramp's numbers are as near as their own rounding."""
    x = np.broadcast_to(np.arange(n, dtype=np.float32)[None, :, None], (2, n, 1)).copy()
    (found,) = transform("m n 1", 1)([x], {"n": n, "m": 2}, compiled=True)
    exact = np.fft.fft(x[..., 0].astype(np.float64))
    right = np.stack([exact.real, exact.imag], -1)
    np.testing.assert_allclose(found, right, rtol=2.0**-23, atol=1e-10)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_narrow_floats_are_computed_in_double_precision(name):
    dtype = DTYPES[name]
    code, x = transform("3 50 2", 1, dtype, length=as_size(50)), signal("3 50 2", dtype)
    (found,) = code([x], {}, compiled=True)
    (right,) = code.expected([x], {})
    wide, exact = found.astype("f"), right.astype("f")
    assert np.abs(wide - exact).max() <= np.abs(exact).max() * 2.0**-7


@pytest.mark.parametrize(("n", "parts"), [(24, 1), (37, 2), (130, 2)])
def test_the_same_bits_whatever_way(monkeypatch, n, parts):
    shape = f"m n {parts}"
    x = signal(shape, n=n, m=20)
    code = transform(shape, 1)
    (beside,) = code([x], {"n": n, "m": 20}, compiled=True)
    alone = [code([x[r : r + 1]], {"n": n, "m": 1}, compiled=True) for r in range(3)]
    monkeypatch.setattr(fourier, "LONG", 16)
    cut = transform(shape, 1)([x[:3]], {"n": n, "m": 3}, parts=5, compiled=True)[0]
    for row in range(3):
        np.testing.assert_array_equal(beside[row], alone[row][0][0])
        np.testing.assert_array_equal(beside[row], cut[row])


def test_what_is_not_finite_stays_in_its_row():
    x = signal("m n 2", n=37, m=20)
    code = transform("m n 2", 1)
    right = code([x], {"n": 37, "m": 20}, compiled=True)[0]
    x[3, 5, 0] = np.nan
    found = code([x], {"n": 37, "m": 20}, compiled=True)[0]
    assert np.isnan(found[3]).all()
    np.testing.assert_array_equal(np.delete(found, 3, 0), np.delete(right, 3, 0))


@pytest.mark.parametrize("length", ["3*n + 2", "n//2"])
def test_more_and_fewer_elements_than_given(length):
    code = transform("m n 2", 1, length=as_size(length))
    for n in (0, 1, 7, 50):
        x, env = signal("m n 2", n=n, m=2), {"n": n, "m": 2}
        near(code([x], env, compiled=True)[0], code.expected([x], env)[0], 3 * n + 60)


@pytest.mark.parametrize(("parts", "onesided"), [(1, True), (2, False)])
def test_frames(parts, onesided):
    types = [TensorType(float32, tuple(map(as_size, f"2 m {parts}".split())))]
    types.append(TensorType(float32, (as_size("n"),)))
    attributes = {"length": as_size("n"), "step": as_size(3), "onesided": onesided}
    code = Running(STFT, types, BOX, MACHINE, **attributes)
    for n, m in ((1, 1), (8, 8), (16, 100), (37, 70), (50, 61)):
        arrays = [signal(f"2 {m} {parts}"), signal(f"{n}")]
        env = {"n": n, "m": m}
        near(code(arrays, env, parts=2, compiled=True)[0], code.expected(arrays, env)[0], n)
        np.testing.assert_array_equal(
            code([a.astype("f") for a in arrays], env, compiled=True)[0],
            code(arrays, env, parts=3, compiled=True)[0],
        )


def test_lengths_that_are_worked_on():
    for length in range(2000):
        worked = worked_on(length)
        assert plain(worked) and (worked == max(1, length) or worked >= 2 * length - 1)
        bound = Sizes.of(as_size("n"), BOX).worked.evaluate({"n": length})
        assert worked <= bound
        root = max(d for d in range(1, worked + 1) if worked % d == 0 and d * d <= worked)
        assert worked // root <= min(bound, bound // 64 + 497)


def test_mistakes():
    x = TensorType(float32, (as_size("n"), as_size(3)))
    attributes = {"length": 3, "axis": 0, "inverse": False, "onesided": False}
    with pytest.raises(GraphError, match="a last axis of size 1 or 2"):
        DFT.infer([x], attributes, BOX)
    pair = TensorType(float32, (as_size("n"), as_size(2)))
    with pytest.raises(GraphError, match="axis 1 holds real and imaginary parts"):
        DFT.infer([pair], attributes | {"axis": 1}, BOX)
    with pytest.raises(GraphError, match="expected floats"):
        DFT.infer([TensorType(DTYPES["int32"], pair.shape)], attributes, BOX)
