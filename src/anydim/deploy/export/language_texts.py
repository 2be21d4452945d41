"""Values for the templates of an exported language model in C (`templates/language/`)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from anydim.deploy.export.exported import Exported
from anydim.deploy.export.language import CHUNK, Language
from anydim.deploy.export.literals import comment
from anydim.sizes import Atom, Factor, Size

_FUNCTIONS = {
    "floordiv": "quotient", "mod": "modulus", "min": "least", "max": "most", "where": "either",
}  # fmt: skip
_DIMS = ("d_new", "d_picks", "d_states", "d_past", "d_capacity")
_INPUTS = ("tokens", "picks", "states")


def language_values(program: Exported, language: Language) -> dict[str, str]:
    """Values for the slots of templates, beside those of every program."""
    signature, table = program.signature, language.table
    inputs = {spec.name: number for number, spec in enumerate(signature.inputs)}
    outputs = {spec.key: number for number, spec in enumerate(signature.outputs)}
    slots = itertools.accumulate((spec.rank for spec in signature.inputs), initial=0)
    roles = dict(zip(_INPUTS, language.inputs)) | {"rows": table.rows, "sums": table.sums}
    ports = (f"{{{inputs[each.input]}, {outputs[each.result]}}}" for each in language.caches)
    numbers = {
        "vocabulary": language.vocabulary, "last_token": language.vocabulary - 1,
        "context": language.context, "chunk": CHUNK, "room": language.room,
        "most": language.most,
        "caches": len(language.caches), "strips": language.strips,
        "numbers_of_element": language.depth, "element": language.depth * language.width,
        "output_logits": outputs[language.logits],
        **{f"input_{role}": inputs[name] for role, name in roles.items()},
    }  # fmt: skip
    return {
        **{slot: str(number) for slot, number in numbers.items()},
        **dict(zip(_DIMS, language.dims)),
        "model": comment(language.name),
        "cache_ports": ", ".join(ports),
        "size_slots": ", ".join(map(str, list(slots)[:-1])),
        "stops": ", ".join(map(str, (*language.stop, -1))),
        "step": _expression(language.step),
        "row": _expressions(language.row),
        "totals": _expressions(language.sums),
    }


def _expressions(sizes: Iterable[Size]) -> str:
    return ", ".join(map(_expression, sizes))


def _expression(size: Size) -> str:
    """A size over dims as an expression of C."""
    terms = (
        " * ".join([f"INT64_C({count})", *map(_factor, term)])
        for term, count in size.coefficients.items()
    )
    return " + ".join(terms) or "0"


def _factor(factor: Factor) -> str:
    if not isinstance(factor, Atom):
        return str(factor)
    function, first, *rest = _FUNCTIONS[factor.function], *map(_expression, factor.arguments)
    if factor.function not in ("min", "max"):
        return f"{function}({', '.join((first, *rest))})"
    for other in rest:
        first = f"{function}({first}, {other})"
    return first if rest else f"({first})"
