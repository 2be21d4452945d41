"""Models with strings: string operators run in Python, before and after the native part."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from anydim.base.errors import OptionError
from anydim.frontends.onnx.file.strings import StringParts, reader_of
from anydim.model import CompileProgress, Model
from anydim.program.program_reports import ProgramReports
from anydim.program.string_calls import StringCalls


class StringModel(StringCalls, Model):
    """A model with strings: `core` is its native part; None if all operators work on strings.

    Queries of sizes, memory and kernels refer to `core`.
    """

    core: Model | None

    def __init__(self, parts: StringParts, core: Model | None) -> None:
        self.parts = parts
        self._made = None
        self.core = core
        readers = {value.name: reader_of(value.type) for value in parts.inputs}
        outputs = [value.name for value in parts.outputs]
        self.surround(parts.name, parts.early, parts.late, readers, outputs)

    def __getattr__(self, name: str) -> Any:
        if name in ("executable", "_report", "_compile", "_indices", "_origin"):
            return getattr(self._native, name)
        raise AttributeError(name)

    @property
    def _native(self) -> Model:
        if self.core is None:
            raise OptionError(f"{self.name} has no native part: all of it is on strings")
        return self.core

    @property
    def ports(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        found: Any = import_module("anydim.deploy.string_members").ports_of(self.parts)
        return found[0], found[1]

    @property
    def story(self) -> ProgramReports:
        return self._native.story

    def save(
        self,
        path: str | os.PathLike[str],
        targets: str | Sequence[str] = "native",
        progress: CompileProgress | None = None,
    ) -> None:
        """Write a file that `anydim.load` runs, as `Model.save` does.

        Operators on strings that numpy can run are saved as records. Others are saved as they are
        in the ONNX file; loading them needs the distribution anydim with the package onnx.

        Raises:
            OptionError: The model has no native part, or as `Model.save`.
        """
        members = import_module("anydim.deploy.string_members").string_members(self.parts)
        self._native._save(path, targets, progress, members)

    def export(
        self, folder: str | os.PathLike[str], name: str = "", target: str = "native",
        code: str = "c", *, threads: int | str = 1,
    ) -> None:  # fmt: skip
        """Raise OptionError: there are no string operators in C."""
        raise OptionError(f"{self.name} works on strings, and such models cannot be exported")
