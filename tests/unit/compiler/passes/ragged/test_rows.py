"""Promise: a ragged batch gives each row the result of the original model for this row alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.base.errors import DimError, InputError, MemoryLimitError, ModelError, OptionError
from anydim.compiler.graph.reader import read_graph
from anydim.compiler.graph.text import constants_of, print_graph
from anydim.compiler.passes.ragged.rows import RaggedRows

WIDTH, HEADS = 8, 2
ACTIVATIONS = (("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0), ("tanh", 0.0, 0.0))
BATCHES = ([], [0], [1], [7], [3, 0, 5], [1, 1, 1], [16, 17, 2, 33, 5], [1, 100, 1])


def weights(*shape: int) -> numpy.ndarray:
    drawn = numpy.random.default_rng(shape).standard_normal(shape)
    return (drawn / numpy.sqrt(shape[0])).astype(numpy.float32)


def padded(lo: int = 0, hi: int = 128) -> tuple[ad.Builder, Any, Any, Any]:
    """A builder with an input x[batch, seq, width]."""
    g = ad.Builder("padded")
    b, t = g.dim("batch", 0, 64), g.dim("seq", lo, hi)
    return g, b, t, g.input("x", ad.float32, (b, t, WIDTH))


def linear(g: ad.Builder, x: Any, columns: int = WIDTH) -> Any:
    return g.add(g.matmul(x, g.constant(weights(WIDTH, columns))), g.constant(weights(columns)))


def attention(g: ad.Builder, b: Any, t: Any, x: Any, mask: Any = None) -> Any:
    def heads(value: Any) -> Any:
        split = g.reshape(value, shape=(b, t, HEADS, WIDTH // HEADS))
        return g.transpose(split, perm=(0, 2, 1, 3))

    q, k, v = (heads(linear(g, x)) for _ in range(3))
    scores = g.mul(g.matmul(q, g.transpose(k, perm=(0, 1, 3, 2))), 0.5)
    if mask is not None:
        scores = g.add(scores, mask)
    made = g.transpose(g.matmul(g.softmax(scores, axis=-1), v), perm=(0, 2, 1, 3))
    return linear(g, g.reshape(made, shape=(b, t, WIDTH)))


def pointwise() -> ad.Builder:
    g, _, _, x = padded()
    g.output("y", g.gelu(linear(g, x)))
    return g


def encoder() -> ad.Builder:
    g, b, t, x = padded()
    scale, shift = (g.constant(weights(WIDTH)) for _ in range(2))
    for _ in range(2):
        x = g.layer_norm(g.add(x, attention(g, b, t, x)), scale, shift)
        x = g.layer_norm(g.add(x, g.gelu(linear(g, x))), scale, shift)
    g.output("tokens", x)
    g.output("mean", linear(g, g.reduce_mean(x, axes=(1,), keepdims=False)))
    return g


def causal() -> ad.Builder:
    g, b, t, x = padded()
    i = g.unsqueeze(g.range(count=t), axes=(1,))
    j = g.unsqueeze(g.range(count=t), axes=(0,))
    mask = g.where(g.less(i, j), g.constant(numpy.float32(-1e30)), g.constant(numpy.float32(0)))
    g.output("y", attention(g, b, t, x, mask))
    return g


def positions() -> ad.Builder:
    g, _, t, x = padded()
    table = g.constant(weights(128, WIDTH))
    g.output("y", g.relu(g.add(x, g.gather(table, g.range(count=t), axis=0))))
    return g


def ends() -> ad.Builder:
    g, _, t, x = padded(lo=1)
    y = g.relu(linear(g, x))
    g.output("first", g.squeeze(g.slice(y, starts=(0,), ends=(1,), axes=(1,)), axes=(1,)))
    g.output("last", g.squeeze(g.slice(y, starts=(t - 1,), ends=(t,), axes=(1,)), axes=(1,)))
    return g


def strided() -> ad.Builder:
    """A convolution over time with stride 2: another number of steps."""
    g, _, _, x = padded()
    kernel = g.constant(weights(WIDTH, WIDTH, 3))
    y = g.conv(g.transpose(x, perm=(0, 2, 1)), kernel, pads=(1, 1), strides=(2,))
    g.output("channels_first", g.relu(y))
    g.output("steps", g.relu(linear(g, g.transpose(y, perm=(0, 2, 1)))))
    return g


def recurrent() -> ad.Builder:
    g, _, _, x = padded()
    w, r = (g.constant(weights(4 * WIDTH, WIDTH)[None]) for _ in range(2))
    y, h, _ = g.lstm(g.transpose(x, perm=(1, 0, 2)), w, r, activations=ACTIVATIONS)
    g.output("y", g.transpose(y, perm=(1, 0, 2)))
    g.output("h", h)
    return g


def scores() -> ad.Builder:
    """A result with two ragged axes."""
    g, _, _, x = padded()
    y = linear(g, x)
    g.output("y", g.matmul(y, g.transpose(x, perm=(0, 2, 1))))
    return g


def pairs() -> ad.Builder:
    """A value with two ragged axes that crosses from one loop to another."""
    g, _, _, x = padded()
    first = g.matmul(x, g.transpose(x, perm=(0, 2, 1)))
    y = linear(g, g.matmul(g.softmax(first, axis=-1), x))
    g.output("y", g.matmul(g.softmax(first, axis=-2), g.relu(y)))
    return g


def cross() -> ad.Builder:
    """Two ragged dims: queries and keys."""
    g = ad.Builder("cross")
    b, q, k = g.dim("batch", 0, 64), g.dim("queries", 0, 128), g.dim("keys", 0, 128)
    x = g.input("x", ad.float32, (b, q, WIDTH))
    y = g.input("y", ad.float32, (b, k, WIDTH))
    scored = g.matmul(linear(g, x), g.transpose(linear(g, y), perm=(0, 2, 1)))
    g.output("z", linear(g, g.matmul(g.softmax(scored, axis=-1), y)))
    return g


def images() -> ad.Builder:
    """Images of unlike height and width."""
    g = ad.Builder("images")
    b, h, w = g.dim("batch", 0, 64), g.dim("height", 1, 128), g.dim("width", 1, 128)
    x = g.input("x", ad.float32, (b, 3, h, w))
    y = g.relu(g.conv(x, g.constant(weights(4, 3, 3, 3)), pads=(1, 1, 1, 1)))
    g.output("y", y)
    g.output("pooled", g.reduce_mean(y, axes=(2, 3), keepdims=False))
    return g


def crops() -> ad.Builder:
    """Images of unlike width, whose height is a dim of one size."""
    g = ad.Builder("crops")
    b, h, w = g.dim("batch", 0, 64), g.dim("lines", 6, 6), g.dim("seq", 1, 128)
    x = g.input("x", ad.float32, (b, 3, h, w))
    y = g.relu(g.conv(x, g.constant(weights(4, 3, 3, 3)), pads=(1, 1, 1, 1)))
    g.output("steps", g.reduce_mean(y, axes=(2,), keepdims=False))
    return g


def separable() -> ad.Builder:
    """Convolutions over windows and over channels in turn, and a gate of each row between them."""
    g = ad.Builder("separable")
    b, h, w = g.dim("batch", 0, 64), g.dim("lines", 6, 6), g.dim("seq", 1, 128)
    x = g.input("x", ad.float32, (b, 3, h, w))
    for channels, steps in ((3, (1, 1)), (96, (1, 2)), (96, (2, 1))):
        window = g.constant(weights(channels, 1, 3, 3))
        x = g.conv(x, window, pads=(1, 1, 1, 1), strides=steps, groups=channels)
        x = g.relu(g.conv(x, g.constant(weights(96, channels, 1, 1))))
    gate = g.reduce_mean(x, axes=(2, 3), keepdims=True)
    gate = g.sigmoid(g.conv(gate, g.constant(weights(96, 96, 1, 1))))
    x = g.conv(g.mul(x, gate), g.constant(weights(8, 96, 3, 3)), pads=(1, 1, 1, 1))
    y = g.transpose(g.reduce_mean(x, axes=(2,), keepdims=False), perm=(0, 2, 1))
    g.output("steps", g.softmax(linear(g, y), axis=-1))
    return g


def merged() -> ad.Builder:
    """Batch and sequence in one axis, as some exporters write linear layers."""
    g, b, t, x = padded()
    flat = g.reshape(x, shape=(b * t, WIDTH))
    y = g.reshape(g.relu(linear(g, flat)), shape=(b, t, WIDTH))
    g.output("y", g.add(y, x))
    return g


def row_values() -> ad.Builder:
    """A value of each row, added to all of its tokens."""
    g, b, _, x = padded()
    top = g.reduce_max(x, axes=(1,), keepdims=True)
    shift = g.input("shift", ad.float32, (b, 1, WIDTH))
    g.output("y", g.mul(g.sub(g.relu(linear(g, x)), top), shift))
    g.output("z", g.add(g.tanh(shift), shift))
    return g


PROGRAMS: dict[str, Callable[[], ad.Builder]] = {
    make.__name__: make
    for make in (
        pointwise, encoder, causal, positions, ends, strided, recurrent, scores, pairs, cross,
        images, crops, separable, merged, row_values,
    )
}  # fmt: skip
IMAGES = ("images", "crops", "separable")


def rows_of(model: ad.Model, lengths: list[int], low: int) -> dict[str, list[numpy.ndarray]]:
    """A row for each length and each input of the original model."""
    drawn = numpy.random.default_rng(len(lengths))
    lengths = [max(low, length) for length in lengths]
    other = lengths[::-1]  # of a second ragged dim

    def shape(spec: Any, length: int, second: int) -> tuple[int, ...]:
        sizes = {"lines": 6, "seq": length, "queries": length, "height": length, "keys": second,
                 "width": second}  # fmt: skip
        return tuple(size.evaluate(sizes) for size in spec.shape[1:])

    return {
        spec.name: [
            drawn.standard_normal(shape(spec, *each)).astype(spec.dtype.numpy)
            for each in zip(lengths, other)
        ]
        for spec in model.inputs
    }


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_have_the_bits_of_a_call_alone(name: str) -> None:
    graph = PROGRAMS[name]()
    alone, ragged = ad.compile(graph), ad.compile(graph, ragged="auto")
    low = 1 if name in ("ends", *IMAGES) else 0
    for lengths in BATCHES:
        rows = rows_of(alone, lengths, low)
        if not lengths and set(rows) - set(ragged.lists):
            continue  # an array of no rows needs its shape
        made = ragged(**{
            n: each if n in ragged.lists else numpy.stack(each) for n, each in rows.items()
        })  # fmt: skip
        for number in range(len(lengths)):
            given = {key: each[number][None] for key, each in rows.items()}
            expected = alone(**given)
            for key, result in expected.items():
                where = f"{lengths} {key}"
                found = made[key][number]
                if name in IMAGES:  # convolutions have another layout: rounding
                    numpy.testing.assert_allclose(found, result[0], 1e-5, 1e-5, err_msg=where)
                else:  # the same kernels in the same order
                    numpy.testing.assert_array_equal(found, result[0], where)
        assert all(len(each) == len(lengths) for each in made.values())


@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs_over_rows_are_well_formed_and_read_back(name: str) -> None:
    graph, notes = RaggedRows("auto").run(PROGRAMS[name]().graph())
    text = print_graph(graph)
    again = read_graph(text, constants_of(graph))
    assert print_graph(again) == text
    assert again.lists == graph.lists and notes


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_has_the_same_bits_in_any_batch(threads: int) -> None:
    model = ad.compile(encoder(), ragged={"seq": "batch"}, threads=threads)
    drawn = numpy.random.default_rng(0)
    row = drawn.standard_normal((13, WIDTH)).astype(numpy.float32)
    alone = model(x=[row])
    for count in (1, 4, 9):
        others = [
            drawn.standard_normal((size, WIDTH)).astype(numpy.float32)
            for size in drawn.integers(0, 90, count)
        ]
        for position in (0, count):
            found = model(x=[*others[:position], row, *others[position:]])
            numpy.testing.assert_array_equal(found["tokens"][position], alone["tokens"][0])
            numpy.testing.assert_array_equal(found["mean"][position], alone["mean"][0])


def test_linear_layers_run_over_all_rows_at_once() -> None:
    model = ad.compile(encoder(), ragged="auto")
    per_row = {
        site.source for region in model.program.regions[:-1]
        for step in region.segments for site in step.segment.sites
    }  # fmt: skip
    products = [site for site in model.program.sites if site.schedule.startswith("contraction")]
    assert products and not per_row & {site.source for site in products}


def test_convolutions_of_wide_rows_run_in_one_loop() -> None:
    graph, _ = RaggedRows("auto").run(separable().graph())
    (loop,) = [node for node in graph.nodes if node.operator == "loop"]
    inside = [node.operator for node in loop.region.held["body"].nodes]
    assert inside.count("conv") == 8 and "conv" not in {node.operator for node in graph.nodes}


def test_a_squeeze_of_all_axes_of_size_1_keeps_the_rows() -> None:
    g = ad.Builder("squeezed")
    b, t = g.dim("batch", 0, 8), g.dim("seq", 0, 8)
    g.output("y", g.softmax(g.squeeze(g.input("x", ad.float32, (b, t, 1))), axis=1))
    model = ad.compile(g, ragged="auto")
    rows = [weights(size, 1) for size in (3, 1, 0)]
    for row, found in zip(rows, model(x=rows)["y"]):
        expected = numpy.exp(row[:, 0]) / numpy.exp(row[:, 0]).sum()
        numpy.testing.assert_allclose(found, expected, 1e-5)


def test_a_free_height_beside_a_ragged_width_is_ragged() -> None:
    model = ad.compile(images(), ragged={"width": "batch"})
    rows = [weights(3, 5, width) for width in (4, 1, 9)]
    made = model(x=rows)
    for row, y, pooled in zip(rows, made["y"], made["pooled"]):
        alone = model(x=[row])
        numpy.testing.assert_array_equal(y, alone["y"][0])
        numpy.testing.assert_array_equal(pooled, alone["pooled"][0])
    table = next(iter(model.lists.values())).table
    assert [dim.name for dim in table.dims] == ["width", "height"]


def test_masks_may_be_omitted_and_mark_nothing() -> None:
    g, b, t, x = padded()
    mask = g.input("attention_mask", ad.int64, (b, t))
    hidden = g.mul(g.sub(1.0, g.cast(g.unsqueeze(mask, axes=(1, 2)), to=ad.float32)), -1e30)
    g.output("y", attention(g, b, t, x, hidden))
    model = ad.compile(g, ragged="auto")
    rows = [weights(5, WIDTH), weights(2, WIDTH)]
    plain = model(x=rows)["y"]
    ones = [numpy.ones(len(row), numpy.int64) for row in rows]
    numpy.testing.assert_array_equal(model(x=rows, attention_mask=ones)["y"].values, plain.values)
    alone = ad.compile(g)
    for row, one, found in zip(rows, ones, plain):
        expected = alone(x=row[None], attention_mask=one[None])["y"][0]
        numpy.testing.assert_array_equal(found, expected)
    with pytest.raises(InputError, match="'attention_mask' is not all ones"):
        model(x=rows, attention_mask=[one * 0 for one in ones])


def mixing(make: Callable[[Any, Any, Any, Any], Any]) -> ad.Builder:
    g, b, t, x = padded()
    g.output("y", make(g, b, t, x))
    return g


MIXED = {
    "mean over the batch": lambda g, b, t, x: g.sub(x, g.reduce_mean(x, axes=(0,), keepdims=True)),
    "softmax over the batch": lambda g, b, t, x: g.softmax(x, axis=0),
    "neighbours": lambda g, b, t, x: g.add(x, g.pad(
        g.slice(x, starts=(1,), ends=(b,), axes=(0,)), before=(1, 0, 0), after=(0, 0, 0))),
    "reversed": lambda g, b, t, x: g.gather(
        x, g.sub(g.size_tensor(values=(b - 1,)), g.range(count=b)), axis=0
    ),
    "merged in another order": lambda g, b, t, x: g.reshape(
        g.transpose(x, perm=(2, 0, 1)), shape=(b, t, WIDTH)
    ),
    "the number of rows": lambda g, b, t, x: g.add(x, g.cast(
        g.size_tensor(values=(b,)), to=ad.float32)),
    "the number of the row": lambda g, b, t, x: g.add(x, g.cast(
        g.unsqueeze(g.range(count=b), axes=(1, 2)), to=ad.float32)),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_rows_that_depend_on_each_other_are_refused(name: str) -> None:
    with pytest.raises(ModelError, match="no ragged form"):
        ad.compile(mixing(MIXED[name]), ragged="auto")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"x": [weights(3, WIDTH), weights(2, 7)]}, "differ in more than axis 0"),
        ({"x": [weights(3, WIDTH), weights(2)]}, "row 1 is float32 with 1 axes"),
        ({"x": [weights(3, 7)]}, "axis 1 has size 7, expected 8"),
        ({"x": [weights(3, WIDTH).astype(numpy.float64)]}, "expected dtype float32"),
        ({"x": 5}, "expected a list of rows"),
        ({}, "input 'x' is missing"),
        ({"x": (weights(3, WIDTH), numpy.array([0, 2]))}, "increase from 0 to 3"),
    ],
)
def test_rows_that_do_not_fit(given: dict[str, Any], problem: str) -> None:
    model = ad.compile(pointwise(), ragged="auto")
    with pytest.raises(InputError, match=problem):
        model(**given)


def test_sizes_of_rows_have_bounds() -> None:
    model = ad.compile(pointwise(), ragged="auto")
    with pytest.raises(DimError, match="row 1: 'seq' is 129"):
        model(x=[weights(3, WIDTH), weights(129, WIDTH)])


def test_inputs_agree_on_rows() -> None:
    g, b, t, x = padded()
    g.output("z", g.add(x, g.input("y", ad.float32, (b, t, WIDTH))))
    model = ad.compile(g, ragged="auto")
    with pytest.raises(InputError, match="row 1: 'seq' is 4 in input 'y', 2 in input 'x'"):
        model(x=[weights(3, WIDTH), weights(2, WIDTH)], y=[weights(3, WIDTH), weights(4, WIDTH)])
    with pytest.raises(InputError, match="has 1 row, input"):
        model(x=[weights(3, WIDTH), weights(2, WIDTH)], y=[weights(3, WIDTH)])


@pytest.mark.parametrize("ragged", [{"seq": "nobody"}, {"seq": "seq"}, {}, "always", 3])
def test_unknown_dims_are_refused(ragged: Any) -> None:
    with pytest.raises(OptionError, match="ragged"):
        ad.compile(pointwise(), ragged=ragged)


def test_memory_of_rows_is_known() -> None:
    model = ad.compile(encoder(), ragged="auto", threads=1)
    drawn = numpy.random.default_rng(3)
    for _ in range(50):
        lengths = drawn.integers(0, 128, drawn.integers(1, 30)).tolist()
        plan = model.plan(lengths=lengths)
        assert plan.sizes["batch"] == len(lengths) and plan.sizes["seq.total"] == sum(lengths)
        assert plan.sizes["seq.longest"] == max(lengths)
        rows = [weights(max(1, n), WIDTH)[:n] for n in lengths]
        model.limit_memory(ad.MemoryLimit(plan.bytes, per_call=True))
        model(x=rows)  # what it plans is enough
        model.limit_memory(ad.MemoryLimit(plan.bytes - plan.value_bytes // 2, per_call=True))
        with pytest.raises(MemoryLimitError):
            model(x=rows)
    with pytest.raises(InputError, match="lengths"):
        model.plan(lengths=[[1, 2]])


def test_saved_models_take_rows(tmp_path: Any) -> None:
    model = ad.compile(encoder(), ragged="auto")
    model.save(tmp_path / "encoder.anydim")
    loaded = ad.load(tmp_path / "encoder.anydim")
    rows = [weights(5, WIDTH), weights(1, WIDTH), weights(9, WIDTH)]
    for key, value in model(x=rows).items():
        for one, other in zip(value, loaded(x=rows)[key]):
            numpy.testing.assert_array_equal(one, other)


def test_profiles_know_the_sizes_of_rows() -> None:
    model = ad.compile(encoder(), ragged="auto", threads=1)
    rows = [weights(5, WIDTH), weights(1, WIDTH), weights(9, WIDTH)]
    plan, profile = model.plan(lengths=[5, 1, 9]), model.profile({"x": rows}, repeat=1)
    assert profile.sizes == plan.sizes
    assert sum(each.flops for each in profile.launches) == plan.flops


def test_a_first_call_allocates_what_the_formula_says_to_the_byte(tmp_path: Any) -> None:
    made = ad.compile(encoder(), ragged="auto", threads=1)
    made.save(tmp_path / "encoder.anydim")
    drawn = numpy.random.default_rng(7)
    for model in (made, ad.load(tmp_path / "encoder.anydim")):
        for number in range(30):
            lengths = [1, *drawn.integers(0, 4 ** (1 + number % 3), drawn.integers(0, 20)).tolist()]
            model.trim()  # larger blocks of a call before may serve smaller values
            for frame in model.executable._frames.free():
                frame.highest = 0
            model(x=[numpy.ones((n, WIDTH), numpy.float32) for n in lengths])
            assert model.executable.highest_arena_bytes == model.plan(lengths=lengths).bytes
