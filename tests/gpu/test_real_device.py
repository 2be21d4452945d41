"""Promise: what the CUDA target makes is right on a real device; skipped where there is none."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.base import settings
from anydim.base.dtypes import DType, bfloat16
from anydim.base.errors import DeviceError
from anydim.runtime.devices.cuda import CudaDevice, list_cuda_devices
from tests import attentions
from tests.unit.compiler.passes.ragged import test_rows as ragged_rows

ON = {"devices": {"accel": "cuda:0"}, "placement": {"*": "accel"}}
SIZES = (0, 1, 2, 31, 32, 33, 127, 1000, 4096)


def has_device() -> bool:
    try:
        return bool(list_cuda_devices())
    except DeviceError:
        return False


pytestmark = pytest.mark.skipif(not has_device(), reason="no CUDA device")


def dense(g: ad.Builder, x: ad.Value) -> ad.Value:
    w = g.constant(numpy.random.default_rng(0).normal(size=(64, 48)).astype(numpy.float32))
    return g.relu(g.matmul(x, w))


PROGRAMS = {
    "dense": dense,
    "softmax": lambda g, x: g.softmax(x, axis=-1),
    "functions": lambda g, x: g.erf(g.tanh(g.exp(x))),
    "columns": lambda g, x: g.reduce_sum(x, axes=(0,)),
    "transposed": lambda g, x: g.transpose(x, perm=(1, 0)),
    "attention": lambda g, x: g.matmul(
        g.softmax(g.matmul(x, g.transpose(x, perm=(1, 0))), axis=-1), x
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_the_host(name: str) -> None:
    g = ad.Builder(name)
    x = g.input("x", ad.float32, (g.dim("n", 0, 4096), 64))
    g.output("y", PROGRAMS[name](g, x))
    model = ad.compile(g, **ON)
    alone = ad.compile(g)
    for rows in SIZES:
        given = numpy.random.default_rng(rows).normal(size=(rows, 64)).astype(numpy.float32) / 8
        # float32 sums of up to 4096 terms, in another order
        numpy.testing.assert_allclose(model(x=given)["y"], alone(x=given)["y"], 1e-4, 1e-5)


PRODUCTS = {  # how the product is made, and its largest error over the sum of all |a * b|
    "float32": (ad.float32, {}, 2.0**-20),
    "tf32": (ad.float32, {"precision": "tf32"}, 2.0**-9),
    "float16": (ad.float16, {}, 2.0**-10),
    "bfloat16": (bfloat16, {}, 2.0**-7),
}


def product(dtype: DType) -> ad.Builder:
    g = ad.Builder("product")
    m, n, k = g.dim("m", 0, 2048), g.dim("n", 0, 2048), g.dim("k", 0, 2048)
    left, right = g.input("left", dtype, (m, k)), g.input("right", dtype, (k, n))
    g.output("y", g.matmul(left, right))
    return g


@pytest.mark.parametrize("library", [False, True], ids=["own", "cublaslt"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_every_precision(name: str, library: bool) -> None:
    dtype, options, bound = PRODUCTS[name]
    with settings.override(cublaslt=library):
        model = ad.compile(product(dtype), **ON, **options)
    kinds = {each.schedule.split("(")[0] for each in model.report.chosen}
    if library and kinds != {"library"}:
        pytest.skip("cuBLASLt is not installed")
    chance = numpy.random.default_rng(0)
    for m, n, k in ((0, 3, 5), (3, 4, 0), (1, 1, 1), (17, 33, 100), (64, 64, 64), (1000, 513, 777)):
        left, right = (chance.normal(size=shape).astype(dtype.numpy) for shape in ((m, k), (k, n)))
        y = model(left=left, right=right)["y"].astype(numpy.float64)
        left, right = left.astype(numpy.float64), right.astype(numpy.float64)
        assert (abs(y - left @ right) <= bound * (abs(left) @ abs(right))).all()


@pytest.mark.parametrize("depth", [7, 32, 64, 80, 128, 200])
def test_attention(depth: int) -> None:
    model = ad.compile(attentions.attention(depth), **ON)
    assert [each.schedule.split("(")[0] for each in model.report.chosen] == ["running"]
    for queries, keys in attentions.SIZES:
        given = attentions.inputs(depth, queries, keys)
        # a score is a sum of `depth` products; its error is the relative one of its weight
        atol = 1e-5 + 5e-7 * depth
        numpy.testing.assert_allclose(model(**given)["y"], attentions.expected(given), 1e-4, atol)


def test_a_row_of_attention_is_the_same_beside_any_others() -> None:
    model = ad.compile(attentions.attention(64), **ON)
    given = attentions.inputs(64, 200, 333)
    whole = model(**given)["y"]
    for row in (0, 1, 100, 199):
        alone = model(**(given | {"q": given["q"][:, :, row : row + 1]}))["y"]
        numpy.testing.assert_array_equal(alone[:, :, 0], whole[:, :, row])


def test_attention_of_no_numbers() -> None:
    """A NaN among the keys is a NaN in each row; -inf of all keys is one too."""
    model = ad.compile(attentions.attention(64), **ON)
    given = attentions.inputs(64, 70, 100, batch=3)
    given["k"][0, 1, 40, 3] = numpy.nan
    given["mask"][2] = -numpy.inf
    with numpy.errstate(all="ignore"):
        numpy.testing.assert_allclose(
            model(**given)["y"], attentions.expected(given), rtol=1e-4, atol=1e-5
        )


def test_captured_graphs() -> None:
    with ad.settings.override(cuda_graphs=4):
        device = CudaDevice("cuda:0", 0)
    g = ad.Builder("chain")
    x = h = g.input("x", ad.float32, (g.dim("n", 0, 4096), 64))
    for _ in range(6):
        h = g.add(g.softmax(dense(g, h) if h is x else g.mul(h, h), axis=-1), 1.0)
    g.output("y", h)
    model, alone = ad.compile(g, devices={"accel": device}, placement={"*": "accel"}), ad.compile(g)
    for rows in (5, 100, 5, 100, 5, 100, 0, 4096, 5, 4096, 4096):
        given = numpy.random.default_rng(rows).normal(size=(rows, 64)).astype(numpy.float32)
        numpy.testing.assert_allclose(model(x=given)["y"], alone(x=given)["y"], 1e-4, 1e-5)
    model.trim()


@pytest.mark.parametrize("name", ["encoder", "scores", "strided", "pairs", "row_values"])
def test_ragged_rows_are_those_of_the_host(name: str) -> None:
    graph = ragged_rows.PROGRAMS[name]()
    plain = ad.compile(graph)
    model, host = ad.compile(graph, ragged="auto", **ON), ad.compile(graph, ragged="auto")
    for lengths in ragged_rows.BATCHES[1:]:
        given = ragged_rows.rows_of(plain, lengths, 0)
        feeds = {n: each if n in host.lists else numpy.stack(each) for n, each in given.items()}
        expected = host(**feeds)
        for key, made in model(**feeds).items():
            for one, other in zip(made, expected[key]):
                numpy.testing.assert_allclose(one, other, 1e-4, 1e-5)  # sums in another order


@pytest.mark.parametrize("through", ["", "torch"])
@pytest.mark.parametrize("graphs", [0, 16])
def test_arrays_stay_on_the_device(graphs: int, through: str) -> None:
    """A cache that becomes longer, also as a tensor that torch has computed."""
    torch = pytest.importorskip("torch") if through else None
    if torch is not None and not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    g = ad.Builder("step")
    past = g.input("past", ad.float32, (g.dim("n", 0, 200), 64))
    new = g.input("new", ad.float32, (1, 64))
    cache = g.concat(past, g.exp(new), axis=0)
    g.output("cache", cache)
    g.output("total", g.reduce_sum(cache, axes=(0,)))
    device = CudaDevice("cuda:0", 0, graphs=graphs)
    model = ad.compile(g, devices={"accel": device}, placement={"*": "accel"})
    model.keep_on_device("cache")
    rows = numpy.random.default_rng(0).normal(size=(40, 1, 64)).astype(numpy.float32)
    right = given = numpy.zeros((0, 64), numpy.float32)
    for row in rows:
        found = model(past=given, new=row)
        right = numpy.concatenate([right, numpy.exp(row)])
        given = found["cache"] if torch is None else torch.from_dlpack(found["cache"]) * 1
        copy = given.numpy() if torch is None else given.cpu().numpy()
        numpy.testing.assert_allclose(copy, right, rtol=1e-5)  # exp of another library
        numpy.testing.assert_allclose(numpy.asarray(found["total"]), right.sum(0), rtol=1e-4)
