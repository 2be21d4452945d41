"""Promise: what follows one value per row is computed for all rows at once, as it is over tokens.

For encoders and decoders with each kind of head, of few or of all tokens: a row has the bits of a
call alone, n equal rows take no more work than n calls, and no loop over rows reads weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.api.cached_graph import over_rows
from anydim.api.cached_rows import CachedRows
from anydim.compiler.frontends.growing_caches import with_spare_capacity
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.passes.ragged.loop_costs import LoopCosts
from anydim.compiler.passes.ragged.rows import RaggedRows
from anydim.runtime.program.findings import findings
from anydim.runtime.program.padding import moved_bytes

WIDTH, HEADS, WORDS, END = 64, 2, 100, numpy.iinfo(numpy.int64).max
Head = Callable[[ad.Builder, Any, Any], Any]
BATCHES = ([1], [1, 1, 1], [5, 1, 17, 2], [3, 40])


def weights(*shape: int) -> numpy.ndarray:
    drawn = numpy.random.default_rng(shape).standard_normal(shape)
    return (drawn / numpy.sqrt(shape[0])).astype(numpy.float32)


def linear(g: ad.Builder, x: Any, wide: int = WIDTH, out: int = WIDTH) -> Any:
    return g.add(g.matmul(x, g.constant(weights(wide, out))), g.constant(weights(out)))


def part(start: int, end: int) -> Head:
    return lambda g, b, x: g.slice(x, starts=(start,), ends=(end,), axes=(1,))


def reduced(name: str, keepdims: bool) -> Head:
    return lambda g, b, x: getattr(g, name)(x, axes=(1,), keepdims=keepdims)


HEADS_OF: dict[str, Head] = {
    "all": lambda g, b, x: x,
    "last": part(-1, END),
    "first": part(0, 1),
    "second": part(1, 2),
    "last three": part(-3, END),
    "all but the last": part(0, -1),
    "gathered": lambda g, b, x: g.gather(x, g.constant(numpy.int64(-1)), axis=1),
    "two gathered": lambda g, b, x: g.gather(x, g.constant(numpy.array([0, -1])), axis=1),
    "mean": reduced("reduce_mean", False),
    "mean, kept": reduced("reduce_mean", True),
    "max": reduced("reduce_max", False),
    "largest": lambda g, b, x: g.top_k(x, k=1, axis=1)[0],
    "squeezed": lambda g, b, x: g.squeeze(part(-1, END)(g, b, x), axes=(1,)),
    "reshaped": lambda g, b, x: g.reshape(part(-1, END)(g, b, x), shape=(b, WIDTH)),
}
TAILS: dict[str, Callable[[ad.Builder, Any], Any]] = {
    "logits": lambda g, y: y,
    "softmax": lambda g, y: g.softmax(y, axis=-1),
    "argmax": lambda g, y: g.arg_max(y, axis=-1, keepdims=False),
    "behind": lambda g, y: g.relu(y),
}


def layer(g: ad.Builder, sizes: tuple[Any, Any], x: Any, mix: Any) -> Any:
    """A layer of a transformer; `mix` makes all keys or values of the new ones."""
    b, s = sizes
    heads = (linear(g, g.layer_norm(x, *norm(g), axis=-1)) for _ in range(3))
    q, *new = (
        g.transpose(g.reshape(each, shape=(b, s, HEADS, WIDTH // HEADS)), perm=(0, 2, 1, 3))
        for each in heads
    )
    k, v = map(mix, ("keys", "values"), new)
    shares = g.softmax(g.mul(g.matmul(q, g.transpose(k, perm=(0, 1, 3, 2))), 0.5), axis=-1)
    mixed = g.reshape(g.transpose(g.matmul(shares, v), perm=(0, 2, 1, 3)), shape=(b, s, WIDTH))
    x = g.add(x, linear(g, mixed))
    inner = g.gelu(linear(g, g.layer_norm(x, *norm(g), axis=-1), WIDTH, 4 * WIDTH))
    return g.add(x, linear(g, inner, 4 * WIDTH, WIDTH))


def norm(g: ad.Builder) -> tuple[Any, Any]:
    return g.constant(weights(WIDTH)), g.constant(weights(WIDTH))


def headed(g: ad.Builder, b: Any, x: Any, head: str, tail: str) -> ad.Builder:
    """The head before the product with weights, or behind it."""
    if tail == "behind":
        y = HEADS_OF[head](g, b, linear(g, x))
    else:
        y = linear(g, HEADS_OF[head](g, b, x), WIDTH, WORDS)
    g.output("y", TAILS[tail](g, y))
    return g


def encoder(head: str, tail: str, low: int = 0) -> ad.Builder:
    g = ad.Builder("encoder")
    b, s = g.dim("batch", 0, 64), g.dim("seq", low, 4096)
    x = g.input("x", ad.float32, (b, s, WIDTH))
    for _ in range(2):
        x = layer(g, (b, s), x, lambda name, new: new)
    return headed(g, b, x, head, tail)


def decoder(head: str, tail: str, low: int = 0) -> ad.Builder:
    g = ad.Builder("decoder")
    b, s, past = g.dim("batch"), g.dim("seq", low), g.dim("past", 0, 4096)
    x = g.gather(g.constant(weights(WORDS, WIDTH)), g.input("ids", ad.int64, (b, s)), axis=0)
    for number in range(2):

        def grown(name: str, new: Any, number: int = number) -> Any:
            shape = (b, HEADS, past, WIDTH // HEADS)
            whole = g.concat(g.input(f"{name}_{number}", ad.float32, shape), new, axis=2)
            g.output(f"new_{name}_{number}", whole)
            return whole

        x = layer(g, (b, s), x, grown)
    return headed(g, b, x, head, tail)


def products_with_weights(graph: Graph) -> tuple[int, int]:
    """Their number outside of loops over rows, and inside of them."""
    loops = (node.region.held["body"] for node in graph.nodes if node.operator == "loop")
    return _count(graph), sum(map(_count, loops))


def _count(graph: Graph) -> int:
    """Products of which one side is a matrix of constant size: no other value of the models is."""
    products = (node for node in graph.nodes if node.operator == "matmul")
    sides = ([graph.types[name].shape for name in node.given] for node in products)
    return sum(any(len(s) == 2 and None not in [n.constant for n in s] for s in each)
               for each in sides)  # fmt: skip


CASES = [(head, "logits") for head in HEADS_OF]
CASES += [(head, tail) for head in ("last", "mean", "squeezed")
          for tail in TAILS if tail != "logits"]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("make", (encoder, decoder))
@pytest.mark.parametrize("low", (0, 1))
@pytest.mark.parametrize(("head", "tail"), CASES)
def test_products_with_weights_stand_in_no_loop(head: str, tail: str, low: int, make: Any) -> None:
    graph = make(head, tail, low).graph()
    if make is encoder:
        graph, _ = RaggedRows("auto").run(graph)
    else:
        graph, _ = over_rows(with_spare_capacity(graph, None), {"seq": "batch"})
    assert products_with_weights(graph) == (13, 0)


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize(("head", "tail"), CASES)
def test_rows_of_an_encoder(head: str, tail: str) -> None:
    graph = encoder(head, tail, 1)
    alone, ragged = ad.compile(graph, threads=1), ad.compile(graph, ragged="auto", threads=1)
    for lengths in BATCHES:
        rows = [weights(length, WIDTH) for length in lengths]
        made = ragged(x=rows)["y"]
        for number, row in enumerate(rows):
            numpy.testing.assert_array_equal(made[number], ragged(x=[row])["y"][0])
            expected = alone(x=row[None])["y"][0]  # its algebra may round otherwise
            numpy.testing.assert_allclose(made[number], expected, 1e-5, 2e-6)
    for length in (1, 40):
        no_more_work(*(ragged.plan(lengths=[length] * count) for count in (1, 16)), 16)
    assert "a loop over rows" not in ragged.explain()


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize(("head", "tail"), CASES)
def test_rows_of_a_decoder(head: str, tail: str) -> None:
    graph = decoder(head, tail, 1)
    model, other = (ad.cached(graph, ragged={"seq": "batch"}, threads=1) for _ in "12")
    assert isinstance(model, CachedRows) and isinstance(other, CachedRows)
    rows = {model.join(): other.join() for _ in range(4)}
    for lengths in ([5, 1, 17, 2], [1] * 4, [1] * 4, [3, 1, 2, 9]):
        tokens = [numpy.arange(length) * 7 % WORDS for length in lengths]
        made = model.step(dict(zip(rows, tokens)))["y"]
        for number, (row, own) in enumerate(zip(rows.values(), tokens)):
            numpy.testing.assert_array_equal(made[number], other.step({row: own})["y"][0])
    for past, new in ((0, 40), (100, 1)):
        no_more_work(*(model.plan([past] * count, [new] * count) for count in (1, 16)), 16)
    assert "a loop over rows" not in model.model.explain()


def no_more_work(one: Any, many: Any, count: int) -> None:
    """Rows take no more than calls of one row: nothing is done for each that is done once."""
    assert many.flops <= count * one.flops and moved_bytes(many) <= count * moved_bytes(one)


def test_a_loop_that_reads_weights_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(costs: LoopCosts, inside: frozenset[int], free: Any) -> frozenset[int]:
        return inside.union(free)

    monkeypatch.setattr(LoopCosts, "moved", everything)
    lines = [line for line in findings(wide().program) if "loop over rows" in line]
    assert len(lines) == 1 and lines[0] in wide().explain()
    monkeypatch.undo()
    assert not findings(wide().program)


def wide() -> ad.Model:
    """A product with weights between two loops over rows; they are larger than 64 tokens."""
    g = ad.Builder("wide")
    x = g.input("x", ad.float32, (g.dim("batch"), g.dim("seq"), 256))
    y = g.matmul(g.softmax(x, axis=1), g.constant(weights(256, 256)))
    g.output("y", g.softmax(y, axis=1))
    return ad.compile(g, ragged="auto", threads=1)
