"""The oracle for definitions of the language: the interpreter of `lang/interpreter/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anydim.compiler.checking.oracle import Answer, Arrays, NoAnswer, Oracle
from anydim.compiler.frontends.origins import DefinitionCall
from anydim.lang.interpreter.kinds import NotCovered
from anydim.lang.interpreter.run import run

_FLOPS, _BYTES = 2e5, 2.0**20  # per call: about a second


def interpreter(call: DefinitionCall, names: Sequence[str]) -> Oracle:
    """The interpreter of the text, per element; `names` are the model's results, in order."""
    parameters = [parameter.name for parameter in call.definition.parameters]

    def answer(inputs: Arrays) -> Mapping[str, Answer]:
        try:
            found = run(call.definition, [inputs[name] for name in parameters], call.attributes)
        except NotCovered as reason:
            raise NoAnswer(f"the interpreter has no answer: {reason}") from None
        results = zip(names, found.values())
        return {name: Answer(result.kind, result.values) for name, result in results}

    title = "the interpreter of the language"
    note = "runs the text in float64, element by element, at small sizes"
    return Oracle("interpreter", title, note, answer, True, _FLOPS, _BYTES)
