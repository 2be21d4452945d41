"""Promise: plain products on a CUDA device are cuBLAS's where that is asked for, and right.

The library is one in Python: what a real one makes of the same calls is for `make test-gpu`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

import numpy
import pytest

import anydim as ad
from anydim.base.dtypes import DType, bfloat16, float16, float32, float64
from anydim.base.errors import DeviceError
from anydim.compiler.kernels.gpu import library_matmul
from anydim.compiler.pipeline import run_pipeline
from anydim.compiler.targets.device_targets import placed_devices, with_templates
from anydim.runtime.devices.cublas import Cublas, cublas
from anydim.runtime.devices.cuda import CudaDevice
from anydim.runtime.devices.libcuda import Library
from tests.cuda_on_host import cuda_on_host, has_cxx
from tests.unit.runtime.devices.fake_cublas import FakeCublas
from tests.unit.runtime.devices.fake_cuda import STREAM, FakeCuda
from tests.unit.runtime.devices.native_verbs import Native

KINDS = {"float32": numpy.float32, "tf32": numpy.float32, "float64": numpy.float64}
SHAPES = [(1, 1, 1), (3, 4, 5), (1, 4, 5), (3, 1, 5), (3, 4, 1), (3, 4, 0), (1, 1, 7)]


class Products:
    """A device with both libraries; kernels that multiply note that cuBLAS did not."""

    def __init__(self) -> None:
        self.cuda, self.fake = FakeCuda(), FakeCublas()
        self.device = CudaDevice("cuda:0", 0, Library(self.cuda), lambda: Cublas(self.fake))
        self.verbs = Native(self.device)

    def multiply(self, kind: str, words: Sequence[int]) -> bool:
        """Launch a product of these parameters; whether cuBLAS computed it."""
        symbol = f"cublas_{kind}_{KINDS[kind].__name__}_0"
        self.cuda.kernels[symbol] = lambda *_: None
        entry = self.device.load({"m": symbol.encode()}, [symbol])[symbol]
        block, before = (ctypes.c_int64 * 17)(*words), len(self.cuda.launches)
        self.verbs.launch(entry, ctypes.addressof(block), 3, 14, 1, 1, 0, 0, 0, 0)
        return len(self.cuda.launches) == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_products_of_any_layout(kind: str, turned: tuple[bool, bool]) -> None:
    work, chance = Products(), numpy.random.default_rng(0)
    for m, n, k in SHAPES:
        for batch in (1, 3):
            a = chance.normal(size=(batch, k, m) if turned[0] else (batch, m, k))
            b = chance.normal(size=(batch, n, k) if turned[1] else (batch, k, n))
            a, b = a.astype(KINDS[kind]), b.astype(KINDS[kind])
            c = numpy.full((batch, m, n), 9, KINDS[kind])
            of_a = (0, 1, m, m * k) if turned[0] else (0, k, 1, m * k)
            of_b = (0, 1, k, n * k) if turned[1] else (0, n, 1, n * k)
            words = [x.ctypes.data for x in (a, b, c)]
            words += [m, n, k, batch, *of_a, *of_b, n, m * n]
            assert work.multiply(kind, words)
            a, b = (x.swapaxes(1, 2) if turn else x for x, turn in zip((a, b), turned))
            numpy.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-6)  # sums of 7 products
    assert list(work.fake.handles.values()) == [STREAM]


def test_what_the_library_does_not_take() -> None:
    work = Products()
    x = numpy.zeros(64, numpy.float32).ctypes.data
    good = [3, 4, 5, 1, 0, 5, 1, 0, 0, 4, 1, 0, 4, 0]
    assert work.multiply("float32", [x, x, x, *good])
    for place, number in ((5, 2), (5, 4), (6, 2), (9, 3), (10, 2), (12, 3), (0, 1 << 31)):
        bad = [*good[:place], number, *good[place + 1 :]]  # rows that overlap, columns apart, large
        assert not work.multiply("float32", [x, x, x, *bad])
    work.fake.handles.clear()
    with pytest.raises(DeviceError, match="Ex: CUBLAS_STATUS_INVALID_VALUE"):
        work.multiply("float32", [x, x, x, *good])


def chain(dtype: DType) -> ad.Builder:
    """A product with a bias behind it, one of its transpose, one with a factor for all batches."""
    g = ad.Builder("chain")
    b, m, n = g.dim("b", 0, 9), g.dim("m", 0, 60), g.dim("n", 0, 60)
    x, w = g.input("x", dtype, (b, m, 7)), g.input("w", dtype, (7, n))
    h = g.matmul(x, w)
    g.output("y", g.add(h, g.input("c", dtype, (n,))))
    g.output("z", g.matmul(g.transpose(h, perm=(0, 2, 1)), x))
    g.output("v", g.matmul(g.transpose(w, perm=(1, 0)), g.transpose(x, perm=(0, 2, 1))))
    return g


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FakeCublas, CudaDevice]]:
    cuda = FakeCuda(capacity=1 << 28, items=128)
    fake = FakeCublas(cuda.inside)
    monkeypatch.setattr("anydim.runtime.devices.cublas.cublas", lambda: Cublas(fake))
    with cuda_on_host():
        yield fake, CudaDevice("cuda:0", 0, Library(cuda), lambda: Cublas(fake))


# of the largest result: sums of float32, rounded to the type of the result
BOUNDS = {float32: 1e-5, float64: 1e-13, float16: 2.0**-9, bfloat16: 2.0**-6}


@pytest.mark.slow
@pytest.mark.skipif(not has_cxx(), reason="no C++ compiler")
@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
def test_programs(dtype: DType, installed: tuple[FakeCublas, CudaDevice]) -> None:
    fake, device = installed
    placed = {"devices": {"accel": device}, "placement": {"*": "accel"}}
    model = ad.compile(chain(dtype), strategy='library("cublas")', **placed)
    kinds = [chosen.schedule.split("(")[0] for chosen in model.report.chosen]
    assert sorted(kinds) == ["plain", "plain", "plain", "teams"]
    assert "by the library of the device" in model.explain(details=True)
    chance = numpy.random.default_rng(0)
    for b, m, n in ((0, 3, 3), (1, 1, 1), (2, 0, 5), (3, 17, 60), (9, 60, 1), (2, 31, 33)):
        x, w, c = (chance.normal(size=s).astype(dtype.numpy) for s in ((b, m, 7), (7, n), (n,)))
        made = model(x=x, w=w, c=c)
        x, w, c = (array.astype(numpy.float64) for array in (x, w, c))
        h = x @ w
        for name, right in (
            ("y", h + c), ("z", h.swapaxes(1, 2) @ x), ("v", w.T @ x.swapaxes(1, 2)),
        ):  # fmt: skip
            bound = BOUNDS[dtype] * max(1.0, abs(right).max(initial=0))
            assert (abs(made[name].astype(numpy.float64) - right) <= bound).all()
    assert len(fake.calls) >= 3 * 4


def test_a_library_may_round_where_that_is_allowed(
    installed: tuple[FakeCublas, CudaDevice],
) -> None:
    g = ad.Builder("product")
    x = g.input("x", ad.float32, (g.dim("n", 0, 60), 7))
    g.output("y", g.matmul(x, g.input("w", ad.float32, (7, 5))))
    opened = placed_devices({"accel": installed[1]})["accel"]
    asked_for = with_templates({"accel": opened}, {"cuda": (library_matmul.TEMPLATE,)})["accel"]
    for each, name in ((asked_for, "float32"), (asked_for.rounding(), "tf32")):
        compiled = run_pipeline(g.graph(), None, 1, lambda *_: None)
        (launch,) = compiled.again(each.target, 1).launches
        assert launch.launch.kernel.name.startswith(f"cublas_{name}_float32_")


def test_a_library_without_a_device_or_without_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ad.OptionError, match="cuBLAS is missing: libnone"):
        monkeypatch.setattr(
            "anydim.runtime.devices.cublas.library_paths", lambda *_: iter(["libnone.so"])
        )
        cublas.cache_clear()
        ad.compile(chain(float32), strategy='library("cublas")')
    monkeypatch.setattr("anydim.runtime.devices.cublas.cublas", lambda: Cublas(FakeCublas()))
    for devices in (None, {"accel": "cpu:0"}):
        with pytest.raises(ad.OptionError, match="for 'cuda' devices, but the program has none"):
            ad.compile(chain(float32), strategy='library("cublas")', devices=devices)
