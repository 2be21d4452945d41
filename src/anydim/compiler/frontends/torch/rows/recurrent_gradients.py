"""Rows of the gradients of LSTM, GRU and RNN: one layer, in one or both directions.

The sums of the gates of all iterations are products outside of the loop. A loop against time gives
the gradients of these sums, one product per iteration; those of the weights are products again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from anydim.base.records import dataclass
from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.builder import Build, TorchBuilder
from anydim.compiler.frontends.torch.refusal import Refused
from anydim.lang.surface.parser import parse_definition
from anydim.lang.surface.syntax import Definition

_LSTM = """def lstm_gradient(
  T(S,B,4*H) own, T(S,B,4*H) past, T(B,H) first, T(S,B,H) dy, T(B,H) last, T(B,H) last_c,
  T(4*H,H) r) -> (gates, dh, dc)
{
  sums(t,b,g) = own(t,b,g) + past(t,b,g)
  for t in FORWARD {
    c(t,b,j) = sigmoid(sums(t,b,H + j)) * (c(BEFORE,b,j) else first(b,j))
      + sigmoid(sums(t,b,j)) * tanh(sums(t,b,2*H + j))
  }
  dh(b,j) = last(b,j)
  dc(b,j) = last_c(b,j)
  for t in BACKWARD {
    s(b,j) = dy(t,b,j) + dh(b,j)
    enter(b,j) = sigmoid(sums(t,b,j)) where j in 0:H
    keep(b,j) = sigmoid(sums(t,b,H + j)) where j in 0:H
    cell(b,j) = tanh(sums(t,b,2*H + j)) where j in 0:H
    leave(b,j) = sigmoid(sums(t,b,3*H + j)) where j in 0:H
    u(b,j) = tanh(c(t,b,j))
    k(b,j) = dc(b,j) + s(b,j) * leave(b,j) * (1 - u(b,j) * u(b,j))
    gates(t,b,j) = k(b,j) * cell(b,j) * enter(b,j) * (1 - enter(b,j)) where j in 0:H
    gates(t,b,H + j) = k(b,j) * (c(BEFORE,b,j) else first(b,j)) * keep(b,j) * (1 - keep(b,j))
      where j in 0:H
    gates(t,b,2*H + j) = k(b,j) * enter(b,j) * (1 - cell(b,j) * cell(b,j)) where j in 0:H
    gates(t,b,3*H + j) = s(b,j) * u(b,j) * leave(b,j) * (1 - leave(b,j)) where j in 0:H
    dc(b,j) = k(b,j) * keep(b,j)
    dh(b,j) +=! gates(t,b,g) * r(g,j)
  }
}
"""
_GRU = """def gru_gradient(
  T(S,B,3*H) own, T(S,B,3*H) past, T(S,B,H) before, T(S,B,H) dy, T(B,H) last, T(3*H,H) r)
  -> (gates, late, dh)
{
  dh(b,j) = last(b,j)
  for t in BACKWARD {
    s(b,j) = dy(t,b,j) + dh(b,j)
    reset(b,j) = sigmoid(own(t,b,j) + past(t,b,j)) where j in 0:H
    z(b,j) = sigmoid(own(t,b,H + j) + past(t,b,H + j)) where j in 0:H
    n(b,j) = tanh(own(t,b,2*H + j) + reset(b,j) * past(t,b,2*H + j)) where j in 0:H
    k(b,j) = s(b,j) * (1 - z(b,j)) * (1 - n(b,j) * n(b,j))
    m(b,j) = k(b,j) * past(t,b,2*H + j) * reset(b,j) * (1 - reset(b,j)) where j in 0:H
    q(b,j) = s(b,j) * (before(t,b,j) - n(b,j)) * z(b,j) * (1 - z(b,j))
    gates(t,b,j) = m(b,j) where j in 0:H
    gates(t,b,H + j) = q(b,j) where j in 0:H
    gates(t,b,2*H + j) = k(b,j) where j in 0:H
    late(t,b,j) = m(b,j) where j in 0:H
    late(t,b,H + j) = q(b,j) where j in 0:H
    late(t,b,2*H + j) = k(b,j) * reset(b,j) where j in 0:H
    more(b,j) +=! late(t,b,g) * r(g,j)
    dh(b,j) = more(b,j) + s(b,j) * z(b,j)
  }
}
"""
_RNN = """def rnn_gradient(T(S,B,H) y, T(S,B,H) dy, T(B,H) last, T(H,H) r) -> (gates, dh)
{
  dh(b,j) = last(b,j)
  for t in BACKWARD {
    s(b,j) = dy(t,b,j) + dh(b,j)
    gates(t,b,j) = SLOPE
    dh(b,j) +=! gates(t,b,g) * r(g,j)
  }
}
"""
_SLOPES = {
    "rnn_tanh": "s(b,j) * (1 - y(t,b,j) * y(t,b,j))",
    "rnn_relu": "(y(t,b,j) > 0 ? s(b,j) : 0)",
}
_TEXTS = {"lstm": _LSTM, "gru": _GRU, "rnn_tanh": _RNN, "rnn_relu": _RNN}
_RISING, _FALLING = "0:S", "S-1:-1:-1"


@cache
def _definition(name: str, reverse: bool) -> Definition:
    forward, backward = (_FALLING, _RISING) if reverse else (_RISING, _FALLING)
    words = {"FORWARD": forward, "BACKWARD": backward, "BEFORE": "t + 1" if reverse else "t - 1",
             "SLOPE": _SLOPES.get(name, "")}  # fmt: skip
    text = _TEXTS[name]
    for word, own in words.items():
        text = text.replace(word, own)
    return parse_definition(text, text.split("(")[0].removeprefix("def "))


@dataclass(frozen=True)
class _Direction:
    """One direction: values are [time, batch, ...], states [batch, hidden]."""

    name: str
    reverse: bool
    x: Value
    y: Value
    dy: Value
    first: tuple[Value, ...]
    last: tuple[Value, ...]  # cotangents
    weights: tuple[Value, ...]

    def gradients(self, g: TorchBuilder) -> tuple[Value, list[Value], list[Value]]:
        """Those of x, of the first states, and of the weights."""
        inner, _, *biases = self.weights
        before = self.before(g)
        gates, late, states = self.loop(g, before)
        made = [_by_weight(g, gates, self.x), _by_weight(g, late, before)]
        if biases:
            made += [g.reduce_sum(each, axes=(0, 1)) for each in (gates, late)]
        return g.matmul(gates, inner), states, made

    def before(self, g: TorchBuilder) -> Value:
        """The hidden state before each iteration."""
        first, length = g.unsqueeze(self.first[0], axes=(0,)), self.y.shape[0]
        start, end = (1, length) if self.reverse else (0, length - 1)
        rest = g.slice(self.y, starts=(start,), ends=(end,), axes=(0,))
        return g.concat(rest, first, axis=0) if self.reverse else g.concat(first, rest, axis=0)

    def loop(self, g: TorchBuilder, before: Value) -> tuple[Value, Value, list[Value]]:
        """Gradients of the sums of the gates, of their recurrent part, and of the first states."""
        inner, outer, *biases = self.weights
        definition = _definition(self.name, self.reverse)
        if self.name.startswith("rnn"):
            gates, dh = g.call(definition, self.y, self.dy, self.last[0], outer)
            return gates, gates, [dh]
        own, past = _linear(g, self.x, inner, biases[:1]), _linear(g, before, outer, biases[1:])
        if self.name == "gru":
            gates, late, dh = g.call(definition, own, past, before, self.dy, self.last[0], outer)
            return gates, late, [dh]
        first, last = self.first[1], self.last
        gates, dh, dc = g.call(definition, own, past, first, self.dy, *last, outer)
        return gates, gates, [dh, dc]


def _linear(g: TorchBuilder, x: Value, weight: Value, bias: Sequence[Value]) -> Value:
    made = g.matmul(x, g.transpose(weight, perm=(1, 0)))
    return g.add(made, bias[0]) if bias else made


def _by_weight(g: TorchBuilder, gates: Value, x: Value) -> Value:
    """The gradient of a weight: gates [time, batch, g] and x [time, batch, i] give [g, i]."""
    rows = gates.shape[0] * gates.shape[1]
    left = g.transpose(g.reshape(gates, shape=(rows, gates.shape[2])), perm=(1, 0))
    return g.matmul(left, g.reshape(x, shape=(rows, x.shape[2])))


def gradients(name: str) -> Build:
    """Gradients of x, of the first states and of the weights, in one list."""

    def build(
        g: TorchBuilder, cotangents: Sequence[Value], y: Value, x: Value,
        first: Value | Sequence[Value], weights: Sequence[Value], biases: bool, layers: int,
        dropout: float, train: bool, both: bool, batch_first: bool,
    ) -> list[Value]:  # fmt: skip
        rows, count = 1 + both, 4 if biases else 2
        if layers != 1 or len(weights) != rows * count or len(x.shape) != 3:
            raise Refused("several layers, projections, or a series without a batch")
        states = [first] if isinstance(first, Value) else list(first)
        dy, *last = cotangents
        if batch_first:
            x, y, dy = (g.transpose(each, perm=(1, 0, 2)) for each in (x, y, dy))
        made = []
        for row in range(rows):
            own = [_row(g, each, row) for each in (*states, *last)]
            direction = _Direction(
                name, row == 1, x, _half(g, y, row, rows), _half(g, dy, row, rows),
                tuple(own[: len(states)]), tuple(own[len(states) :]),
                tuple(weights[row * count : (row + 1) * count]),
            )  # fmt: skip
            made.append(direction.gradients(g))
        dx = made[0][0] if rows == 1 else g.add(made[0][0], made[1][0])
        ends = [_stack(g, [each[1][n] for each in made]) for n in range(len(states))]
        if batch_first:
            dx = g.transpose(dx, perm=(1, 0, 2))
        return [dx, *ends, *(weight for each in made for weight in each[2])]

    return build


def _row(g: TorchBuilder, state: Value, row: int) -> Value:
    return g.squeeze(g.slice(state, starts=(row,), ends=(row + 1,), axes=(0,)), axes=(0,))


def _half(g: TorchBuilder, y: Value, row: int, rows: int) -> Value:
    """Slices the half of y that belongs to a direction."""
    if rows == 1:
        return y
    size = y.shape[2] // rows
    return g.slice(y, starts=(size * row,), ends=(size * (row + 1),), axes=(2,))


def _stack(g: TorchBuilder, states: Sequence[Value]) -> Value:
    made = [g.unsqueeze(each, axes=(0,)) for each in states]
    return made[0] if len(made) == 1 else g.concat(*made, axis=0)


ROWS: dict[str, Any] = {f"anydim.{name}_backward.default": gradients(name) for name in _TEXTS}
