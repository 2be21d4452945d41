"""TC texts of recurrent networks: a loop over time around the equations of one iteration.

One node is one direction of a layer. x is [time, batch, input] ([batch, time, input] with
`batch_first`); weights, biases and initial states hold all directions, `direction` selects one.
Results are y [time, batch, hidden] and the last states [batch, hidden]. A row shorter than time
(`lengths`) keeps its state after its end, and its y is 0 there.

With `dynamic`, x [time, batch, gates * hidden] is the input's contribution to the gates, and the
recurrent weights are bytes [directions, hidden, gates * hidden] with a scale and a zero point per
column of a direction. Each iteration quantises the whole state h over its range, 0 included.

Equations and the order of gates: ONNX, operators RNN, GRU and LSTM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anydim.base.errors import GraphError
from anydim.base.records import dataclass
from anydim.compiler.graph.operator import REQUIRED, Attributes, Types, Written
from anydim.compiler.ops.writing import definition
from anydim.sizes import Box

OPTIONAL = ("bias", "lengths", "first_h", "first_c", "peepholes")  # the inputs after x, w and r


@dataclass(frozen=True)
class Activation:
    """Activation of a gate: its text over {x}, {a}, {b}, and the defaults of alpha and beta."""

    text: str
    alpha: float = 0.0
    beta: float = 0.0


ACTIVATIONS: Mapping[str, Activation] = {
    "relu": Activation("max({x}, 0)"),
    "tanh": Activation("tanh({x})"),
    "sigmoid": Activation("sigmoid({x})"),
    "affine": Activation("({a} * {x} + {b})", 1.0, 0.0),
    "leakyrelu": Activation("({x} < 0 ? {a} * {x} : {x})", 0.01),
    "thresholdedrelu": Activation("({x} > {a} ? {x} : 0)", 1.0),
    "scaledtanh": Activation("({a} * tanh({b} * {x}))", 1.0, 1.0),
    "hardsigmoid": Activation("min(max({a} * {x} + {b}, 0), 1)", 0.2, 0.5),
    "elu": Activation("({x} < 0 ? {a} * expm1({x}) : {x})", 1.0),
    "softsign": Activation("({x} / (1 + abs({x})))"),
    "softplus": Activation("log(1 + exp({x}))"),
}

COMMON: dict[str, object] = {
    "given": (), "direction": 0, "reverse": False, "activations": REQUIRED, "clip": 0.0,
    "batch_first": False, "dynamic": False,
}  # fmt: skip


_DYNAMIC = (
    "low(u) min=! h(b,k) where u in 0:1",
    "high(u) max=! h(b,k) where u in 0:1",
    "reach(u) = max(high(u), 0.0) - min(low(u), 0.0)",
    "step(u) = reach(u) > 0.0 ? reach(u) / 255.0 : 1.0",
    "start(u) = min(max(round(-min(low(u), 0.0) / step(u)), 0.0), 255.0)",
    "state(b,k) = cast<uint8>(int(min(max(round(h(b,k) / step(0)) + start(0), 0.0), 255.0)))",
    "sums(b,g) +=! (int(state(b,k)) - int(start(0))) * (int(bytes(D,k,g)) - int(zero(D,g)))",
    "own(b,g) = gates(t,b,g)",
    "past(b,g) = T(sums(b,g)) * (step(0) * scale(D,g))",
)  # D: the direction


@dataclass(frozen=True)
class Recurrent:
    """Writer of a layer with `gates` gates; `iteration` writes one iteration."""

    name: str
    gates: int
    states: str
    iteration: Callable[[_Layer], list[str]]

    def __call__(self, types: Types, attributes: Attributes, box: Box) -> Written:
        given = attributes["given"]
        layer = _Layer(self, given, attributes)
        if not set(given) <= set(OPTIONAL) or len(types) != len(layer.required) + len(given):
            takes = ", ".join(layer.required)
            raise GraphError(f"operator '{self.name}' takes {takes} and some of {OPTIONAL}")
        body = "\n    ".join([*layer.products(), *self.iteration(layer), *layer.keep()])
        span = "S-1 : -1 : -1" if attributes["reverse"] else "0:S"
        statements = [*layer.first(), f"for t in {span} {{\n    {body}\n  }}"]
        results = ["y", *(f"{state}" for state in self.states)]
        return Written(definition(self.name, layer.parameters(), statements, (), results))


@dataclass(frozen=True)
class _Layer:
    """Pieces of one layer's text."""

    record: Recurrent
    given: Sequence[str]
    attributes: Attributes

    @property
    def d(self) -> int:
        return int(self.attributes["direction"])

    @property
    def required(self) -> tuple[str, ...]:
        """The required inputs."""
        dynamic = self.attributes["dynamic"]
        return ("gates", "bytes", "scale", "zero") if dynamic else ("x", "w", "r")

    def parameters(self) -> list[str]:
        gates, batch_first = self.record.gates, self.attributes["batch_first"]
        known = {
            "x": "T(B,S,I) x" if batch_first else "T(S,B,I) x",
            "w": f"T(D,{gates}*H,I) w",
            "r": f"T(D,{gates}*H,H) r",
            "gates": f"T(S,B,{gates}*H) gates",
            "bytes": f"R(D,H,{gates}*H) bytes",
            "scale": f"T(D,{gates}*H) scale",
            "zero": f"R(D,{gates}*H) zero",
            "bias": f"T(D,{2 * gates}*H) bias",
            "lengths": "int32(B) lengths",
            "first_h": "T(B,D,H) first_h" if batch_first else "T(D,B,H) first_h",
            "first_c": "T(B,D,H) first_c" if batch_first else "T(D,B,H) first_c",
            "peepholes": "T(D,3*H) peepholes",
        }
        return [known[name] for name in (*self.required, *self.given)]

    def first(self) -> list[str]:
        """Initialise the states."""
        element = f"(b,{self.d},j)" if self.attributes["batch_first"] else f"({self.d},b,j)"
        return [
            f"{state}(b,j) = first_{state}{element}" if f"first_{state}" in self.given
            else f"{state}(b,j) = cast<T>(0) where b in 0:B, j in 0:H"
            for state in self.record.states
        ]  # fmt: skip

    def products(self) -> list[str]:
        """The contributions of the input and of the previous state to all gates."""
        if self.attributes["dynamic"]:
            return [line.replace("(D,", f"({self.d},") for line in _DYNAMIC]
        x = "x(b,t,i)" if self.attributes["batch_first"] else "x(t,b,i)"
        late = self.record.name == "gru" and not self.attributes["linear_before_reset"]
        rows = f" where g in 0:{self.record.gates - 1}*H" if late else ""
        return [
            f"own(b,g) +=! {x} * w({self.d},g,i)",
            f"past(b,g) +=! h(b,k) * r({self.d},g,k){rows}",
        ]

    def row(self, gate: int) -> str:
        """Index of a gate's element j among all gates."""
        return {0: "j", 1: "H + j"}.get(gate, f"{gate}*H + j")

    def bias(self, gate: int, recurrent: bool) -> str:
        if "bias" not in self.given:
            return ""
        row = self.row(gate + (self.record.gates if recurrent else 0))
        return f" + bias({self.d},{row})"

    def sum(self, gate: int) -> str:
        """The pre-activation of a gate without its peepholes."""
        row, both = self.row(gate), self.bias(gate, False) + self.bias(gate, True)
        return f"own(b,{row}) + past(b,{row}){both}"

    def peephole(self, number: int, state: str) -> str:
        if "peepholes" not in self.given:
            return ""
        return f" + peepholes({self.d},{self.row(number)}) * {state}(b,j)"

    def gate(self, name: str, function: int, body: str) -> list[str]:
        """name(b,j) = activation number `function` of a body, clipped when `clip` is set."""
        clip = float(self.attributes["clip"])
        if clip > 0:
            body = f"min(max({body}, -{clip!r}), {clip!r})"
        given = self.attributes["activations"]
        label, alpha, beta = given[function] if function < len(given) else ("", 0.0, 0.0)
        if label not in ACTIVATIONS:
            missing = f"is '{label}'" if label else "is missing"
            raise GraphError(
                f"operator '{self.record.name}': activation {function + 1} {missing}",
                f"it is one of {', '.join(ACTIVATIONS)}",
            )
        text = ACTIVATIONS[label].text
        made = text.format(x=f"{name}_sum(b,j)", a=f"({alpha!r})", b=f"({beta!r})")
        return [f"{name}_sum(b,j) = {body} where j in 0:H", f"{name}(b,j) = {made}"]

    def keep(self) -> list[str]:
        """The new states and this iteration's slice of y; finished rows keep their states."""
        inside = "t < lengths(b) ? " if "lengths" in self.given else ""
        old = {s: f" : {s}(b,j)" if inside else "" for s in self.record.states}
        kept = [f"{s}(b,j) = {inside}new_{s}(b,j){old[s]}" for s in self.record.states]
        return [f"y(t,b,j) = {inside}new_h(b,j){' : 0' if inside else ''}", *kept]


