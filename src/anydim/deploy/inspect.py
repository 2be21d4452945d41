"""Describes files: saved models without mapping code, ONNX files without compiling them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from anydim.base.errors import OptionError
from anydim.base.keywords import public
from anydim.base.records import dataclass
from anydim.base.sheet import Sheet, Shown, Table, facts
from anydim.base.text import count_of, quote_list
from anydim.base.user_values import flag_of, path_of
from anydim.deploy.container import FORMAT, Container, is_saved
from anydim.deploy.load import levels_of
from anydim.deploy.records import parse_record
from anydim.deploy.saved import Saved, SavedDevice, constant_member, member
from anydim.deploy.saved_adapters import TENSORS, adapter_of
from anydim.deploy.string_records import STRINGS, SavedStrings
from anydim.runtime.cpu import Level, this_level
from anydim.runtime.signature import TensorSpec
from anydim.sizes import Box

if TYPE_CHECKING:
    from anydim.compiler.frontends.onnx.outline import Outline
    from anydim.compiler.frontends.torch.outline import ProgramOutline
    from anydim.runtime.program.memory import Memory


@dataclass(frozen=True)
class LevelContents:
    """The content of a file for one kind of processor; sizes in bytes.

    `missing` are the features that this machine lacks to run it; None if the architecture differs.
    `weight_bytes` counts all constants that it reads; levels may share some. The first load moves
    `repacked_bytes` of them to the layout of the level. `bodies` describes the specialised
    variants, one text each.
    """

    level: Level
    missing: frozenset[str] | None
    code_bytes: int
    record_bytes: int
    weight_bytes: int
    memory: Memory
    bodies: tuple[str, ...] = ()
    repacked_bytes: int = 0

    @property
    def runs_here(self) -> bool:
        """Whether this machine can run it."""
        return self.missing == frozenset()


@dataclass(frozen=True)
class Contents(Shown):
    """The content of a saved model's file; sizes in bytes.

    `levels` are the kinds of processors that it has code for, the best first. Each of the
    `constants` is stored once. `devices` are the names that `load` needs bindings for, `engines`
    the engines for parts of it. `strings` are the inputs and outputs of a model with
    strings, whose native part the others describe.
    """

    path: str
    format: int
    bytes: int
    name: str
    dims: Box
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    threads: int
    constants: int
    weight_bytes: int
    levels: tuple[LevelContents, ...]
    devices: tuple[SavedDevice, ...] = ()
    engines: tuple[str, ...] = ()
    strings: SavedStrings | None = None

    @property
    def taken(self) -> LevelContents | None:
        """The level that `anydim.load` selects on this machine; None if none fits."""
        return next((each for each in self.levels if each.runs_here), None)

    def _sheet(self) -> Sheet:
        """The inputs, outputs and facts, and the code of each level."""
        shown = self.taken or self.levels[0]
        weights = f"{self.weight_bytes} bytes in {count_of(self.constants, 'constant')}"
        takes: Iterable[object] = self.inputs
        gives: Iterable[object] = (replace(each, name=each.key) for each in self.outputs)
        if self.strings is not None:
            takes, gives = self.strings.inputs, self.strings.outputs
        bodies = [f"{each.level.name} has {body}" for each in self.levels for body in each.bodies]
        return Sheet(
            f"{self.path}: {self.name}, format {self.format}, {self.bytes} bytes",
            (
                ("dims", str(self.dims) or "none"),
                *facts("inputs", map(str, takes)),
                *facts("outputs", map(str, gives)),
                *facts("memory", [*shown.memory.lines(), f"of {shown.level.name}"]),
                ("threads", str(self.threads)),
                ("weights", weights),
                *(("devices", f"{each.name} ({each.target} code)") for each in self.devices),
                *(("engines", each) for each in self.engines),
                *(("", body) for body in bodies),
            ),
            (Table(_HEADERS, self._rows(), left=2),),
        )

    __str__ = Shown.__str__
    __repr__ = Shown.__repr__

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                each.level.name, each.level.architecture, str(each.code_bytes),
                str(each.weight_bytes), str(each.repacked_bytes), str(each.record_bytes),
                self._verdict(each),
            )
            for each in self.levels
        ]  # fmt: skip

    def _verdict(self, each: LevelContents) -> str:
        if each is self.taken:
            return "selected"
        if each.missing is None:
            return "cannot run it"
        return f"lacks {quote_list(sorted(each.missing))}" if each.missing else "can run it"


PROGRAM = ".pt2"  # a file of torch.export.save
_HEADERS = ("level", "architecture", "code", "weights", "repacked", "records", "this machine")


@public
def inspect(
    path: str | os.PathLike[str], *, verify: bool = False
) -> Contents | Outline | ProgramOutline:
    """Read the dims, inputs and outputs of a file, without compiling or executing it.

    Args:
        path: A file of `Model.save`, an ONNX file, or a file of `torch.export.save` (.pt2).
        verify: Compare the digests of everything in a saved file, which reads the whole file.

    Returns:
        `Contents` of a saved file, `Outline` of an ONNX file, `ProgramOutline` of a torch file.

    Raises:
        ArtefactError: The saved file is damaged or has another format.
        ModelError: The file is not an ONNX file.
    """
    name = path_of("path", path)
    if is_saved(name) or name.endswith(".anydim"):
        return _contents(name, verify)
    if flag_of("verify", verify):
        raise OptionError(f"verify is for saved models, and {name} is none")
    if name.endswith(PROGRAM):
        outlined: ProgramOutline = import_module("anydim.compiler.frontends.torch.outline").outline(
            name
        )
        return outlined
    try:
        outline = import_module("anydim.compiler.frontends.onnx.outline").outline
    except ModuleNotFoundError:  # a process without the compiler reads saved models only
        return _contents(name, verify)
    found: Outline = outline(name)
    return found


def _contents(path: str, verify: bool) -> Contents:
    container = Container(path)
    levels = levels_of(container)
    if not levels:
        raise container.fail("it has code for no processor")
    if flag_of("verify", verify):
        for name in container.parts:
            container.verify_member(name)
    saved = [parse_record(Saved, _text(container, level, "start.json")) for level in levels]
    digests = {a.digest for each in saved for a in each.arrays if a.repacking is None}
    first = saved[0].signature
    if TENSORS in container.parts:
        first = adapter_of(container, first, saved[0].lists).signature
    return Contents(
        container.path, FORMAT, container.length, first.name, first.box, first.inputs,
        first.outputs, saved[0].threads, len(digests), _bytes(container, digests),
        tuple(_level(container, *each) for each in zip(levels, saved)), saved[0].devices,
        tuple(dict.fromkeys(part.engine for part in saved[0].interface.handed)),
        _strings(container),
    )  # fmt: skip


def _strings(container: Container) -> SavedStrings | None:
    if STRINGS not in container.parts:
        return None
    return parse_record(SavedStrings, bytes(container.verify_member(STRINGS)))


def _level(container: Container, level: Level, saved: Saved) -> LevelContents:
    story = _text(container, level, "story.json")
    read = parse_record(
        import_module("anydim.runtime.program.program_reports").ProgramReports, story
    )
    sizes = {array.digest: array.bytes for array in saved.arrays}
    moved = {array.digest: array.bytes for array in saved.arrays if array.repacking is not None}
    records = container.part(member(level.name, "start.json")).length + len(story)
    return LevelContents(
        level, level.missing(this_level()), container.part(member(level.name, "code")).length,
        records, sum(sizes.values()), read.memory,
        tuple(text for site in saved.places for text in site.lines()), sum(moved.values()),
    )  # fmt: skip


def _text(container: Container, level: Level, what: str) -> bytes:
    return bytes(container.verify_member(member(level.name, what)))


def _bytes(container: Container, digests: Sequence[str] | set[str]) -> int:
    return sum(container.part(constant_member(digest)).length for digest in digests)
