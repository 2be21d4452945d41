"""Errors for missing packages."""

from __future__ import annotations

from anydim.base.errors import MissingError

# modules of the compiler, which anydim-runtime lacks
_COMPILER = {f"anydim.{room}" for room in ("targets", "entry", "model")}


def missing_module(name: str, error: ModuleNotFoundError) -> Exception:
    """The error of `anydim.NAME` for a module that cannot be found: a MissingError, or `error`."""
    if error.name in _COMPILER:
        return MissingError(
            f"anydim.{name} needs the compiler, which is not in anydim-runtime",
            "pip uninstall anydim-runtime, then pip install anydim",
        )
    if error.name is None or error.name.startswith("anydim"):
        return error
    problem = f"anydim.{name} needs {error.name}, which is not installed"
    return MissingError(problem, f"pip install {error.name}")