def _rnn(layer: _Layer) -> list[str]:
    return layer.gate("new_h", 0, layer.sum(0))


def _gru(layer: _Layer) -> list[str]:
    """Gates z, r, h; the reset gate acts before or after the product with the recurrent weights."""
    update, reset = layer.gate("z", 0, layer.sum(0)), layer.gate("reset", 0, layer.sum(1))
    row = layer.row(2)
    if layer.attributes["linear_before_reset"]:
        past = f"reset(b,j) * (past(b,{row}){layer.bias(2, True)})"
        lines: list[str] = []
        body = f"own(b,{row}) + {past}{layer.bias(2, False)}"
    else:
        lines = [
            "seen(b,j) = reset(b,j) * h(b,j)",
            f"again(b,j) +=! seen(b,k) * r({layer.d},{row},k) where j in 0:H",
        ]
        body = f"own(b,{row}) + again(b,j){layer.bias(2, True)}{layer.bias(2, False)}"
    made = layer.gate("hidden", 1, body)
    last = "new_h(b,j) = (1 - z(b,j)) * hidden(b,j) + z(b,j) * h(b,j)"
    return [*update, *reset, *lines, *made, last]


def _lstm(layer: _Layer) -> list[str]:
    """Gates i, o, f, c."""
    keep = layer.gate("keep", 0, layer.sum(2) + layer.peephole(2, "c"))
    enter = layer.gate("enter", 0, layer.sum(0) + layer.peephole(0, "c"))
    if layer.attributes["input_forget"]:
        keep = [*enter, "keep(b,j) = 1 - enter(b,j)"]
        enter = []
    leave = layer.gate("leave", 0, layer.sum(1) + layer.peephole(1, "new_c"))
    label, alpha, beta = layer.attributes["activations"][2]
    activated = ACTIVATIONS[label].text.format(x="new_c(b,j)", a=f"({alpha!r})", b=f"({beta!r})")
    return [
        *keep,
        *enter,
        *layer.gate("cell", 1, layer.sum(3)),
        "new_c(b,j) = keep(b,j) * c(b,j) + enter(b,j) * cell(b,j)",
        *leave,
        f"new_h(b,j) = leave(b,j) * {activated}",
    ]


RNN = Recurrent("rnn", 1, "h", _rnn)
GRU = Recurrent("gru", 3, "h", _gru)
LSTM = Recurrent("lstm", 4, "hc", _lstm)
