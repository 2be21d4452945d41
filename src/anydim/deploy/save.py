"""Saves a compiled model to a file. The only part of this package that needs the compiler."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.compiler.kernels.ir import Kernel
from anydim.compiler.native.build import Assembled, prepare
from anydim.compiler.targets.elf import read_object
from anydim.compiler.targets.image import link
from anydim.compiler.targets.processor import NATIVE, Processor
from anydim.compiler.targets.support import support_modules
from anydim.compiler.targets.target import Source, Target
from anydim.deploy.archive import Member, write, writing
from anydim.deploy.constants import Constants
from anydim.deploy.records import print_record
from anydim.deploy.saved import (
    Saved,
    SavedArray,
    SavedDevice,
    constant_member,
    device_member,
    member,
    stamp,
)
from anydim.runtime.cpu import Level, this_level
from anydim.runtime.image import page_bytes
from anydim.runtime.interface import Interface, OnDevice
from anydim.runtime.lists import Lists
from anydim.runtime.program.program_reports import ProgramReports
from anydim.runtime.program.variants import StoredSite
from anydim.sizes import Size

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Version:
    """A program as compiled for a target, with notes on how and the last indices of inputs.

    `mixing` is that of `ProgramReports`.

    `devices` are the targets of the devices that it uses, `kept` the specialised variants, with the
    objects of each.
    """

    target: Target
    made: Assembled
    notes: tuple[str, ...]
    last_indices: Mapping[str, Size]
    devices: Mapping[str, Target] = field(default_factory=dict)
    kept: Sequence[tuple[StoredSite, Sequence[Sequence[bytes]]]] = ()
    mixing: Mapping[str, str] = field(default_factory=dict)


def save(
    path: str | os.PathLike[str],
    versions: Sequence[Version],
    lists: Lists,
    progress: Progress,
    facts: Mapping[str, Any] | None = None,
    others: Sequence[Member] = (),
) -> None:
    """Write all versions of a model into one file; OptionError if it cannot be written.

    Constants are stored as the first version reads them.

    `facts` are further entries of its manifest, as JSON values; `others` are further members.

    `progress(stage, done, total)` counts compiling the versions as the first half.
    """
    ordered = sorted(versions, key=lambda each: _rank(level_of(each.target.processor)))
    constants = Constants(len(versions) > 1)
    arrays = {each.target.processor: constants.save_constants(each.made) for each in versions}
    members: list[Member] = list(others)
    for number, version in enumerate(ordered, len(ordered)):
        progress(version.target.processor.name, number, 2 * len(ordered))
        members += _members(version, lists, arrays[version.target.processor])
    members += [Member(constant_member(digest), data, digest=digest)
                for digest, data in constants.members.items()]  # fmt: skip
    about = {
        **(facts or {}),
        "name": versions[0].made.program.signature.name,
        "levels": [_about(level_of(version.target.processor)) for version in ordered],
    }
    with writing(path):
        write(os.fspath(path), about, members)


def level_of(processor: Processor) -> Level:
    """The features that a machine needs to run code for a processor."""
    flags = processor.flags
    if processor.name == NATIVE:  # what LLVM detects, as far as the system reports it
        flags &= this_level().flags
    return Level(processor.name, processor.platform, flags)


def _rank(level: Level) -> tuple[str, int, str]:
    """Sort key, best first: among levels of one architecture, the one with more features."""
    return level.architecture, -len(level.flags), level.name


def _about(level: Level) -> dict[str, object]:
    return {
        "name": level.name, "architecture": level.architecture, "flags": sorted(level.flags)
    }  # fmt: skip


def _members(version: Version, lists: Lists, arrays: tuple[SavedArray, ...]) -> Iterator[Member]:
    """Records and code of a version."""
    code, made = replace(version.target, processor=version.target.processor.of_images), version.made
    level = level_of(code.processor)
    prepared = prepare(made, code)
    sources = {
        **prepared.sources, **_inside(version, prepared.interface),
        **support_modules(code.processor.system),
    }  # fmt: skip
    objects = list(code.compile(sources).code.values())
    sites = tuple(_link_variants(version, objects))
    outside = _outside(version, prepared.interface)
    interface, program = prepared.interface, made.program
    workers = {segment.device: segment.threads for segment in program.segments}
    devices = tuple(
        SavedDevice(
            each.name, version.devices[each.name].name, tuple(outside.get(each.name, ())),
            workers.get(each.name, 1),
        )
        for each in interface.devices
    )  # fmt: skip
    rest = (program.threads, arrays, lists, devices, sites)
    record = Saved(level, program.signature, interface, *rest)
    saved = print_record(record)
    story = print_record(
        ProgramReports(program, version.notes, version.last_indices, version.mixing)
    )
    image = link(objects, record.symbols, stamp(saved, story), code.processor.system)
    yield Member(member(level.name, "start.json"), saved)
    yield Member(member(level.name, "story.json"), story)
    yield Member(member(level.name, "code"), image, page_bytes(level.architecture))
    for number, device in enumerate(devices):
        for module, data in enumerate(outside.get(device.name, {}).values()):
            yield Member(device_member(level.name, number, module), data)


def _link_variants(version: Version, objects: list[bytes]) -> Iterator[StoredSite]:
    """The sites with the variants whose objects link with `objects`; appends these objects.

    Objects that variants share with each other or with the program are stored once. A variant that
    depends on symbols of a process with a compiler is dropped.
    """
    held = set(objects)
    defined = {name for data in objects for name in _public(data)}
    for site, parts in version.kept:
        bodies = []
        for body, part in zip(site.bodies, parts):
            new = [data for data in dict.fromkeys(part) if data not in held]
            names = [name for data in new for name in _public(data)]
            if len({*names}) < len(names) or defined.intersection(names):
                continue
            try:
                link([*objects, *new], body.symbols)
            except InternalError:
                continue
            objects += new
            held.update(new)
            defined.update(names)
            bodies.append(body)
        if bodies:
            yield replace(site, bodies=tuple(bodies))


def _public(data: bytes) -> list[str]:
    """The symbols that an object exports."""
    symbols = read_object(data).symbols
    return [each.name for each in symbols if each.public and each.section is not None]


def _inside(version: Version, interface: Interface) -> Mapping[str, Source]:
    """The kernels of devices that run the host's kind of code; they are linked with the host's."""
    found: dict[str, Source] = {}
    for device in interface.devices:
        target = version.devices[device.name]
        if target.name == version.target.name:
            found |= target.sources(_kernels(version, device), target.processor)
    return found


def _outside(version: Version, interface: Interface) -> dict[str, Mapping[str, bytes]]:
    """The objects of the kernels of all other devices, by device and module."""
    found: dict[str, Mapping[str, bytes]] = {}
    for device in interface.devices:
        target = version.devices[device.name]
        if target.name != version.target.name:
            sources = target.sources(_kernels(version, device), target.processor)
            found[device.name] = target.compile(sources).code
    return found


def _kernels(version: Version, device: OnDevice) -> list[Kernel]:
    return [version.made.kernels[name] for name in device.symbols]
