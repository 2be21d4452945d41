"""Dispatch of loop IR to the methods of a class, for the targets that walk it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar, get_args

from anydim.compiler.kernels import ir

_INNER_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
Visitor = TypeVar("Visitor")
Rule = Callable[[Any, Any], Any]


def methods_of(visitor: type) -> dict[type, Rule]:
    """Return the method for each class of steps and values: `_load_at` for `ir.LoadAt`.

    A class without a method has no entry: the target does not support it.
    """
    kinds = (*get_args(ir.Step), *ir.Value.__subclasses__())
    names = {kind: f"_{_INNER_CAPITAL.sub('_', kind.__name__).lower()}" for kind in kinds}
    return {kind: getattr(visitor, name) for kind, name in names.items() if hasattr(visitor, name)}
