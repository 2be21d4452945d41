"""Lazy names of a package: a module is imported at the first access to one of its names.

    __getattr__ = late_names(__name__, {"box": ("Box", "Dim")})      # in an __init__.py

No module may have the same name as an exported name: importing it would overwrite the name with the
module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def late_names(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package; `modules` maps its modules to their exported names."""
    known = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        module = known.get(name)
        if module is None:
            text = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(text, name=name, obj=sys.modules[package])
        value = getattr(import_module(f"{package}.{module}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
