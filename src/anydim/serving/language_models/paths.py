"""Which paths are those of language models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from anydim.base.errors import ArtefactError
from anydim.deploy.container import Container, is_saved

GGUF = ".gguf"
LANGUAGE = "language.json"  # the member of a saved model that says what its decoder is


def is_language_model(path: Any) -> bool:
    """Whether a path is that of a GGUF file, of a folder with config.json, or of a saved model."""
    try:
        found = Path(path)
        known = found.suffix == GGUF or (found / "config.json").is_file()
        return known or is_saved_language(found)
    except (TypeError, ValueError, OSError):
        return False


def is_saved_language(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a saved language model; its content may still be invalid."""
    try:
        return is_saved(path) and LANGUAGE in Container(os.fspath(path)).parts
    except ArtefactError:
        return False
