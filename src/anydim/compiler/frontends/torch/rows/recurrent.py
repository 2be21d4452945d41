"""Rows of LSTM, GRU and RNN: a node of the library for each direction of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anydim.base.dtypes import int64
from anydim.base.records import dataclass
from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.builder import Build, TorchBuilder
from anydim.compiler.frontends.torch.refusal import Refused


@dataclass(frozen=True)
class Cell:
    """A kind of layer: the library's operator, the order of its gates among torch's, functions."""

    name: str
    order: tuple[int, ...]
    activations: tuple[str, ...]
    states: int = 1
    attributes: tuple[tuple[str, Any], ...] = ()


LSTM = Cell("lstm", (0, 3, 1, 2), ("sigmoid", "tanh", "tanh"), 2)
GRU = Cell("gru", (1, 0, 2), ("sigmoid", "tanh"), attributes=(("linear_before_reset", True),))
TANH = Cell("rnn", (0,), ("tanh",))
RELU = Cell("rnn", (0,), ("relu",))


def recurrent(cell: Cell) -> Build:
    """(y, last states): x [time, batch, input] or, with `batch_first`, [batch, time, input]."""

    def build(
        g: TorchBuilder, x: Value, first: Value | Sequence[Value], weights: Sequence[Value],
        biases: bool, layers: int, dropout: float, train: bool, both: bool, batch_first: bool,
    ) -> list[Value]:  # fmt: skip
        if train and dropout:
            raise Refused("dropout between layers in training")
        states = [first] if isinstance(first, Value) else list(first)
        flat = len(x.shape) == 2  # no batch
        if flat:
            x = g.unsqueeze(x, axes=(1,))
            states, batch_first = [g.unsqueeze(each, axes=(1,)) for each in states], False
        if batch_first:
            x = g.transpose(x, perm=(1, 0, 2))
        made, last = run_layers(g, cell, x, states, list(weights), biases, layers, 1 + both)
        if batch_first:
            made = g.transpose(made, perm=(1, 0, 2))
        results = [made, *last]
        return [g.squeeze(each, axes=(1,)) for each in results] if flat else results

    return build


def run_layers(
    g: TorchBuilder, cell: Cell, x: Value, states: Sequence[Value], weights: list[Value],
    biases: bool, layers: int, directions: int,
) -> tuple[Value, list[Value]]:  # fmt: skip
    """The layers one after another; last states are stacked by layer and direction."""
    width = len(weights) // (layers * directions)
    is_projected = width == (5 if biases else 3)
    ends: list[list[Value]] = [[] for _ in states]
    for layer in range(layers):
        parts: list[Value] = []
        for direction in range(directions):
            at = layer * directions + direction
            own = weights[at * width : (at + 1) * width]
            begin = [g.slice(each, starts=(at,), ends=(at + 1,), axes=(0,)) for each in states]
            run = run_projected if is_projected else run_direction
            made, *last = run(g, cell, x, begin, own, direction == 1)
            parts.append(made)
            for each, end in zip(ends, last):
                each.append(g.unsqueeze(end, axes=(0,)))
        x = parts[0] if directions == 1 else g.concat(*parts, axis=2)
    return x, [each[0] if len(each) == 1 else g.concat(*each, axis=0) for each in ends]


def run_direction(
    g: TorchBuilder, cell: Cell, x: Value, begin: Sequence[Value], weights: Sequence[Value],
    reverse: bool,
) -> list[Value]:  # fmt: skip
    """y [time, batch, hidden] and the last states [batch, hidden] of one direction."""
    inner, outer, *bias = (order_gates(g, weight, cell.order) for weight in weights)
    given = ["bias"] if bias else []
    inputs = [x, g.unsqueeze(inner, axes=(0,)), g.unsqueeze(outer, axes=(0,))]
    if bias:
        inputs.append(g.unsqueeze(g.concat(*bias, axis=0), axes=(0,)))
    given += ["first_h", "first_c"][: len(begin)]
    functions = tuple((name, 0.0, 0.0) for name in cell.activations)
    return list(getattr(g, cell.name)(
        *inputs, *begin, given=tuple(given), reverse=reverse, activations=functions,
        **dict(cell.attributes),
    ))  # fmt: skip


def run_projected(
    g: TorchBuilder, cell: Cell, x: Value, begin: Sequence[Value], weights: Sequence[Value],
    reverse: bool,
) -> list[Value]:  # fmt: skip
    """The same of an LSTM whose states h are run_projected, by the last weight."""
    inner, outer, *bias, narrow = weights
    first_h, first_c = (g.squeeze(each, axes=(0,)) for each in begin)
    given = _reverse_time(g, g.matmul(x, g.transpose(inner, perm=(1, 0))), reverse)
    for each in bias:
        given = g.add(given, each)
    back, last = g.transpose(outer, perm=(1, 0)), g.transpose(narrow, perm=(1, 0))
    width = first_c.shape[-1]

    def step(b: Any, t: Any, h: Value, c: Value) -> list[Value]:
        gates = b.add(b.gather(given, b.scalar(t, int64), axis=0), b.matmul(h, back))
        i, f, n, o = (
            b.slice(gates, starts=(width * at,), ends=(width * (at + 1),), axes=(1,))
            for at in range(4)
        )
        kept = b.mul(b.sigmoid(f), c)
        c = b.add(kept, b.mul(b.sigmoid(i), b.tanh(n)))
        h = b.matmul(b.mul(b.sigmoid(o), b.tanh(c)), last)
        b.stack(h)
        return [h, c]

    h, c, made = g.loop(step, first_h, first_c, trips=x.shape[0])
    return [_reverse_time(g, made, reverse), h, c]


def _reverse_time(g: TorchBuilder, x: Value, reverse: bool) -> Value:
    """Reverses the time axis, if `reverse`."""
    if not reverse:
        return x
    places = g.sub(g.scalar(x.shape[0] - 1, int64), g.positions(x.shape[0]))
    return g.gather(x, places, axis=0)


def order_gates(g: TorchBuilder, weight: Value, order: Sequence[int]) -> Value:
    """The rows of a weight or bias by gates in the library's order."""
    if tuple(order) == tuple(range(len(order))):
        return weight
    size = weight.shape[0] // len(order)
    parts = [
        g.slice(weight, starts=(size * gate,), ends=(size * (gate + 1),), axes=(0,))
        for gate in order
    ]
    return g.concat(*parts, axis=0)


_CELLS = {"lstm": LSTM, "gru": GRU, "rnn_tanh": TANH, "rnn_relu": RELU}

ROWS: dict[str, Build] = {
    **{f"{name}.input": recurrent(cell) for name, cell in _CELLS.items()},
    **{f"anydim.{name}.default": recurrent(cell) for name, cell in _CELLS.items()},
}
