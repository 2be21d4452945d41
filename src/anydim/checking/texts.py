"""The oracle for definitions of the language: the interpreter of `lang/interpreter/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anydim.base.records import dataclass
from anydim.checking.oracle import Answer, Arrays, NoAnswer, Oracle
from anydim.lang.interpreter.kinds import NotCovered
from anydim.lang.interpreter.run import run
from anydim.lang.surface.syntax import (
    CallTerm,
    Definition,
    Flat,
    LoopBlock,
    Range,
    Term,
    items,
    walk,
)

_FLOPS, _BYTES = 2e5, 2.0**20  # of one call: about a second


@dataclass(frozen=True)
class DefinitionCall:
    """A definition, and the attributes that it was compiled with."""

    definition: Definition
    attributes: Mapping[str, Any]

    @property
    def counted(self) -> bool:
        """Whether numbers in tensors decide how often something runs."""
        definition = self.definition
        names = {parameter.name for parameter in definition.parameters}
        for item in items(definition.statements):
            ends: list[Term] = []
            if isinstance(item, LoopBlock):
                ends = [item.start, item.stop]
            for clause in getattr(item, "where", ()):
                ends += [clause.low, clause.high] if isinstance(clause, Range) else []
            if any(_reads(part, names) for end in ends for part in walk(end)):
                return True
        return any(DefinitionCall(callee, {}).counted for callee in definition.callees)


def _reads(term: Term, names: set[str]) -> bool:
    return isinstance(term, (CallTerm, Flat)) or getattr(term, "name", "") in names


def interpreter(call: DefinitionCall, names: Sequence[str]) -> Oracle:
    """The text itself, element by element; `names` are those of a model's results, in order."""
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
