"""Definitions that torch's graphs call: by the name of their operator, in torch.ops.anydim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anydim.lang.surface.syntax import Definition

DEFINITIONS: dict[str, tuple[Definition, Mapping[str, Any]]] = {}
"""Definition and attributes of each registered operator; `anydim/torch/operators.py` fills it."""


def definition_of(overload: str) -> tuple[Definition, Mapping[str, Any]] | None:
    """The definition of an overload such as anydim.softmax_1f0c.default; None for another one."""
    namespace, _, rest = overload.partition(".")
    return DEFINITIONS.get(rest.partition(".")[0]) if namespace == "anydim" else None
