"""Errors for missing packages."""

from __future__ import annotations

import os

from anydim.base.errors import MissingError

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_COMPILER = os.path.join(_PACKAGE, "compiler", "pipeline.py")  # which anydim-runtime lacks


def install(extra: str) -> str:
    """How to install an extra of the distribution that is installed."""
    name = "anydim" if os.path.exists(_COMPILER) else "anydim-runtime"
    return f"pip install '{name}[{extra}]'"


def missing_module(what: str, error: ModuleNotFoundError) -> Exception:
    """The error for something that needs a module that cannot be found.

    A MissingError that names the package to install, or `error` itself if a module of anydim is
    missing that every distribution has.
    """
    if error.name is None or error.name.startswith("anydim"):
        if os.path.exists(_COMPILER):
            return error
        return MissingError(
            f"{what} needs the compiler, which is not in anydim-runtime",
            "pip uninstall anydim-runtime, then pip install anydim",
        )
    return MissingError(
        f"{what} needs {error.name}, which is not installed", f"pip install {error.name}"
    )
