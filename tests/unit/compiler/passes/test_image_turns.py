"""Promise: networks run image by image where that is faster, with the bits of each image alone."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import anydim as ad
from anydim.compiler.frontends.table import read
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.graph.regions import REGION, LoopRegion
from anydim.compiler.passes.image_turns import ImageTurns
from anydim.compiler.targets.llvm.host import machine
from tests.models.building import graph, model, node, value

RANDOM = np.random.default_rng(0)
SIDE = 96


def network(
    image: str = f"3, {SIDE}, {SIDE}", last: str = "y = Flatten(d)", channels: int = 32,
    result: str = "y f[n, 32]",
) -> onnx.ModelProto:  # fmt: skip
    """Two convolutions, whose values are `channels` of an image, and their mean."""
    held = {
        name: RANDOM.standard_normal(shape).astype(np.float32) / 8
        for name, shape in (("k", (channels, 3, 3, 3)), ("l", (32, channels, 1, 1)))
    }
    nodes = [
        node("a = Conv(x, k)", pads=[1] * 4), node("b = Relu(a)"), node("c = Conv(b, l)"),
        node("d = GlobalAveragePool(c)"), node(last),
    ]  # fmt: skip
    return model(graph("net", [f"x f[n, {image}]"], nodes, [result], held))


def turned(source: onnx.ModelProto, precision: str = "bfloat16") -> Graph | None:
    """The graph of an image, if the network is a loop over images."""
    made = ImageTurns(precision).run(read(source, None, None, False))
    if not made.has_regions:
        return None
    (one,) = made.nodes
    region = one.attributes[REGION]
    assert isinstance(region, LoopRegion)
    return region.body


def images(count: int) -> np.ndarray:
    return RANDOM.standard_normal((count, 3, SIDE, SIDE)).astype(np.float32)


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_an_image_has_the_same_bits_in_every_batch(precision: str) -> None:
    source, x = network(), images(5)
    assert turned(source, precision) is not None
    run = ad.compile(source, precision=precision, threads=1)
    alone = np.concatenate([run(x=x[at : at + 1])["y"] for at in range(5)])
    assert alone.any() and not (alone[0] == alone[1]).all()
    several = ad.compile(source, precision=precision, threads=2)
    for count in (0, 1, 2, 5):
        for each in (run, several):
            np.testing.assert_array_equal(each(x=x[:count])["y"], alone[:count])
    exact = ad.compile(source, threads=1)(x=x)["y"]
    assert abs(alone - exact).max() <= 2e-2 * abs(exact).max()


def test_memory_is_that_of_one_image() -> None:
    run = ad.compile(network(), precision="bfloat16", threads=1)
    one, many = (run.memory.at(n=count) for count in (1, 64))
    assert many - one < one


@pytest.mark.parametrize(
    "source, precision",
    [
        (network(), "exact"),
        (network(), "fast"),
        (network("3, h, w"), "bfloat16"),
        (network("3, 32, 32"), "bfloat16"),
        (network(last="y = ReduceMean(d)", result="y f[1, 1, 1, 1]"), "bfloat16"),
        (network(last="y = Sub(d, d0)", result="y f[n, 32, 1, 1]"), "bfloat16"),
    ],
    ids=["exact", "fast", "free sizes", "small images", "one result", "mixed images"],
)
def test_other_networks_are_batches(source: onnx.ModelProto, precision: str) -> None:
    if "d0" in source.graph.node[-1].input:
        source.graph.node.insert(4, node("d0 = ReduceMean(d, zero)", keepdims=1))
        source.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.int64), "zero"))
    assert turned(source, precision) is None


def test_weights_may_outweigh_the_values() -> None:
    source = network(last="e = Flatten(d)")
    wide = RANDOM.standard_normal((32, 1 << 20)).astype(np.float32)
    source.graph.initializer.append(numpy_helper.from_array(wide, "wide"))
    source.graph.node.append(node("y = MatMul(e, wide)"))
    source.graph.output[0].CopyFrom(value(f"y f[n, {1 << 20}]"))
    assert turned(source) is None


@pytest.mark.skipif(not machine().pairs, reason="no products of bfloat16")
def test_joined_channels_of_one_image_are_one_kernel() -> None:
    """Sizes of 1 do not part what follows a concatenation from it."""
    g = ad.Builder("joined")
    h = g.dim("h", 1, 40)
    x, y = (g.input(name, ad.float32, (1, h, h, count)) for name, count in (("x", 24), ("y", 9)))
    both = g.concat(x, y, axis=3)
    g.output("both", both)
    g.output("z", g.relu(both * g.constant(np.arange(33, dtype=np.float32) - 9.0)))
    run = ad.compile(g, threads=1)
    assert [site.schedule.partition("(")[0] for site in run.program.sites] == ["concat"]
    a, b = (RANDOM.standard_normal((1, 7, 7, count)).astype(np.float32) for count in (24, 9))
    found, joined = run(x=a, y=b), np.concatenate([a, b], axis=3)
    np.testing.assert_array_equal(found["both"], joined)
    wanted = np.maximum(joined * (np.arange(33, dtype=np.float32) - 9), 0)
    np.testing.assert_array_equal(found["z"], wanted)
