"""The packages of Ray, as far as they are installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from anydim.base.errors import MissingError
from anydim.base.missing_package import install


def ray_module(name: str = "ray") -> Any:
    """A module of Ray, or one that it needs; raises MissingError where it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingError(
            f"this needs the package {error.name or name}", install("ray")
        ) from error
