"""Promise: what is padded changes no true element, whatever lies behind them; the rest is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy
import pytest

import anydim as ad
from anydim.base.frozen import FrozenMapping
from anydim.compiler.frontends.builder import Value
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.graph.verify import verify
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.templates import TEMPLATES
from anydim.compiler.passes import pad
from anydim.compiler.passes.options import PLAIN
from anydim.compiler.passes.padded_addresses import joined_address, split_address
from anydim.compiler.pipeline import PASSES
from anydim.lang.tree import Literal
from anydim.lang.tree.affine import Affine
from anydim.sizes import Box, Dim, Size, as_size
from anydim.sizes.padded import padded_size
from tests.unit.compiler.passes.graphs import draw, weights

MACHINE = Machine(vector_bytes=32, registers=16)
SIZES = (0, 1, 2, 3, 7, 8, 9, 16)  # of s, whose bound is 16


def dense(g: ad.Builder, x: Value, seed: int = 0, width: int = 8) -> Value:
    return g.relu(g.matmul(x, g.constant(weights(8, width, seed=seed))))


def chain(g: ad.Builder, x: Value, ids: Value) -> Value:
    return dense(g, g.softmax(dense(g, x)), 1)


def scores(g: ad.Builder, x: Value, ids: Value) -> Value:
    """Every row of s beside every other one; sums over them."""
    b, s, _ = x.shape
    first, second, third = (
        g.transpose(g.reshape(dense(g, x, n), shape=(b, s, 2, 4)), perm=(0, 2, 1, 3))
        for n in range(3)
    )
    shares = g.softmax(g.matmul(first, g.transpose(second, perm=(0, 1, 3, 2))))
    mixed = g.transpose(g.matmul(shares, third), perm=(0, 2, 1, 3))
    return dense(g, g.reshape(mixed, shape=(b, s, 8)), 4)


def column_sums(g: ad.Builder, x: Value, ids: Value) -> Value:
    y = dense(g, x)
    return dense(g, y - g.reduce_max(y, axes=(1,), keepdims=True), 1)


def merged_rows(g: ad.Builder, x: Value, ids: Value) -> Value:
    """Batch and s as one axis, and as two again."""
    b, s, _ = x.shape
    y = g.reshape(dense(g, x), shape=(b * s, 8))
    return g.reshape(g.tanh(g.matmul(y, g.constant(weights(8, 8)))), shape=(b, s, 8))


def reversed_rows(g: ad.Builder, x: Value, ids: Value) -> Value:
    """The last row first: in a launch that makes a result, and in one that does not."""
    return dense(g, dense(g, g.exp(dense(g, x)[:, ::-1]), 1)[:, ::-1], 2)


def neighbours(g: ad.Builder, x: Value, ids: Value) -> Value:
    """The row before each, and zeros before the first and behind the last one."""
    y = dense(g, x)
    return dense(g, g.pad(y, before=(0, 1, 0), after=(0, 1, 0))[:, 2:], 1)


def shorter(g: ad.Builder, x: Value, ids: Value) -> Value:
    """All rows but the last one of a value that has one more."""
    longer = dense(g, g.pad(x, before=(0, 0, 0), after=(0, 1, 0)))
    return dense(g, dense(g, longer[:, :-1], 1), 2)


def looked_up(g: ad.Builder, x: Value, ids: Value) -> Value:
    return dense(g, dense(g, g.gather(g.constant(weights(11, 8)), ids)) + x, 1)


def joined(g: ad.Builder, x: Value, ids: Value) -> Value:
    return dense(g, g.concat(dense(g, x), x, axis=1), 1)


def strange_numbers(g: ad.Builder, x: Value, ids: Value) -> Value:
    """Divisions by what is 0 behind the last row, logarithms of it, integers of infinities."""
    whole = (ids + 7) / (ids + 1)
    return dense(g, g.log(g.relu(x) + 1.0) / (x * x + 1.0), 1) + g.unsqueeze(
        g.cast(whole, to="float32"), axes=(2,)
    )


GRAPHS: dict[str, Callable[[ad.Builder, Value, Value], Value]] = {
    made.__name__: made
    for made in (
        chain, scores, column_sums, merged_rows, reversed_rows, neighbours, shorter, looked_up,
        joined, strange_numbers,
    )
}  # fmt: skip
PADDED = {"chain": 1, "scores": 4, "reversed_rows": 1, "looked_up": 1}  # launches, at least
REASONS = {
    "chain": "it computes a result", "column_sums": "reductions end at the true size",
    "neighbours": "it is read out of bounds", "looked_up": "its indices depend on data",
    "merged_rows": "it is read with another shape",
}  # fmt: skip


def graph_of(name: str) -> Graph:
    g = ad.Builder(name)
    b, s = g.dim("b", 0, 4), g.dim("s", 0, 16)
    x, ids = g.input("x", ad.float32, (b, s, 8)), g.input("ids", ad.int64, (b, s))
    g.output("y", GRAPHS[name](g, x, ids))
    return g.graph()


def padded(graph: Graph, **pads: int | str) -> tuple[Graph, list[str]]:
    options = replace(PLAIN, pads=FrozenMapping(pads))
    notes: list[str] = []
    for entry in PASSES:
        made = entry.make(MACHINE, TEMPLATES, options)
        graph = made.run(graph)
        notes += getattr(made, "notes", ())
    return verify(graph), notes


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies behind the elements of a copy is no number, or a large one."""

    def literal(value: int, dtype: ad.DType) -> Literal:
        return Literal(float("nan") if dtype.kind == "float" else 1 << 20, dtype)

    monkeypatch.setattr(pad, "Literal", literal)


