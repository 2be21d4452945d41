"""`lib.f.vjp`: the derivative of a definition, itself a definition.

    lib = ad.define("def f(float(N) x) -> (y) { y(i) = x(i) * x(i) }")
    lib.f.vjp(x, dy)                # the cotangent of x
    print(lib.f.vjp.text)           # def f_vjp(float(N) x, float(N) dy) -> (dx) { ... }

It is derived once for each kind of arguments: element types, ranks, attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.errors import InputError, LanguageError, OptionError
from anydim.base.frozen import FrozenMapping, freeze_value
from anydim.base.reports import report_unexpected
from anydim.base.sheet import Sheet, Shown
from anydim.base.text import quote_list
from anydim.compiler.frontends.definition import kinds_of
from anydim.compiler.frontends.definition_graph import graph_of
from anydim.lang.derivatives.derive import Vjp, vjp_of
from anydim.lang.derivatives.reverse import NoStepDerivative
from anydim.lang.surface.printer import print_definition
from anydim.lang.surface.sequences import is_sequence
from anydim.lang.surface.syntax import Definition
from anydim.lang.tree import Group


def derive_vjp(
    definition: Definition,
    arrays: Sequence[numpy.ndarray],
    attributes: Mapping[str, Any],
    fixed: Mapping[str, int],
    wanted: Sequence[str] | None = None,
) -> Vjp:
    """The vector-Jacobian product of a definition for such arguments; `wanted`: of these alone.

    Raises LanguageError where the definition has no derivative.
    """
    unlike = "structures" if definition.types else "calls of itself" if definition.family else ""
    if not unlike and is_sequence(definition):
        unlike = "algorithms, `while` or calls for each row"
    if unlike:
        raise definition.error(definition.position, f"a definition with {unlike} has no derivative")
    pattern = kinds_of(definition, arrays, attributes)
    group = graph_of(definition, pattern, attributes, fixed).nodes[0].attributes["group"]
    assert isinstance(group, Group)
    for tensors, words in ((group.inputs, "argument"), (group.outputs, "result")):
        if not any(tensor.type.dtype.kind == "float" for tensor in tensors):
            reason = f"no derivative: no {words} is of a float type"
            raise definition.error(definition.position, reason)
    try:
        return vjp_of(group, definition.name, wanted)
    except NoStepDerivative as problem:
        raise LanguageError(
            f"{definition.file}:{definition.line}: {definition.name}: no derivative: {problem}",
            "write the statement as functions that have one, or the derivative as a definition",
        ) from None


class Derivative(Shown):
    """The derivative of `function`: a definition for each kind of arguments.

    `make` turns a definition into a function on arrays.
    """

    def __init__(self, function: Any, make: Callable[[Definition], Any]) -> None:
        self._of = function
        self._make = make
        self._known: dict[Any, tuple[Vjp, Any]] = {}

    @report_unexpected
    def __call__(self, /, *values: Any, **named: Any) -> Any:
        """The cotangents of the float arguments (several: a named tuple).

        Takes the arguments of the definition, then the cotangents of its float results, by
        position or name (`dy` for y), and attributes by name.
        """
        given, cotangents, attributes = self._split_arguments(values, named)
        vjp, function = self._for(given, attributes)
        if len(cotangents) != len(vjp.results):
            raise InputError(
                f"{self._of.definition.name}.vjp takes the arguments and {len(vjp.results)} "
                f"cotangents, of {quote_list(vjp.results)}; {len(cotangents)} came"
            )
        return function(*given, *cotangents)

    @report_unexpected
    def function(self, /, *values: Any, **named: Any) -> Any:
        """The definition for such arguments of the definition it is the derivative of.

        The result is a function like those of `define`, with a `vjp` of its own.
        """
        given, _, attributes = self._split_arguments(values, named)
        return self._for(given, attributes)[1]

    @property
    def text(self) -> str:
        """The definition as text, for float arguments with one axis for each ellipsis."""
        arrays, attributes = self._of._usual_arguments()
        return print_definition(self._for(arrays, attributes)[1].definition)

    def derive(
        self, arrays: Sequence[Any], attributes: Mapping[str, Any], wanted: tuple[str, ...]
    ) -> tuple[Vjp, Any]:
        """The derivative for these arguments, by the `wanted` ones, and its function."""
        return self._for(arrays, attributes, wanted)

    def _split_arguments(
        self, values: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Sequence[Any], list[Any], dict[str, Any]]:
        """The arguments, the cotangents and the attributes."""
        definition = self._of.definition
        count = len(definition.parameters)
        taken = {parameter.name for parameter in definition.parameters} | set(self._of._attributes)
        last = [
            named.pop(f"d{name}") for name in definition.results
            if f"d{name}" in named and f"d{name}" not in taken
        ]  # fmt: skip
        out, fixed, attributes, given = self._of._split_arguments(values[:count], named)
        if out is not None or fixed is not None:
            raise OptionError(f"{definition.name}.vjp takes neither out= nor fixed=")
        return given, [*values[count:], *last], attributes

    def _for(
        self, given: Sequence[Any], attributes: Mapping[str, Any],
        wanted: tuple[str, ...] | None = None,
    ) -> tuple[Vjp, Any]:  # fmt: skip
        arrays = self._of._arrays(given)
        definition = self._of.definition
        frozen = FrozenMapping({name: freeze_value(v) for name, v in attributes.items()})
        key = (kinds_of(definition, arrays, attributes), frozen, wanted)
        if key not in self._known:
            vjp = derive_vjp(definition, arrays, attributes, self._of._fixed, wanted)
            self._known[key] = vjp, self._make(vjp.definition)
        return self._known[key]

    def _sheet(self) -> Sheet:
        """What it is derived for, and the texts."""
        texts = "\n".join(print_definition(v.definition) for v, _ in self._known.values())
        title = f"{self._of.definition.name}.vjp, the derivative of a definition"
        return Sheet(title, (("derived for", str(len(self._known))),), (), texts)

    def __repr__(self) -> str:
        return f"<anydim derivative of {self._of.definition.name}>"
