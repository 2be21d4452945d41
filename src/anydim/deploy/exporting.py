"""Exports a compiled model as C or, for WebAssembly, as a module of JavaScript."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from anydim.runtime.threads import known_threads

if TYPE_CHECKING:
    from anydim.compiler.native.build import Assembled
    from anydim.compiler.targets.target import Target
    from anydim.deploy.export.language import Language


_WEB_THREADS = 4  # those with which pages run by default, on at least 8 logical cores


def most_threads(threads: int | str | None, code: Target) -> int:
    """Return the most threads of an exported program; None: one, 4 for WebAssembly."""
    if threads is None:
        return _WEB_THREADS if code.processor.is_wasm else 1
    return known_threads(threads)


def export_program(
    folder: str | os.PathLike[str], name: str, made: Assembled, code: Target,
    language: Language | None = None,
) -> None:  # fmt: skip
    """Write the folder of a program; `language`: it is the decoder of a language model."""
    if code.processor.is_wasm:
        from anydim.deploy.web.web_export import export_web

        export_web(folder, name, made, code, language)
    else:
        from anydim.deploy.export.export import export

        export(folder, name, made, code, language)
