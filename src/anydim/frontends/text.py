"""A definition in a file as a program: `kernels.tc:matmul`.

Every size variable is a dim. A type variable is float32, an ellipsis one axis.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.text import listed, suggestion
from anydim.frontends.custom import read_text
from anydim.frontends.definition import graph_of
from anydim.frontends.pragmas import options_of
from anydim.graph.nodes import Graph
from anydim.lang.stored import stored_definitions
from anydim.lang.syntax import TYPE_NAMES, Definition, Parameter
from anydim.sizes import Box, Dim

_SOURCE = re.compile(r"(?P<path>.+\.tc)(?::(?P<name>[A-Za-z_]\w*))?", re.DOTALL)


def is_text_source(source: Any) -> bool:
    """Whether a source names a file of definitions."""
    return isinstance(source, str) and _SOURCE.fullmatch(source) is not None


def text_graph(source: str, dims: Mapping[str, Dim] | None) -> Graph:
    """The graph of `path.tc:name`; the name may be left out where there is one definition.

    Raises OptionError for a file or a name that is not there, LanguageError for a bad text.
    """
    definition, _, _ = _definition(source)
    pattern = tuple(
        (TYPE_NAMES.get(p.type, "float32"), (False,) * _rank(p)) for p in definition.parameters
    )
    graph = graph_of(definition, pattern, {})
    return graph.replace(box=_bounded(graph.box, dims or {}, definition.name))


def text_options(source: Any) -> tuple[str, tuple[str, ...], str]:
    """The options that the file of a source asks for, its definitions, and the one it names."""
    if not is_text_source(source):
        return "", (), ""
    definition, known, text = _definition(source)
    return options_of(text), tuple(known), definition.name


def _definition(source: str) -> tuple[Definition, dict[str, Definition], str]:
    found = _SOURCE.fullmatch(source)
    assert found is not None
    text, file = read_text(found["path"])
    known = stored_definitions(text, file)
    if found["name"] is None and len(known) == 1:
        return next(iter(known.values())), known, text
    if found["name"] not in known:
        hint = suggestion(found["name"] or "", known) or f"it defines {listed(known)}"
        what = f"'{found['name']}'" if found["name"] else "one definition"
        raise OptionError(f"{file} does not have {what}", f"{hint}: {file}:NAME")
    return known[found["name"]], known, text


def _rank(parameter: Parameter) -> int:
    return len(parameter.shape)


def _bounded(box: Box, dims: Mapping[str, Dim], name: str) -> Box:
    for dim in dims:
        if dim not in box.names:
            hint = suggestion(dim, box.names) or f"its dims are {listed(box.names)}"
            raise OptionError(f"{name} has no dim '{dim}'", hint)
    bounded = (dims[d.name].named(d.name) if d.name in dims else d for d in box.dims)
    return Box.of(*bounded, constraints=box.constraints)
