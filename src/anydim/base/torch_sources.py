"""Recognises programs of torch without importing it."""

from __future__ import annotations

import os
from typing import Any

SUFFIX = ".pt2"  # of files of torch.export.save


def is_torch(source: Any) -> bool:
    """Whether a source is an exported program, a module, a graph module, or a .pt2 file."""
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source).endswith(SUFFIX)
    return any(
        kind.__module__.partition(".")[0] == "torch"
        and kind.__name__ in ("ExportedProgram", "Module")
        for kind in type(source).__mro__
    )


def is_module(source: Any) -> bool:
    """Whether a torch source is a module, which needs example arguments."""
    return not isinstance(source, (str, os.PathLike)) and type(source).__name__ != "ExportedProgram"
