"""A definition in a file as a program: `kernels.tc:matmul`.

Every size variable becomes a dim. The other parameters of the graph (attributes, types of type
variables, ranks of ellipses) have defaults; a `TextSource` or example arrays override them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy

import anydim.compiler.ops  # noqa: F401  operators that definitions call
from anydim.base.dtypes import DTYPES
from anydim.base.errors import OptionError
from anydim.base.text import count_of, quote_list, suggestion
from anydim.compiler.frontends.custom import read_text
from anydim.compiler.frontends.definition import ArgumentKinds, keywords, kinds_of
from anydim.compiler.frontends.definition_graph import flattened_definition, graph_of
from anydim.compiler.frontends.text_source import TextSource, options_of
from anydim.compiler.graph.nodes import Graph
from anydim.lang.resolve.ranks import ellipses_of, spreads_of
from anydim.lang.surface.parser import parse_users
from anydim.lang.surface.printer import print_head
from anydim.lang.surface.syntax import TYPE_NAMES, Attribute, Definition, Parameter, Spread
from anydim.sizes import Box, Dim


def text_graph(source: TextSource, dims: Mapping[str, Dim] | None) -> Graph:
    """Build the graph of a definition of a file.

    Raises OptionError for a missing file, definition or keyword, and LanguageError for an invalid
    text.
    """
    definition = definition_of(source)
    attributes = _attributes(source, definition)
    pattern = _pattern(source, flattened_definition(definition), attributes)
    graph = graph_of(definition, pattern, attributes)
    return graph.replace(box=_bound_dims(graph.box, dims or {}, definition.name))


def text_call(source: TextSource) -> tuple[Definition, Mapping[str, Any]]:
    """The definition of a source, and the attributes and ranks that it is compiled with."""
    definition = definition_of(source)
    attributes = _attributes(source, definition)
    _pattern(source, flattened_definition(definition), attributes)
    return definition, attributes


def text_options(source: TextSource) -> tuple[str, tuple[str, ...], str]:
    """The schedule options in the file of a source, its definitions, and the selected one."""
    text, file = read_text(source.path)
    known = parse_users(text, file)
    return options_of(text), tuple(known), definition_of(source).name


def definition_of(source: TextSource) -> Definition:
    """The definition of a source; OptionError if the file does not define it."""
    text, file = read_text(source.path)
    known = parse_users(text, file)
    if source.name in known:
        return known[source.name]
    if not source.name and len(known) == 1:
        return next(iter(known.values()))
    if not known:
        raise OptionError(
            f"{file} has no definition", "write one: def f(float(N) x) -> (y) { y(i) = 2 * x(i) }"
        )
    problem = f"{file} has {count_of(len(known), 'definition')}: which one is meant?"
    if source.name:
        problem = f"{file} has no definition '{source.name}'"
    near = suggestion(source.name, known)
    heads = [f"{source.path}:{print_head(definition)}" for definition in known.values()]
    raise OptionError(problem, "\n".join([*([near] if near else []), "there is", *heads]))


# ---- parameters of the graph -------------------------------------------------------------------


def _attributes(source: TextSource, definition: Definition) -> dict[str, Any]:
    known = keywords(definition)
    kinds = {attribute.name: attribute for attribute in definition.attributes}
    found = {}
    for keyword, text in source.attributes.items():
        if keyword not in known:
            hint = suggestion(keyword, known) or f"its attributes are {quote_list(known)}"
            raise OptionError(f"{definition.name} has no attribute '{keyword}'", hint)
        key = known[keyword]
        found[key] = _value(kinds.get(key, Attribute(key, "int")), text, definition.name)
    missing = [a for a in definition.attributes if a.default is None and a.name not in found]
    if missing:
        raise OptionError(
            f"{definition.name} needs attribute '{missing[0].name}' ({missing[0].kind})",
            f"give it: --attribute {missing[0].name}={_EXAMPLES[missing[0].kind]}; in Python, "
            f"ad.define(text).{definition.name}(..., {missing[0].name}=...)",
        )
    return found


_EXAMPLES = {"int": "2", "size": "2", "float": "0.5", "bool": "true", "type": "float64"}
_READERS: Mapping[str, Any] = {
    "int": int, "size": int, "float": float, "type": str,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
}  # fmt: skip


def _value(attribute: Attribute, text: str, name: str) -> Any:
    try:
        return _READERS[attribute.kind](text)
    except (KeyError, ValueError):
        kind = attribute.kind
        raise OptionError(
            f"attribute '{attribute.name}' of {name} is of kind {kind}, and '{text}' is not",
            f"such as --attribute {attribute.name}={_EXAMPLES[kind]}",
        ) from None


def _pattern(
    source: TextSource, definition: Definition, attributes: dict[str, Any]
) -> ArgumentKinds:
    """The pattern of the example arguments; sets the default ranks in `attributes`."""
    types = _types(source, definition)
    whole = all(p.name in source.arrays for p in definition.parameters)
    for name, rank in () if whole else _ranks(source, definition):
        attributes.setdefault(f"...{name}", rank)
    arrays = [
        source.arrays.get(p.name, numpy.broadcast_to(numpy.float32(0), _shape(p, attributes)))
        for p in definition.parameters
    ]
    pattern = kinds_of(definition, arrays, attributes)
    named = zip(definition.parameters, pattern)
    return tuple((types[parameter.type], ones) for parameter, (_, ones) in named)


def _ranks(source: TextSource, definition: Definition) -> Iterator[tuple[str, int]]:
    """The rank of each ellipsis: from an array whose only ellipsis it is, else 1."""
    for name in ellipses_of(definition):
        found = [
            source.arrays[p.name].ndim - len(p.shape) + 1
            for p in definition.parameters
            if p.name in source.arrays and [t.name for t in spreads_of(p)] == [name]
        ]
        yield name, max(found, default=1)


def _shape(parameter: Parameter, attributes: Mapping[str, Any]) -> tuple[int, ...]:
    """An example shape of a parameter's rank."""
    ranks = (attributes.get(f"...{t.name}", 1) if isinstance(t, Spread) else 1
             for t in parameter.shape)  # fmt: skip
    return (2,) * sum(ranks)


def _types(source: TextSource, definition: Definition) -> dict[str, str]:
    """The element type of each type variable and type name of a definition."""
    variables = {p.type for p in definition.parameters} - TYPE_NAMES.keys()
    for variable, name in source.types.items():
        if variable not in variables:
            hint = suggestion(variable, variables)
            there = f"its type variables are {quote_list(sorted(variables))}"
            raise OptionError(f"{definition.name} has no type variable '{variable}'", hint or there)
        if TYPE_NAMES.get(name) not in DTYPES:
            hint = suggestion(name, TYPE_NAMES) or f"the types are {quote_list(TYPE_NAMES)}"
            raise OptionError(f"there is no element type '{name}'", hint)
    found = {variable: TYPE_NAMES[name] for variable, name in source.types.items()}
    for parameter in definition.parameters:
        if parameter.name in source.arrays:
            found.setdefault(parameter.type, source.arrays[parameter.name].dtype.name)
    return {**dict.fromkeys(variables, "float32"), **found, **TYPE_NAMES}


def _bound_dims(box: Box, dims: Mapping[str, Dim], name: str) -> Box:
    for dim in dims:
        if dim not in box.names:
            hint = suggestion(dim, box.names) or f"its dims are {quote_list(box.names)}"
            raise OptionError(f"{name} has no dim '{dim}'", hint)
    bounded = (dims[d.name].named(d.name) if d.name in dims else d for d in box.dims)
    return Box.of(*bounded, constraints=box.constraints)
