"""A definition in a file as a source, `kernels.tc:matmul`, and comments that have a meaning.

    # domain: my.ops
    # option matmul.C: contraction(rows=6)

The domain is that of the ONNX operators which the text implements; an option is a schedule.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass

if TYPE_CHECKING:
    import numpy

_SOURCE = re.compile(r"(?P<path>.+\.tc)(?::(?P<name>[A-Za-z_]\w*))?", re.DOTALL)


@dataclass(frozen=True)
class TextSource:
    """A definition of a file and its parameters; `name` is optional in a file with one definition.

    `attributes` maps keywords, ranks of ellipses included, to texts; `types` maps type variables to
    names of element types. `arrays` are example arguments: they give the types and ranks that are
    not stated, which default to float32 and one axis.
    """

    path: str
    name: str = ""
    attributes: Mapping[str, str] = field(default_factory=FrozenMapping)
    types: Mapping[str, str] = field(default_factory=FrozenMapping)
    arrays: Mapping[str, numpy.ndarray] = field(default_factory=FrozenMapping)


def text_source(source: Any) -> TextSource | None:
    """The definition that a source names; None if the source is no text."""
    if isinstance(source, TextSource):
        return source
    found = _SOURCE.fullmatch(source) if isinstance(source, str) else None
    return None if found is None else TextSource(found["path"], found["name"] or "")


_DOMAIN = re.compile(r"^[ \t]*#[ \t]*domain:[ \t]*(\S+)[ \t]*$", re.MULTILINE)
_OPTION = re.compile(r"^[ \t]*#[ \t]*option[ \t]+(.+?)[ \t]*$", re.MULTILINE)


def domain_of(text: str) -> str:
    """The domain declared in a text; '' if there is none."""
    found = _DOMAIN.search(text)
    return "" if found is None else found[1]


def options_of(text: str) -> str:
    """The options declared in a text, one per line."""
    return "\n".join(_OPTION.findall(text))
