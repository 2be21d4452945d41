"""The interpreter as an oracle of `Model.check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anydim.compiler.checking.oracle import Answer, Arrays, NoAnswer, Oracle
from anydim.lang.surface.syntax import Definition
from tests.interpreter.kinds import NotCovered
from tests.interpreter.run import run

_FLOPS, _BYTES = 2e5, 2.0**20  # per call: about a second


def interpreter(
    definition: Definition, names: Sequence[str], attributes: Mapping[str, Any] | None = None
) -> Oracle:
    """An oracle that interprets `definition`; `names` are the model's outputs, in order."""
    parameters = [parameter.name for parameter in definition.parameters]

    def answer(inputs: Arrays) -> Mapping[str, Answer]:
        try:
            found = run(definition, [inputs[name] for name in parameters], attributes or {})
        except NotCovered as reason:
            raise NoAnswer(f"the interpreter has no answer: {reason}") from None
        results = zip(names, found.values())
        return {name: Answer(result.kind, result.values) for name, result in results}

    title = "the interpreter of the language"
    note = "runs the text in float64, element by element, at small sizes"
    return Oracle("interpreter", title, note, answer, True, _FLOPS, _BYTES)
