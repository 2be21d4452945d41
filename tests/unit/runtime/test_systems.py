"""Promise: each row of the table of systems has a loader that maps code as its system wants it.

Loaders of other systems run here beside a recorded stand-in of their functions.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from anydim.base.errors import ArtefactError
from anydim.runtime import image
from anydim.runtime import linux_system as linux
from anydim.runtime import macos_system as macos
from anydim.runtime import systems as table
from anydim.runtime import windows_system as windows
from anydim.runtime.cpu import Level, this_level
from anydim.runtime.cpuid import _BITS, UNIX_STUBS, x86_flags
from anydim.runtime.systems import LINUX, SYSTEMS, system_of, this_architecture

CODE = bytes(range(200))
ROOT = Path(__file__).parents[3]
here_x86 = pytest.mark.skipif(this_architecture() != "x86_64", reason="code of x86-64")


@pytest.mark.parametrize("row", SYSTEMS, ids=lambda row: row.name)
def test_a_row_is_whole(row: table.System) -> None:
    assert callable(row.load().map_code) and callable(row.load().flags)
    assert len(row.tested) == len(row.architectures)
    for architecture in row.architectures:
        assert system_of(f"{architecture}-{row.triple}") is row
        head = image.head(row.platform(architecture), image.head_bytes(0), (), bytes(32))
        assert image.read_head(head).platform == row.platform(architecture)


def test_rows_differ() -> None:
    for fact in ("name", "number", "python", "triple", "loader"):
        assert len({getattr(row, fact) for row in SYSTEMS}) == len(SYSTEMS)


@pytest.mark.parametrize("row", SYSTEMS, ids=lambda row: row.name)
def test_the_document_has_what_the_table_says(row: table.System) -> None:
    text = (ROOT / "docs/install.md").read_text("utf-8")
    for architecture, tested in zip(row.architectures, row.tested):
        name = architecture.replace("_", "-")
        assert re.search(rf"^\| {row.name}, {name}[^|]*\|[^|]*\| {tested}\b", text, re.M | re.I)


def test_a_system_without_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "this_system", lambda: None)
    with pytest.raises(ArtefactError, match="'linux', 'windows', 'macos'") as error:
        image.map_bytes(image.head("x86_64", image.head_bytes(0), (), bytes(32)))
    assert "compile the model" in str(error.value)


@here_x86
def test_features_by_instructions_are_those_that_linux_lists() -> None:
    known = {name for bits in _BITS.values() for name in bits.values()}
    assert x86_flags(linux.map_code, UNIX_STUBS) == linux.flags() & known


@here_x86
def test_every_feature_of_a_level_can_be_found() -> None:
    from anydim.compiler.targets.processor import describe_processor, every_name

    known = {name for bits in _BITS.values() for name in bits.values()}
    for name in every_name():
        processor = describe_processor(name)
        if processor.architecture == "x86_64" and processor.system is not LINUX:
            assert processor.flags <= known


def test_systems_do_not_share_levels() -> None:
    here = this_level()
    other = Level(here.name, f"{here.architecture}-windows", here.flags)
    assert other.missing(here) is None and here.missing(other) is None


class Recorded:
    """Functions of a system: `calls` has the names of those called, in order."""

    def __init__(self, **functions: Callable[..., object]) -> None:
        self.calls: list[str] = []
        self.room = ctypes.create_string_buffer(len(CODE))
        for name, function in functions.items():
            setattr(self, name, self._noting(name, function))

    def _noting(self, name: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*values: object) -> object:
            self.calls.append(name)
            return function(*values)

        return call


def kernel32(protects: int = 1, allocates: bool = True) -> Recorded:
    made = Recorded(
        VirtualAlloc=lambda *_: ctypes.addressof(made.room) if allocates else None,
        VirtualProtect=lambda *_: protects, VirtualFree=lambda *_: 1,
        FlushInstructionCache=lambda *_: 1, GetCurrentProcess=lambda: -1,
    )  # fmt: skip
    return made


def test_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel32()
    monkeypatch.setattr(windows, "_kernel", lambda: kernel)
    made = windows.map_code(CODE)
    assert bytes(made[0]) == CODE and made[1] == ctypes.addressof(kernel.room)
    wanted = ["VirtualAlloc", "VirtualProtect", "GetCurrentProcess", "FlushInstructionCache"]
    assert kernel.calls == wanted
    del made
    assert kernel.calls == [*wanted, "VirtualFree"]


@pytest.mark.parametrize("kernel", [kernel32(protects=0), kernel32(allocates=False)])
def test_windows_refuses(kernel: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "_kernel", lambda: kernel)
    monkeypatch.setattr(windows, "_error", lambda: OSError(5, "access is denied"))
    with pytest.raises(OSError, match="access is denied"):
        windows.map_code(CODE)
    assert kernel.calls.count("VirtualFree") == kernel.calls.count("VirtualProtect")


def darwin(rights: bool, protects: bool = True) -> Recorded:
    """Of a process with the right to memory of MAP_JIT, or without."""

    def mapped(_: object, length: int, protection: int, flags: int, *rest: int) -> int | None:
        asks = bool(flags & 0x800)
        assert asks == bool(protection & 4), "memory is writable and executable with MAP_JIT alone"
        return ctypes.addressof(made.room) if rights or not asks else macos._FAILED

    made = Recorded(
        mmap=mapped, munmap=lambda *_: 0, sys_icache_invalidate=lambda *_: None,
        mprotect=lambda *_: 0 if protects else -1, pthread_jit_write_protect_np=lambda _: None,
    )  # fmt: skip
    return made


@pytest.mark.parametrize("rights", [True, False])
def test_macos(rights: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    system = darwin(rights, protects=not rights)  # memory of MAP_JIT needs no mprotect
    monkeypatch.setattr(macos, "_system", lambda: system)
    made = macos.map_code(CODE)
    assert bytes(made[0]) == CODE and made[1] == ctypes.addressof(system.room)
    protect = ["pthread_jit_write_protect_np"] * 2 if rights else ["mmap"]
    assert system.calls == ["mmap", *protect, "mprotect", "sys_icache_invalidate"]
    del made
    assert system.calls[-1] == "munmap"


def test_macos_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    system = darwin(False, protects=False)
    monkeypatch.setattr(macos, "_system", lambda: system)
    monkeypatch.setattr(image, "loader", lambda: macos)
    with pytest.raises(ArtefactError, match="forbids executable memory"):
        image.map_bytes(image.head("x86_64", len(CODE), (), bytes(32)).ljust(len(CODE)))
    assert system.calls[-1] == "munmap"


def test_features_of_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(name: bytes, value: object, *rest: object) -> int:
        ctypes.cast(value, ctypes.POINTER(ctypes.c_int))[0] = 1  # type: ignore[arg-type]
        return 0 if name == b"hw.optional.arm.FEAT_DotProd" else -1

    monkeypatch.setattr(macos, "_system", lambda: SimpleNamespace(sysctlbyname=asked))
    monkeypatch.setattr(macos.os, "uname", lambda: SimpleNamespace(machine="arm64"))
    assert macos.flags() == {"fp", "asimd", "asimddp"}
