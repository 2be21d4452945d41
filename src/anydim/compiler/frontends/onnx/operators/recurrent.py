"""Rows of the ONNX operators RNN, GRU and LSTM: a node for each direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anydim.base.dtypes import int32
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.ops.recurrent import ACTIVATIONS, OPTIONAL

_REVERSED = {
    "forward": (False,), "reverse": (True,), "bidirectional": (False, True),
}  # fmt: skip
_DEFAULTS = {"rnn": ("Tanh",), "gru": ("Sigmoid", "Tanh"), "lstm": ("Sigmoid", "Tanh", "Tanh")}
_EXTRA = {"gru": ("linear_before_reset",), "lstm": ("input_forget",)}


def _as_given(call: OnnxNode, direction: int) -> list[str]:
    return [call.input(number) for number in range(3)]


def recurrent(
    name: str, first: Callable[[OnnxNode, int], list[str]] = _as_given, **own: object
) -> Callable[[OnnxNode], list[Result]]:
    """The row of a recurrent layer: y [time, directions, batch, hidden], then its last states.

    `first` returns the inputs of a direction before the optional ones, `own` are further
    attributes.
    """

    def build(call: OnnxNode) -> list[Result]:
        directions = _directions(call)
        batch_first = bool(call.attribute("layout", 0))
        given = [what for number, what in enumerate(OPTIONAL, start=3) if call.given(number)]
        inputs = [_optional_input(call, number) for number in range(3, 8) if call.given(number)]
        extra = {key: bool(call.attribute(key, 0)) for key in _EXTRA.get(name, ())}
        functions = _functions(call, _DEFAULTS[name], len(directions))
        made = [
            call.emit_many(
                name, 3 if name == "lstm" else 2, *first(call, number), *inputs,
                given=tuple(given), direction=number, reverse=reverse,
                activations=functions[number], batch_first=batch_first,
                clip=float(call.attribute("clip") or 0.0), **extra, **own,
            )
            for number, reverse in enumerate(directions)
        ]  # fmt: skip
        axes = [2, 1, 1] if batch_first else [1, 0, 0]
        results: list[Result] = []
        for parts, axis in zip(zip(*made), axes):
            if len(results) == 0 and batch_first:
                parts = tuple(call.emit("transpose", part, perm=(1, 0, 2)) for part in parts)
            lifted = [call.emit("unsqueeze", part, axes=(axis,)) for part in parts]
            several = len(lifted) > 1
            results.append(call.emit("concat", *lifted, axis=axis) if several else lifted[0])
        return results

    return build


def _optional_input(call: OnnxNode, number: int) -> str:
    """An optional input; data-dependent sequence lengths are checked."""
    if OPTIONAL[number - 3] != "lengths":
        return call.input(number)
    limit = call.shape(0)[bool(call.attribute("layout", 0))]
    return call.emit("cast", call.counted(call.input(number), limit), to=int32)


def _directions(call: OnnxNode) -> tuple[bool, ...]:
    """For each direction, whether it runs backwards."""
    direction = call.attribute("direction", "forward")
    if direction not in _REVERSED:
        raise Unsupported(f"direction {direction!r}")
    return _REVERSED[direction]


def _functions(call: OnnxNode, defaults: tuple[str, ...], directions: int) -> list[tuple[Any, ...]]:
    """(name, alpha, beta) of the functions of each direction; alphas and betas are in order."""
    wanted = len(defaults) * directions
    names = call.attribute("activations") or defaults * directions
    if len(names) < wanted:
        raise Unsupported(f"{len(names)} activations, {wanted} are needed")
    alphas = list(call.attribute("activation_alpha") or ())
    betas = list(call.attribute("activation_beta") or ())
    found = []
    for name in names[:wanted]:  # the standard's default for RNN has one too many
        known = ACTIVATIONS.get(name.lower())
        if known is None:
            raise Unsupported(f"activation {name!r}")
        alpha = alphas.pop(0) if "{a}" in known.text and alphas else known.alpha
        beta = betas.pop(0) if "{b}" in known.text and betas else known.beta
        found.append((name.lower(), float(alpha), float(beta)))
    count = len(defaults)
    return [tuple(found[n * count : (n + 1) * count]) for n in range(directions)]