@pytest.mark.sampled(most=12)
@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("rule", [3, "pow2", "bound"])
@pytest.mark.parametrize("name", GRAPHS)
def test_every_true_element_is_as_before(name: str, rule: int | str) -> None:
    graph = graph_of(name)
    changed, _ = padded(graph, s=rule)
    for s in SIZES:
        inputs = draw(graph, {"b": 2, "s": s})
        inputs["ids"] = inputs["ids"] % 11
        with numpy.errstate(all="ignore"):
            wanted, came = evaluate(graph, inputs)["y"], evaluate(changed, inputs)["y"]
        numpy.testing.assert_allclose(came, wanted, 2e-5, 2e-5)  # sums in another order


@pytest.mark.parametrize("name", PADDED)
def test_so_many_launches_are_padded(name: str) -> None:
    _, notes = padded(graph_of(name), s=3)
    (line,) = (note for note in notes if "runs to" in note)
    assert line.startswith("pad: s runs to 3*((s + 2)//3) in ")
    assert int(line.split(" in ")[1].split()[0]) >= PADDED[name]


@pytest.mark.parametrize("name", REASONS)
def test_what_is_left_is_told_with_its_reason(name: str) -> None:
    _, notes = padded(graph_of(name), s="pow2")
    assert any(
        note.startswith("pad: not padded along s, ") and REASONS[name] in note for note in notes
    )


def test_two_dims_are_padded_one_after_the_other() -> None:
    graph = graph_of("scores")
    changed, notes = padded(graph, s=4, b=3)
    assert sum("runs to" in note for note in notes) == 2
    for b, s in [(0, 5), (1, 1), (2, 7), (4, 16)]:
        inputs = draw(graph, {"b": b, "s": s})
        wanted, came = evaluate(graph, inputs)["y"], evaluate(changed, inputs)["y"]
        numpy.testing.assert_allclose(came, wanted, 2e-5, 2e-5)


@pytest.mark.parametrize("high", [0, 1, 5, 16, 17, None])
@pytest.mark.parametrize("rule", [1, 16, "pow2", "bound"])
def test_a_padded_size_is_never_below_the_dim(high: int | None, rule: int | str) -> None:
    box = Box.of(Dim("s", 0, high))
    if rule == "bound" and high is None:
        with pytest.raises(ad.OptionError, match="no upper bound to pad to"):
            padded_size("s", rule, box)
        return
    size = padded_size("s", rule, box)
    for s in range(min(high, 40) + 1) if high is not None else (0, 1, 2, 3, 1 << 20, 5 << 40):
        value = size.evaluate({"s": s})
        wanted = {1: s, 16: -(-s // 16) * 16, "bound": high}.get(rule)
        if rule == "pow2" and s <= 1 << 40:
            wanted = 1 << (s - 1).bit_length() if s else 0
        assert value == wanted if wanted is not None else value >= s


def test_addresses_are_split_address_at_what_grows() -> None:
    b, s = Size.symbol("b"), Size.symbol("s")
    box, extents = Box.of(Dim("b", 1), Dim("s", 1)), {"i": b, "j": s, "k": as_size(384)}
    shape = (b, s, as_size(12), as_size(32))
    form = Affine.of(as_size(0), {"i": 384 * s, "j": as_size(384), "k": as_size(1)})
    parts = split_address(form, shape, {1}, extents, box)
    assert parts is not None
    longer = joined_address(parts, (b, 2 * s, *shape[2:]))
    assert longer == Affine.of(as_size(0), {"i": 768 * s, "j": as_size(384), "k": as_size(1)})
    carried = Affine.of(as_size(1), dict(form.terms))  # the last k is in the next row
    assert split_address(carried, shape, {1}, extents, box) is None
    backwards = Affine.of(384 * s - 384, {"i": 384 * s, "j": as_size(-384)})
    assert split_address(backwards, shape, {1}, extents, box) is None
