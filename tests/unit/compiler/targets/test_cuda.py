"""Promise: CUDA texts compute what kernels mean, NVRTC takes them, and programs launch them.

No device is needed: texts run as C++ on this processor, under a driver library in Python.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator

import numpy
import pytest

import anydim as ad
from anydim.base import settings
from anydim.base.dtypes import DType, bfloat16, float16, float32
from anydim.base.errors import OptionError
from anydim.compiler.pipeline import run_pipeline
from anydim.compiler.targets.cuda.nvrtc import nvrtc
from anydim.compiler.targets.target import Target
from anydim.compiler.targets.targets import target
from anydim.runtime.devices.cuda import CudaDevice
from anydim.runtime.devices.libcuda import Library
from bench import cubins as cubins_of
from tests import attentions
from tests.cuda_on_host import cuda_on_host, has_cxx
from tests.unit.compiler.kernels.row_cases import CASES, Case
from tests.unit.compiler.kernels.test_rows import check, prepared
from tests.unit.runtime.devices.fake_cuda import FakeCuda
from tests.unit.runtime.devices.native_verbs import forbidden

SIZES = (0, 1, 3, 64, 100)


def has_nvrtc() -> bool:
    try:
        return bool(nvrtc())
    except OptionError:
        return False


needs_cxx = pytest.mark.skipif(not has_cxx(), reason="no C++ compiler")
needs_nvrtc = pytest.mark.skipif(not has_nvrtc(), reason="no NVRTC")


@pytest.fixture
def on_host() -> Iterator[None]:
    with cuda_on_host():
        yield


def net() -> ad.Builder:
    """Products, a normalisation, functions, a reduction across, a concatenation."""
    chance = numpy.random.default_rng(0)
    g = ad.Builder("net")
    n = g.dim("n", 0, 100)
    x = g.input("x", ad.float32, (n, 24))
    w = g.constant(chance.normal(size=(24, 24)).astype(numpy.float32))
    h = g.relu(g.matmul(x, w))
    h = g.softmax(g.tanh(g.matmul(h, w)), axis=-1)
    g.output("y", g.concat(h, g.erf(x), axis=1))
    g.output("total", g.reduce_sum(h, axes=(0,)))
    return g


def attention() -> ad.Builder:
    """Scores, softmax and the weighted sum; keys as many as rows."""
    g = ad.Builder("attention")
    x = g.input("x", ad.float32, (g.dim("n", 0, 100), 24))
    scores = g.matmul(x, g.transpose(x, perm=(1, 0)))
    g.output("y", g.matmul(g.softmax(scores, axis=-1), x))
    return g


def convolution() -> ad.Builder:
    """Windows over rows of a picture."""
    g = ad.Builder("convolution")
    n = g.dim("n", 0, 100)
    x = g.input("x", ad.float32, (n, 24))
    w = g.constant(numpy.random.default_rng(1).normal(size=(5, 1, 3, 3)).astype(numpy.float32))
    picture = g.reshape(x, shape=(1, 1, n, 24))
    g.output("y", g.conv(picture, w, pads=(1, 1, 1, 1)))
    return g


@pytest.mark.slow
@needs_cxx
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rows_of_one_lane(case: Case, on_host: None) -> None:
    with settings.override(target="cuda"):
        made = prepared(case.name, 4)
        for columns in (1, 5, 17):
            env = {"R": 3, "S": 2, "C": columns, "B": 2, "V": 5}
            check(case, made, env, float32, parts=2, compiled=True)


@pytest.mark.slow
@needs_cxx
@pytest.mark.parametrize("made_of", [net, attention, convolution])
@pytest.mark.parametrize("graphs", [0, 4])
def test_a_program_through_the_driver(
    made_of: Callable[[], ad.Builder], graphs: int, on_host: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeCuda(capacity=1 << 28, items=128)
    device = CudaDevice("cuda:0", 0, Library(fake), graphs=graphs)
    model = ad.compile(made_of(), devices={"accel": device}, placement={"*": "accel"})
    alone = ad.compile(made_of())
    forbidden(monkeypatch, device)
    for rows in SIZES:
        x = numpy.random.default_rng(rows).normal(size=(rows, 24)).astype(numpy.float32)
        made, expected = model(x=x), alone(x=x)
        for name, array in expected.items():
            # sums of 24 products, which other widths of tiles may add in another order
            numpy.testing.assert_allclose(made[name], array, rtol=2e-5, atol=2e-6)
    assert fake.launches
    model.trim()
    blocks = len(fake.blocks)
    x = numpy.random.default_rng(1).normal(size=(100, 24)).astype(numpy.float32)
    for rows in (7, 100, 0, 7, 100, 0, 7, 100):
        made, expected = model(x=x[:rows]), alone(x=x[:rows])
        for name, array in expected.items():
            numpy.testing.assert_allclose(made[name], array, rtol=2e-5, atol=2e-6)
    assert (fake.counts["replays"] > 0) == (graphs > 0 and made_of is net)  # others are short
    model.trim()
    assert len(fake.blocks) == blocks
    assert not fake.graphs


def product(dtype: DType) -> ad.Builder:
    """A product of two inputs, with what follows it."""
    g = ad.Builder("product")
    m, n, k = g.dim("m", 0, 200), g.dim("n", 0, 200), g.dim("k", 0, 200)
    left, right = g.input("left", dtype, (m, k)), g.input("right", dtype, (k, n))
    g.output("y", g.relu(g.matmul(left, right)))
    return g


# the largest error over the sum of all |a * b|: both factors rounded to 11 bits, or the result
PRECISIONS = {float32: 2.0**-10, float16: 2.0**-11, bfloat16: 2.0**-8}


@pytest.mark.slow
@needs_cxx
@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_products_by_warps(dtype: DType, on_host: None) -> None:
    device = CudaDevice("cuda:0", 0, Library(FakeCuda(capacity=1 << 28, items=128)))
    placed = {"devices": {"accel": device}, "placement": {"*": "accel"}}
    precision = "tf32" if dtype == float32 else None
    model = ad.compile(product(dtype), precision=precision, **placed)
    assert [chosen.schedule.split("(")[0] for chosen in model.report.chosen] == ["fragments"]
    chance = numpy.random.default_rng(0)
    for m, n, k in ((0, 3, 5), (3, 4, 0), (1, 1, 1), (17, 40, 33), (64, 64, 64), (70, 131, 37)):
        left, right = (chance.normal(size=shape).astype(dtype.numpy) for shape in ((m, k), (k, n)))
        y = model(left=left, right=right)["y"].astype(numpy.float64)
        left, right = left.astype(numpy.float64), right.astype(numpy.float64)
        bound = PRECISIONS[dtype] * (abs(left) @ abs(right))
        assert (abs(y - numpy.maximum(left @ right, 0)) <= bound).all()


@pytest.mark.slow
@needs_cxx
@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_rows_of_16_bits(dtype: DType, on_host: None) -> None:
    g = ad.Builder("halves")
    x = g.input("x", dtype, (g.dim("n", 0, 100), 24))
    g.output("y", g.softmax(g.tanh(x), axis=-1))
    g.output("total", g.reduce_sum(x, axes=(0,)))
    device = CudaDevice("cuda:0", 0, Library(FakeCuda(capacity=1 << 28, items=128)))
    model = ad.compile(g, devices={"accel": device}, placement={"*": "accel"})
    unit = PRECISIONS[dtype]
    for rows in SIZES:
        given = numpy.random.default_rng(rows).normal(size=(rows, 24)).astype(dtype.numpy)
        made, wide = model(x=given), given.astype(numpy.float64)
        powers = numpy.exp(numpy.tanh(wide))
        shares = powers / powers.sum(-1, keepdims=True)
        # tanh, the difference, the power and the share are rounded to it
        numpy.testing.assert_allclose(made["y"].astype(float), shares, rtol=8 * unit)
        numpy.testing.assert_allclose(
            made["total"].astype(float), wide.sum(0), rtol=unit, atol=unit * 1e-3
        )
    special = numpy.array([[numpy.inf, -numpy.inf, numpy.nan, 0.0] * 6], dtype.numpy)
    total = model(x=special)["total"].astype(numpy.float32)
    numpy.testing.assert_array_equal(total, special[0].astype(numpy.float32))


def rows(dtype: DType) -> ad.Builder:
    """Reductions of rows and of columns, functions of elements."""
    g = ad.Builder("rows")
    n, c = g.dim("n", 0, 64), g.dim("c", 0, 1 << 14)
    x, w = g.input("x", dtype, (n, c)), g.input("w", dtype, (c,))
    g.output("shares", g.softmax(x, axis=-1))
    g.output("norm", g.layer_norm(x, w, w, axis=-1))
    g.output("largest", g.reduce_max(x, axes=(1,)))
    g.output("columns", g.reduce_sum(x, axes=(0,)))
    g.output("chain", g.relu(g.add(x, w)))
    g.output("above", g.greater(g.gelu(x), g.mul(x, x)))
    return g


@pytest.mark.slow
@needs_cxx
@pytest.mark.parametrize("dtype", [float32, float16], ids=str)
def test_rows_of_all_teams(dtype: DType, on_host: None) -> None:
    device = CudaDevice("cuda:0", 0, Library(FakeCuda(capacity=1 << 28, items=128)))
    model = ad.compile(rows(dtype), devices={"accel": device}, placement={"*": "accel"})
    assert {chosen.schedule.split("(")[0] for chosen in model.report.chosen} == {"teams"}
    alone, bound = ad.compile(rows(dtype)), 3e-5 if dtype == float32 else 4e-3
    sizes = [(0, 5), (3, 0), (1, 1), (2, 3), (3, 4), (33, 8), (5, 31), (5, 32), (5, 33), (2, 127)]
    sizes += [(9, 512), (3, 514), (3, 2048), (2, 2052), (1, 4096), (2, 4097), (2, 4100)]
    for n, c in sizes:
        chance = numpy.random.default_rng(c)
        given = {"x": chance.normal(size=(n, c)), "w": chance.normal(size=c)}
        given = {name: array.astype(dtype.numpy) for name, array in given.items()}
        made, expected = model(**given), alone(**given)
        for name, array in expected.items():  # sums of up to 4100 terms in another order
            numpy.testing.assert_allclose(
                made[name].astype(float), array.astype(float), rtol=bound, atol=bound
            )


@pytest.mark.slow
@needs_cxx
@pytest.mark.parametrize("depth", [7, 64, 128, 200])
def test_attention_in_tiles(depth: int, on_host: None) -> None:
    device = CudaDevice("cuda:0", 0, Library(FakeCuda(capacity=1 << 28, items=128)))
    placed = {"devices": {"accel": device}, "placement": {"*": "accel"}}
    model = ad.compile(attentions.attention(depth), **placed)
    assert [chosen.schedule.split("(")[0] for chosen in model.report.chosen] == ["running"]
    for queries, keys in ((0, 5), (5, 0), (1, 1), (1, 70), (15, 33), (17, 17), (65, 64)):
        given = attentions.inputs(depth, queries, keys)
        made = model(**given)["y"]
        # float32 sums of up to 200 terms
        numpy.testing.assert_allclose(made, attentions.expected(given), rtol=1e-4, atol=1e-5)
    given["k"][0, 1, 40, 3], given["mask"][1] = numpy.nan, -numpy.inf
    with numpy.errstate(all="ignore"):
        made, right = model(**given)["y"], attentions.expected(given)
    numpy.testing.assert_allclose(made, right, rtol=1e-4, atol=1e-5)
    alone = model(**(given | {"q": given["q"][:, :, 3:4]}))["y"]
    numpy.testing.assert_array_equal(alone[:, :, 0], made[:, :, 3])


def chosen_for(dtype: DType, architecture: str) -> set[str]:
    """The schedules of the product on an architecture."""
    compiled = run_pipeline(product(dtype).graph(), None, 1, lambda *_: None)
    launches = compiled.again(target("cuda", architecture), 1).launches
    return {launch.launch.schedule.split("(")[0] for launch in launches}


def test_float32_stays_float32_unless_tf32_is_allowed() -> None:
    assert chosen_for(float32, "sm_90") == {"tiles"}
    assert chosen_for(float32, "sm_90+tf32") == {"fragments"}
    assert chosen_for(float32, "sm_75+tf32") == {"tiles"}
    assert chosen_for(bfloat16, "sm_80") == {"fragments"}
    assert chosen_for(float16, "sm_75") == {"tiles"}


def cubins(graph: ad.Builder, code: Target) -> list[bytes]:
    compiled = run_pipeline(graph.graph(), None, 1, lambda *_: None)
    kernels = compiled.again(code, 1).made.kernels
    objects = code.compile(code.sources(kernels.values(), code.processor)).code
    assert set(objects) == set(kernels)
    return list(objects.values())


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_nvrtc_takes_the_kernels(architecture: str) -> None:
    made = cubins(net(), target("cuda", architecture))
    made += cubins(product(bfloat16), target("cuda", architecture))
    made += cubins(product(float32), target("cuda", f"{architecture}+tf32"))
    assert all(data.startswith(b"\x7fELF") for data in made)


def ptx(graph: ad.Builder) -> str:
    """The PTX of the only kernel of a program."""
    compiled, code = run_pipeline(graph.graph(), None, 1, lambda *_: None), target("cuda", "sm_90")
    kernels = compiled.again(code, 1).made.kernels
    (source,) = code.sources(kernels.values(), code.processor).values()
    library, made, size = nvrtc().library, ctypes.c_void_p(), ctypes.c_size_t()
    given = (ctypes.c_char_p * 1)(b"-arch=compute_90")
    library.nvrtcCreateProgram(ctypes.byref(made), source.text().encode(), b"k.cu", 0, None, None)
    assert not library.nvrtcCompileProgram(made, 1, given)
    library.nvrtcGetPTXSize(made, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    library.nvrtcGetPTX(made, text)
    library.nvrtcDestroyProgram(ctypes.byref(made))
    return text.value.decode()


@needs_nvrtc
@pytest.mark.parametrize("dtype", [float32, float16, bfloat16], ids=str)
@pytest.mark.parametrize("name", ["gelu", "softmax"])
def test_accesses_are_of_16_bytes(name: str, dtype: DType) -> None:
    g = ad.Builder(name)
    x = g.input("x", dtype, (g.dim("n", 0, 1 << 20), 4096))
    g.output("y", g.gelu(x) if name == "gelu" else g.softmax(x, axis=-1))
    text = ptx(g)
    assert re.search(r"ld\.global\.(nc\.)?v4", text)
    assert "st.global.v4" in text
    assert "__local_depot" not in text  # small arrays are in registers
    assert not re.search(r"(div|rem)\.[su](32|64)", text)  # nor are indices divided
    assert name == "gelu" or "shfl.sync.bfly" in text


@pytest.mark.parametrize("name", ["sm_1", "sm_90+tf", "sm_90+"])
def test_architectures_that_there_are_not(name: str) -> None:
    with pytest.raises(OptionError, match=re.escape(f"unknown CUDA architecture '{name}'")):
        target("cuda", name)


@pytest.mark.slow
@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90+tf32", "sm_100"])
@pytest.mark.parametrize("model", cubins_of.MODELS)
def test_kernels_of_whole_models_are_cubins(model: str, architecture: str) -> None:
    made = list(cubins_of.cubins(model, architecture))
    assert made
    for each in made:
        assert 0 < each.needs.registers <= 255, each
        assert each.needs.shared <= 48 << 10, each  # of a block on any device
        assert each.needs.spilled <= 64, each  # bytes: hardly any, if at all
