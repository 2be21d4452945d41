"""A loaded model with strings: steps in numpy around a loaded model."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from anydim.base.missing_package import missing_module
from anydim.deploy.container import Container
from anydim.deploy.records import parse_record
from anydim.deploy.string_records import (
    STRINGS,
    SavedSteps,
    SavedStrings,
    check_ports,
    onnx_member,
    steps_of,
)
from anydim.program.program_reports import ProgramReports
from anydim.program.string_calls import Part, StringCalls


class LoadedStringModel(StringCalls):
    """A model with strings from a file; `core` is its native part.

    `parts` are the records of its inputs, outputs and steps.
    """

    core: Any  # the `LoadedModel` of the file

    def __init__(self, core: Any) -> None:
        container = core.container
        self.core, self._made = core, None
        self.parts = parse_record(SavedStrings, bytes(container.verified(STRINGS)))
        check_ports(self.parts)
        name = self.parts.name
        early, late = (
            _part(container, name, part, each)
            for part, each in (("early", self.parts.early), ("late", self.parts.late))
        )
        readers = {port.name: port.reader for port in self.parts.inputs}
        self.surround(name, early, late, readers, [port.name for port in self.parts.outputs])

    def __getattr__(self, name: str) -> Any:
        if name in ("executable", "level", "levels", "about", "container", "strategy"):
            return getattr(self.core, name)
        raise AttributeError(name)

    @property
    def ports(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return self.parts.inputs, self.parts.outputs

    @property
    def story(self) -> ProgramReports:
        found: ProgramReports = self.core.story
        return found


def _part(container: Container, name: str, part: str, saved: SavedSteps | None) -> Part:
    """The callable of a part; MissingError if its operators need the package onnx."""
    if saved is not None:
        return steps_of(name, saved)
    data = bytes(container.verified(onnx_member(part)))
    try:
        evaluated = import_module("anydim.frontends.onnx.file.evaluated").evaluated
    except ModuleNotFoundError as error:
        raise missing_module(f"{name}, whose operators on strings numpy lacks,", error) from error
    made: Part = evaluated(data, name, container.fail)
    return made
