"""Promise: moving channels behind the other dimensions of a value changes no result."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy
import pytest

import anydim as ad
from anydim.base import settings
from anydim.base.errors import OptionError
from anydim.compiler.frontends.builder import Value
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.graph.verify import verify
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.templates import TEMPLATES
from anydim.compiler.passes.flow import unpack
from anydim.compiler.passes.layout_costs import times_of
from anydim.compiler.passes.layouts import Layouts
from anydim.compiler.passes.options import PLAIN, given_options
from anydim.compiler.pipeline import PASSES
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse
from anydim.lang.tree import Statement, TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.passes.graphs import draw, weights

LAST = "channels_last"
SIZES = ({"n": 0, "h": 4, "w": 3}, {"n": 1, "h": 1, "w": 1}, {"n": 2, "h": 7, "w": 5})
TOLERANCE = 2e-5  # float32 sums of at most 144 terms near 1, in another order


def image(g: ad.Builder, channels: int = 3) -> Value:
    n, h, w = g.dim("n", 0, 3), g.dim("h", 0, 17), g.dim("w", 0, 17)
    return g.input("x", ad.float32, (n, channels, h, w))


def conv(
    g: ad.Builder, x: Value, made: int, side: int = 3, groups: int = 1, stride: int = 1
) -> Value:
    read = x.shape[1].constant // groups
    w = g.constant(weights(made, read, side, side, seed=side))
    around = (side // 2,) * 4
    return g.conv(
        x, w, g.constant(weights(made)), strides=(stride,) * 2, pads=around, groups=groups
    )


def residual(g: ad.Builder) -> Value:
    x = g.relu(conv(g, image(g), 5))
    y = conv(g, g.relu(conv(g, x, 8, 1)), 8, groups=8)
    return conv(g, x + conv(g, y, 5, 1), 4)


def classifier(g: ad.Builder) -> Value:
    x = g.relu(conv(g, image(g), 8, stride=2))
    x = g.reduce_mean(conv(g, x, 6), axes=(2, 3), keepdims=True)
    return g.matmul(g.reshape(x, shape=(x.shape[0], 6)), g.constant(weights(6, 4)))


def squeezed(g: ad.Builder) -> Value:
    """Each channel is weighed by what all of its places say."""
    x = conv(g, image(g), 8)
    mean = conv(g, g.reduce_mean(x, axes=(2, 3), keepdims=True), 8, 1)
    return conv(g, x * g.sigmoid(mean), 3)


def joined(g: ad.Builder) -> Value:
    x = conv(g, image(g), 4)
    left, right = conv(g, x, 6, 1), conv(g, x, 2)
    y = g.concat(left, g.max_pool(right, kernel=(3, 3), pads=(1, 1, 1, 1)), axis=1)
    return conv(g, g.concat(x, y, axis=1)[:, 3:], 6, groups=3)


def tokens(g: ad.Builder) -> Value:
    """Images as rows of channels and back, as vision transformers have them."""
    x = conv(g, image(g), 6)
    n, c, h, w = x.shape
    rows = g.transpose(g.reshape(x, shape=(n, c, h * w)), perm=(0, 2, 1))
    rows = g.layer_norm(rows, g.constant(weights(6)), g.constant(weights(6)), axis=-1, epsilon=1e-3)
    rows = g.matmul(rows, g.constant(weights(6, 8)))
    y = g.reshape(g.transpose(rows, perm=(0, 2, 1)), shape=(n, 8, h, w))
    return conv(g, y, 8, groups=8) + y


def shuffled(g: ad.Builder) -> Value:
    """Channels of groups change places; what is read at such offsets stays."""
    x = conv(g, image(g), 6, 1)
    n, _, h, w = x.shape
    y = g.transpose(g.reshape(x, shape=(n, 2, 3, h, w)), perm=(0, 2, 1, 3, 4))
    return conv(g, g.reshape(y, shape=(n, 6, h, w)), 6, groups=3)


def enlarged(g: ad.Builder) -> Value:
    x = conv(g, image(g), 4)
    n, _, h, w = x.shape
    big = g.resize(x, sizes=(n, 4, 2 * h, 2 * w), scales=(1.0, 1.0, 2.0, 2.0), mode="nearest")
    half = g.conv_transpose(
        x, g.constant(weights(4, 4, 2, 2)), strides=(2, 2), before=(0, 0), sizes=(2 * h, 2 * w)
    )
    return conv(g, big + half, 3)


def normalised(g: ad.Builder) -> Value:
    """Over all places of the batch, as in training."""
    x = conv(g, image(g), 4)
    centred = x - g.reduce_mean(x, axes=(0, 2, 3), keepdims=True)
    spread = g.reduce_mean(centred * centred, axes=(0, 2, 3), keepdims=True)
    return conv(g, centred / g.sqrt(spread + 1e-2), 3)


def signals(g: ad.Builder) -> Value:
    x = g.input("x", ad.float32, (g.dim("n", 0, 3), 3, g.dim("h", 0, 17)))
    w = g.constant(weights(4, 3, 3))
    y = g.relu(g.conv(x, w, pads=(1, 1)))
    return g.conv(y, g.constant(weights(4, 4, 3)), pads=(1, 1))


def alone(g: ad.Builder) -> Value:
    return conv(g, image(g, 16), 20)


def followed(g: ad.Builder) -> Value:
    """By what is done place by place; the input is read once more, by that."""
    x = image(g, 16)
    return g.relu(conv(g, x, 16) + x)


def given_too(g: ad.Builder) -> Value:
    """What windows make is a result and read by others."""
    x = conv(g, image(g, 16), 16)
    g.output("made", x)
    return conv(g, g.relu(x), 17, stride=2)


GRAPHS: dict[str, Callable[[ad.Builder], Value]] = {
    each.__name__: each
    for each in (
        residual, classifier, squeezed, joined, tokens, shuffled, enlarged, normalised, signals,
        alone, followed, given_too,
    )
}  # fmt: skip


def built(name: str) -> Graph:
    g = ad.Builder(name)
    g.output("y", GRAPHS[name](g))
    return g.graph()


def before_layouts(name: str) -> Graph:
    graph = built(name)
    for entry in PASSES:
        if entry.name == "layouts":
            return graph
        graph = entry.make(Machine(), TEMPLATES, PLAIN).run(graph)
    raise AssertionError("there is no pass 'layouts'")


def moved(name: str) -> Iterator[Statement]:
    """The statements whose values lie otherwise than before."""
    before = before_layouts(name)
    old = {line.target: line.statement.shape for line in unpack(before)}
    for line in unpack(Layouts(LAST).run(before)):
        if old.get(line.target) != line.statement.shape:  # copies are new
            yield line.statement


@pytest.mark.parametrize("name", GRAPHS)
def test_the_meaning_stays(name: str) -> None:
    before = before_layouts(name)
    after = verify(Layouts(LAST).run(before))
    for sizes in SIZES:
        inputs = draw(before, {k: v for k, v in sizes.items() if k in before.box.names})
        wanted, came = evaluate(before, inputs)["y"], evaluate(after, inputs)["y"]
        numpy.testing.assert_allclose(came, wanted, TOLERANCE, TOLERANCE)


@pytest.mark.parametrize("name", GRAPHS)
def test_compiled_it_agrees_along_a_sequence_of_sizes(name: str) -> None:
    graph = built(name)
    with settings.override(layout=LAST):
        model = ad.compile(graph)
    for sizes in (*SIZES, *reversed(SIZES)):
        inputs = draw(graph, {k: v for k, v in sizes.items() if k in graph.box.names})
        wanted, came = evaluate(graph, inputs)["y"], model(**inputs)["y"]
        assert came.shape == wanted.shape
        numpy.testing.assert_allclose(came, wanted, TOLERANCE, TOLERANCE)


MOVED = {
    "residual": 5, "classifier": 2, "squeezed": 1, "joined": 6, "tokens": 2, "shuffled": 1,
    "enlarged": 3, "normalised": 2, "signals": 1, "alone": 2, "followed": 3, "given_too": 3,
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_channels_are_last(name: str) -> None:
    found = list(moved(name))
    assert all(statement.shape[-1].constant is not None for statement in found)
    assert len(found) >= MOVED[name]


def test_results_keep_their_layout() -> None:
    assert all(statement.target != "y" for name in GRAPHS for statement in moved(name))


@pytest.mark.parametrize(
    ("read", "made", "side", "stride", "count"),
    [(64, 64, 3, 1, 2), (3, 64, 7, 2, 0), (64, 8, 3, 1, 0), (64, 64, 1, 1, 0), (64, 64, 3, 2, 0)],
)
def test_inputs_and_results_are_copied_where_that_is_worth_it(
    read: int, made: int, side: int, stride: int, count: int
) -> None:
    g = ad.Builder("alone")
    sizes = [g.dim(name) for name in ("n", "h", "w")]
    x = g.input("x", ad.float32, (sizes[0], read, *sizes[1:]))
    g.output("y", conv(g, x, made, side, stride=stride))
    chosen = [each.schedule for each in ad.compile(g).report.chosen]
    assert sum(each.startswith("transpose(") for each in chosen) == count


def test_schedules_that_are_asked_for_are_of_kernels_without_copies() -> None:
    g = ad.Builder("net")
    x = g.input("x", "float32", ["n", 64, "h", "w"])
    g.output("y", conv(g, x, 64))
    options = given_options({"net": "winograd(rows=5)"}, ["net"])["net"]
    (chosen,) = ad.compile(g, options=options).report.chosen
    assert chosen.schedule.startswith("winograd(rows=5")


def test_rows_of_channels_and_images_are_the_same_bytes() -> None:
    """What lay in rows of channels is read where it lies: no transposition is left."""
    for layout, count in (("channels_first", 1), (LAST, 0)):
        with settings.override(layout=layout):
            chosen = ad.compile(built("tokens")).report.chosen
        assert sum(each.schedule.startswith("transpose(") for each in chosen) == count


def values_last(graph: Graph, known: bool = True) -> int:
    """How many values of a graph lie channels last where that pays."""
    before = graph
    for entry in PASSES:
        if entry.name == "layouts":
            break
        before = entry.make(Machine(), TEMPLATES, PLAIN).run(before)
    old = {line.target: line.statement.shape for line in unpack(before)}
    after = unpack(Layouts("auto", known).run(before))
    return sum(old[line.target] != line.statement.shape for line in after)


def mean_of(g: ad.Builder, y: Value) -> Value:
    return g.reduce_mean(y, axes=(2, 3))


def normalised_channels(g: ad.Builder, y: Value) -> Value:
    return g.reduce_mean(g.local_response_norm(y, count=5), axes=(2, 3))


def enlarged_means(g: ad.Builder, y: Value) -> Value:
    """Weights of a table between places, and a product behind it."""
    n, channels, h, w = y.shape
    sizes, scales = (n, channels, 3 * h // 2, 3 * w // 2), (1.0, 1.0, 1.5, 1.5)
    return mean_of(g, conv(g, g.resize(y, sizes=sizes, scales=scales, mode="linear"), 64, 1))


def network(
    groups: int = 1, dtype: ad.DType = ad.float32, channels: int = 64,
    end: Callable[[ad.Builder, Value], Value] = mean_of, least: int = 1,
) -> Graph:  # fmt: skip
    """Windows of each channel between products of all."""
    g = ad.Builder("network")
    n, h, w = g.dim("n", 1, 8), g.dim("h", least, 224), g.dim("w", least, 224)
    y = g.input("x", dtype, (n, channels, h, w))
    for number in range(3):
        for side, sets in ((1, groups), (3, channels)):
            k = weights(channels, channels // sets, side, side, seed=number).astype(dtype.numpy)
            y = g.relu(g.conv(y, g.constant(k), pads=(side // 2,) * 4, groups=sets))
    g.output("y", end(g, y))
    return g.graph()


@pytest.mark.parametrize("dtype", [ad.float32, ad.float16, ad.bfloat16], ids=str)
def test_channels_go_last_where_that_pays(dtype: ad.DType) -> None:
    assert values_last(network(dtype=dtype)) > 0


def test_a_linear_resize_lies_either_way() -> None:
    """Its weights are a constant where sizes are known."""
    for least in (1, 224):
        assert values_last(network(end=enlarged_means, least=least)) > values_last(network()) > 0


def patches(perm: tuple[int, ...]) -> Graph:
    """One product of windows, whose result is read in another order."""
    g = ad.Builder("patches")
    n, h, w = g.dim("n", 1, 8), g.dim("h", 1, 224), g.dim("w", 1, 224)
    y = g.conv(
        g.input("x", ad.float32, (n, 3, h, w)), g.constant(weights(64, 3, 8, 8)), strides=(8, 8)
    )
    g.output("y", g.transpose(g.relu(y), perm=perm))
    return g.graph()


def test_one_product_lies_as_all_that_reads_it() -> None:
    assert values_last(patches((0, 2, 3, 1))) > 0
    assert values_last(patches((0, 1, 3, 2))) == 0


def test_channels_stay_on_machines_that_nobody_has_measured() -> None:
    assert values_last(network(), known=False) == 0


def test_what_no_kernel_is_made_for_stays() -> None:
    assert values_last(network(groups=4)) == 0
    assert values_last(network(end=normalised_channels)) == 0


@pytest.mark.parametrize(("index", "fits"), [("16*c + k", True), ("c + k", False)])
def test_shares_of_channels_may_go_last_but_no_windows_that_overlap(index: str, fits: bool) -> None:
    read = f"x(n,{index},w)"
    text = f"def top(float(N,80,W) x) -> (y) {{ y(n,c,w) max=! {read} where c in 0:4, k in 0:16 }}"
    kind = TensorType(ad.float32, (as_size("N"), as_size(80), as_size("W")))
    box = Box.of(Dim("N"), Dim("W"))
    group = instantiate(parse(text)["top"], [kind], {}, box)
    graph = Graph("top", box, {"x": kind}, ("x",), (), {}, ())
    at = lambda size: numpy.array(size.evaluate({"N": 2, "W": 9}))  # noqa: E731
    times = times_of(group.statements[0], 1, graph, at)
    assert times is not None
    assert bool(numpy.isfinite(times.last).all()) == fits


def test_explain_says_how_many_values_moved() -> None:
    with settings.override(layout=LAST):
        assert "channels last: " in ad.compile(built("residual")).explain(details=True)
    with settings.override(layout="channels_first"):
        assert "channels last: " not in ad.compile(built("residual")).explain(details=True)


def test_explain_and_the_stage_say_what_was_chosen_and_why() -> None:
    def notes(model: ad.Model) -> list[str]:
        return [line for line in model.explain(details=True).splitlines() if "values, as" in line]

    gains = ad.compile(network())
    (line,) = notes(gains)
    assert line.startswith("  channels last: ") and "of the time, estimated" in line
    assert " ".join(gains.show("layouts").split()).startswith(f"# {line.strip()}")
    (line,) = notes(ad.compile(network(groups=4)))
    assert line.startswith("  channels first: ") and line.endswith("no kernel with channels last")
    with settings.override(layout=LAST):
        (line,) = notes(ad.compile(network()))
        assert line.endswith("set by the setting 'layout'")


def test_an_unknown_layout_is_an_error() -> None:
    with pytest.raises(OptionError, match="channels_first"), settings.override(layout="nhwc"):
        pass
