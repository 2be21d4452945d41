"""Comments of a text in the language that have a meaning: `# domain: ...` and `# option ...`.

    # domain: my.ops
    # option matmul.C: contraction(rows=6)

The domain is that of the ONNX operators which the text implements; an option is a schedule.
"""

from __future__ import annotations

import re

_DOMAIN = re.compile(r"^[ \t]*#[ \t]*domain:[ \t]*(\S+)[ \t]*$", re.MULTILINE)
_OPTION = re.compile(r"^[ \t]*#[ \t]*option[ \t]+(.+?)[ \t]*$", re.MULTILINE)


def domain_of(text: str) -> str:
    """The domain declared in a text; '' if there is none."""
    found = _DOMAIN.search(text)
    return "" if found is None else found[1]


def options_of(text: str) -> str:
    """The options declared in a text, one per line."""
    return "\n".join(_OPTION.findall(text))
