"""Integrations: packages outside of the compiler, which it knows by this table alone.

An integration may import the interface and the compiler; nothing below it imports the integration.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {"torch operators": "anydim.torch.operators"}


def load_integration(name: str) -> Any:
    """Import the module of an integration, on first use."""
    return import_module(_MODULES[name])
