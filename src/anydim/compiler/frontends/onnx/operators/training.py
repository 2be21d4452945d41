"""Rows of ai.onnx.preview.training: optimiser steps on any number of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result


def optimiser(name: str, kinds: int, **renamed: str) -> Callable[[OnnxNode], Sequence[Result]]:
    """A step for each of n tensors; inputs are the rate, the count, and `kinds` groups of n."""

    def build(call: OnnxNode) -> Sequence[Result]:
        attributes = {own: call.attribute(theirs) for own, theirs in renamed.items()}
        if "mode" in call.attributes:
            attributes["nesterov"] = call.attribute("mode") == "nesterov"
        count, rest = divmod(len(call.inputs) - 2, kinds)
        if rest or not count:
            raise Unsupported(f"{len(call.inputs)} inputs")
        rate, steps = call.scalar(0), call.scalar(1)
        made = []
        for tensor in range(count):
            given = [call.input(2 + kind * count + tensor) for kind in range(kinds)]
            own = call.as_type(rate, call.kind(given[0]).dtype)
            made.append(call.emit_many(name, kinds - 1, own, steps, *given, **attributes))
        return [row[kind] for kind in range(kinds - 1) for row in made]

    return build
