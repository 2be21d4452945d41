"""Models with strings: string operators run in Python, before and after the native part."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from anydim.base.errors import InputError, OptionError
from anydim.base.text import listed
from anydim.frontends.onnx.file.strings import StringParts, reader_of
from anydim.model import CompileProgress, Model
from anydim.program.callable_program import CallableProgram
from anydim.program.program_reports import ProgramReports
from anydim.runtime.arrays import by_name


class StringModel(Model):
    """A model with strings: `core` is its native part; None if all operators work on strings.

    Queries of sizes, memory and kernels refer to `core`.
    """

    on_strings = True

    def __init__(self, parts: StringParts, core: Model | None) -> None:
        self.parts = parts
        self._made = None
        self.core = core
        self._readers = {value.name: reader_of(value.type) for value in parts.inputs}

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
    def story(self) -> ProgramReports:
        return self._native.story

    def save(
        self,
        path: str | os.PathLike[str],
        targets: str | Sequence[str] = "native",
        progress: CompileProgress | None = None,
    ) -> None:
        """Raise OptionError: string operators cannot be saved yet."""
        raise OptionError(f"{self.name} works on strings, and such models cannot be saved")

    def export(
        self, folder: str | os.PathLike[str], name: str = "", target: str = "native",
        code: str = "c",
    ) -> None:  # fmt: skip
        """Raise OptionError: there are no string operators in C."""
        raise OptionError(f"{self.name} works on strings, and such models cannot be exported")

    @property
    def name(self) -> str:
        return self.parts.name

    def __call__(self, *values: Any, **named: Any) -> dict[str, Any]:
        """Run the model: strings on the host, the rest in native code. Raises InputError."""
        names = list(self._readers)
        if values:
            named = by_name(self.name, names, values, named)
        other = self.serving(named)
        if other is not self:
            return other(**named)
        unknown = [name for name in named if name not in self._readers]
        missing = [name for name in names if name not in named]
        if unknown or missing:
            problem = f"has no input '{unknown[0]}'" if unknown else f"needs input '{missing[0]}'"
            raise InputError(f"{self.name} {problem}", f"its inputs are {listed(names)}")
        known = {name: self._readers[name](name, value) for name, value in named.items()}
        known |= self.parts.early(known)
        if self.core is not None:
            known |= self.core(**{spec.name: known[spec.name] for spec in self.core.inputs})
        known |= self.parts.late(known)
        return {value.name: known[value.name] for value in self.parts.outputs}

    def _limit_as(self, other: CallableProgram) -> None:
        if isinstance(other, StringModel) and self.core is not None and other.core is not None:
            self.core._limit_as(other.core)

    def map(self, *_: Any, **__: Any) -> Any:
        """Raise OptionError: the memory of strings is unknown."""
        raise OptionError(f"{self.name} works on strings", "call it for each item")

    def trim(self) -> int:
        return self.core.trim() if self.core is not None else 0

    def __repr__(self) -> str:
        return f"<anydim model {self.name} with strings>"

    def _repr_html_(self) -> None:
        """Return None: the plain text is shown."""

    def __reduce__(self) -> tuple[Any, ...]:
        assert self._made is not None
        return self._made, ()
