"""Promise: products on a CUDA device are cuBLASLt's where it is installed, and right.

The library is one in Python: what a real one makes of the same calls is for `make test-gpu`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.base import settings
from anydim.base.dtypes import DType, bfloat16, float16, float32, float64
from anydim.compiler.pipeline import run_pipeline
from anydim.compiler.targets.device_targets import placed_devices
from anydim.runtime.devices.cublaslt import WORDS, CublasLt, Products, cublaslt
from anydim.runtime.devices.cuda import CudaDevice
from anydim.runtime.devices.libcuda import Library
from tests.cuda_on_host import cuda_on_host, has_cxx
from tests.unit.runtime.devices.fake_cublaslt import FakeCublasLt, gelu
from tests.unit.runtime.devices.fake_cuda import STREAM, FakeCuda

KINDS = {"float32": numpy.float32, "tf32": numpy.float32, "float64": numpy.float64}
SHAPES = [(1, 1, 1), (3, 4, 5), (1, 4, 5), (3, 1, 5), (3, 4, 1), (1, 1, 7), (17, 33, 9)]
WORKSPACE = numpy.zeros(4096, numpy.uint8)


def words_of(**given: int) -> list[int]:
    """The sizes of a kernel of a product, those that are not given 0 or none."""
    rest = dict.fromkeys(WORDS, 0) | dict.fromkeys(("a", "b", "c", "r", "bias"), -1)
    rest |= {"batch": 1, "usable": 1, "a": 0, "b": 1, "c": 2}
    return list((rest | given).values())


def multiply(products: Products, kind: str, addresses: list[int], words: list[int]) -> bool:
    symbol = f"cublaslt_{kind}_{KINDS[kind].__name__}_none_0"
    return products.multiply(symbol, [*addresses, *words], WORKSPACE.ctypes.data, 4096)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_products_of_any_layout(kind: str, turned: tuple[bool, bool]) -> None:
    fake, chance = FakeCublasLt(), numpy.random.default_rng(0)
    products = CublasLt(fake).products(STREAM)
    for m, n, k in SHAPES:
        for batch in (1, 3):
            a = chance.normal(size=(batch, k, m) if turned[0] else (batch, m, k))
            b = chance.normal(size=(batch, n, k) if turned[1] else (batch, k, n))
            a, b = a.astype(KINDS[kind]), b.astype(KINDS[kind])
            c = numpy.full((batch, m, n), 9, KINDS[kind])
            words = words_of(
                m=m, n=n, k=k, batch=batch, a_m=1 if turned[0] else k, a_k=m if turned[0] else 1,
                a_batch=m * k, b_k=1 if turned[1] else n, b_n=k if turned[1] else 1,
                b_batch=k * n, c_m=n, c_batch=m * n,
            )  # fmt: skip
            assert multiply(products, kind, [x.ctypes.data for x in (a, b, c)], words)
            a, b = (x.swapaxes(1, 2) if turn else x for x, turn in zip((a, b), turned))
            numpy.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-6)  # sums of 9 products
    assert fake.streams == {STREAM}


def test_what_the_library_does_not_take() -> None:
    fake = FakeCublasLt()
    products = CublasLt(fake).products(STREAM)
    array = numpy.zeros(64, numpy.float32)
    x = array.ctypes.data
    good = {"m": 3, "n": 4, "k": 5, "a_m": 5, "a_k": 1, "b_k": 4, "b_n": 1, "c_m": 4}
    assert multiply(products, "float32", [x, x, x], words_of(**good))
    for name, number in (("a_m", 2), ("a_k", 2), ("b_k", 3), ("b_n", 2), ("c_m", 3), ("usable", 0)):
        bad = words_of(**(good | {name: number}))  # rows that overlap, columns apart
        assert not multiply(products, "float32", [x, x, x], bad)
    del fake.objects[1]  # the handle
    with pytest.raises(Exception, match="INVALID_VALUE"):
        multiply(products, "float32", [x, x, x], words_of(**good))


def test_an_algorithm_serves_a_class_of_sizes() -> None:
    fake = FakeCublasLt()
    products = CublasLt(fake).products(STREAM)
    array = numpy.zeros(1 << 12, numpy.float32)
    x = array.ctypes.data

    def start(m: int) -> None:
        words = words_of(m=m, n=8, k=8, a_m=8, a_k=1, b_k=8, b_n=1, c_m=8)
        assert multiply(products, "float32", [x, x, x], words)

    for m in (16, 17, 31, 16, 25):
        start(m)
    assert len(fake.asked) == 1
    start(32)
    assert len(fake.asked) == 2
    for m in range(33, 33 + 300):  # descriptors are evicted
        start(m)
    assert len(fake.objects) <= 5 * 256 + 2
    fake.exact = True
    asked = len(fake.asked)
    products = CublasLt(fake).products(STREAM)
    for m in (16, 17):  # each asks again: the algorithm of the other is refused
        start(m)
    assert len(fake.asked) == asked + 2


NAMES = ("plain", "bias", "relu", "gelu", "residual", "erf")


def net(dtype: DType) -> ad.Builder:
    """Products with all epilogues, of a transpose, and with a factor for all batches."""
    g = ad.Builder("net")
    b, m, n = g.dim("b", 0, 9), g.dim("m", 0, 60), g.dim("n", 0, 60)
    x, c = g.input("x", dtype, (b, m, 7)), g.input("c", dtype, (n,))
    r = g.input("r", dtype, (b, m, n))
    h = {name: g.matmul(x, g.input(f"w_{name}", dtype, (7, n))) for name in NAMES}
    g.output("plain", h["plain"])
    g.output("transposed", g.matmul(g.transpose(h["plain"], perm=(0, 2, 1)), x))
    g.output("bias", g.add(h["bias"], c))
    g.output("relu", g.relu(g.add(h["relu"], c)))
    g.output("gelu", g.gelu_tanh(g.add(h["gelu"], c)))
    g.output("residual", g.add(r, g.add(h["residual"], c)))
    g.output("erf", g.gelu(g.add(h["erf"], c)))
    return g


@pytest.fixture
def installed() -> Iterator[tuple[FakeCublasLt, CudaDevice]]:
    cuda = FakeCuda(capacity=1 << 28, items=128)
    fake = FakeCublasLt(cuda.inside)
    library = CublasLt(fake)
    with cuda_on_host():
        yield fake, CudaDevice("cuda:0", 0, Library(cuda), lambda: library)


# of the largest result: sums of float32, rounded to the type of the result
BOUNDS = {float32: 1e-5, float64: 1e-13, float16: 2.0**-9, bfloat16: 2.0**-6}


@pytest.mark.slow
@pytest.mark.skipif(not has_cxx(), reason="no C++ compiler")
@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
def test_programs(dtype: DType, installed: tuple[FakeCublasLt, CudaDevice]) -> None:
    fake, device = installed
    placed: dict[str, Any] = {"devices": {"accel": device}, "placement": {"*": "accel"}}
    model = ad.compile(net(dtype), **placed)
    kinds = {chosen.schedule.split("(")[0] for chosen in model.report.chosen}
    assert kinds == {"library", "teams"}
    assert "by the library of the device" in model.explain(details=True)
    chance = numpy.random.default_rng(0)
    for b, m, n in ((0, 3, 3), (1, 1, 1), (2, 0, 5), (3, 17, 60), (9, 60, 1), (2, 32, 32)):
        shapes = {"x": (b, m, 7), "c": (n,), "r": (b, m, n)}
        shapes |= {f"w_{name}": (7, n) for name in NAMES}
        given = {name: chance.normal(size=s).astype(dtype.numpy) for name, s in shapes.items()}
        made = model(**given)
        wide = {name: array.astype(numpy.float64) for name, array in given.items()}
        h = {name: wide["x"] @ wide[f"w_{name}"] for name in NAMES}
        c = wide["c"]
        right = {
            "plain": h["plain"], "transposed": h["plain"].swapaxes(1, 2) @ wide["x"],
            "bias": h["bias"] + c, "relu": numpy.maximum(h["relu"] + c, 0),
            "gelu": gelu(h["gelu"] + c), "residual": h["residual"] + c + wide["r"],
        }  # fmt: skip
        for name, expected in right.items():
            bound = BOUNDS[dtype] * max(1.0, abs(expected).max(initial=0))
            assert (abs(made[name].astype(numpy.float64) - expected) <= bound).all(), name
    called = {call[4:] for call in fake.calls}
    fused = {("none", True, False), ("relu", True, False), ("gelu", True, False)}
    assert dtype == float64 or called >= {*fused, ("none", True, True)}
    assert ("none", False, False) in called


@pytest.mark.slow
@pytest.mark.skipif(not has_cxx(), reason="no C++ compiler")
def test_a_saved_program_needs_no_library(
    installed: tuple[FakeCublasLt, CudaDevice], tmp_path: Path
) -> None:
    g = ad.Builder("product")
    x, w = g.input("x", float32, (g.dim("m", 0, 60), 7)), g.input("w", float32, (7, 5))
    g.output("y", g.relu(g.matmul(x, w)))
    fake, device = installed
    model = ad.compile(g, devices={"accel": device}, placement={"*": "accel"})
    fixed = re.search(r"\+ (\d+) bytes", str(model.memory))
    assert fixed is not None and int(fixed[1]) >= 16 << 16  # the workspace of 16 workers
    model.save(tmp_path / "product.anydim")
    bare = CudaDevice("cuda:0", 0, Library(FakeCuda(capacity=1 << 28, items=128)))
    given = {"x": numpy.ones((3, 7), numpy.float32), "w": numpy.ones((7, 5), numpy.float32)}
    for each, calls in ((device, 1), (bare, 0)):
        before = len(fake.calls)
        again = ad.load(tmp_path / "product.anydim", devices={"accel": each})
        assert (again(**given)["y"] == 7).all()
        assert len(fake.calls) - before == calls


def test_a_library_may_round_where_that_is_allowed(
    installed: tuple[FakeCublasLt, CudaDevice],
) -> None:
    g = ad.Builder("product")
    x = g.input("x", ad.float32, (g.dim("n", 0, 60), 7))
    g.output("y", g.matmul(x, g.input("w", ad.float32, (7, 5))))
    opened = placed_devices({"accel": installed[1]})["accel"]
    for each, name in ((opened, "float32"), (opened.rounding(), "tf32")):
        compiled = run_pipeline(g.graph(), None, 1, lambda *_: None)
        (launch,) = compiled.again(each.target, 1).launches
        assert launch.launch.kernel.name.startswith(f"cublaslt_{name}_float32_none_")
        assert next(name for name, _ in launch.launch.versions) == "library"
    with settings.override(cublaslt=False):
        assert installed[1].features == ""


def test_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "anydim.runtime.devices.cublaslt.library_paths", lambda *_: iter(["libnone.so"])
    )
    cublaslt.cache_clear()
    with pytest.raises(ad.OptionError, match="cuBLASLt is missing: libnone"):
        cublaslt()
    assert CudaDevice("cuda:0", 0, Library(FakeCuda())).features == ""
    cublaslt.cache_clear()
