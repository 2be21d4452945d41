"""Runs machine code for AMX tiles on x86-64 processors without them.

`tile_emulator.c` executes their instructions in a handler of SIGILL. The fixture `tiles` makes this
machine one with AMX for a test, and requires that every thread has released its tiles. A machine
with tiles runs the same tests itself.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from anydim.compiler.targets.llvm import host
from anydim.runtime import cpu
from anydim.runtime.systems import this_platform
from tests.kernel_targets import has_compiler

_SOURCE = Path(__file__).with_suffix(".c")
_FLAGS = ("-O3", "-mavx2", "-mfma", "-ffp-contract=off", "-shared", "-fPIC", "-w")
_FEATURES = ("amx-bf16", "amx-int8", "amx-tile")
TILE_FLAGS = frozenset(feature.replace("-", "_") for feature in _FEATURES)
KINDS = (
    "configure", "store configuration", "release", "zero", "load", "store", "bfloat16", "int8",
)  # fmt: skip


@dataclass(frozen=True)
class Emulator:
    """The installed handler; `library` is None where the processor has tiles."""

    library: ctypes.CDLL | None

    @property
    def in_use(self) -> int:
        """Threads with configured tiles."""
        return self.library.tiles_in_use() if self.library else 0

    def counted(self) -> dict[str, int]:
        """Instructions since the last call, by kind; empty where the processor executes them."""
        if self.library is None:
            return {}
        return {kind: self.library.tiles_counted(at) for at, kind in enumerate(KINDS)}


def reason() -> str:
    """Why this machine cannot emulate tiles; '' if it can."""
    if this_platform() != "x86_64":
        return "tiles are emulated on Linux with x86-64 alone"
    if host.this_machine().machine.vector_bytes < 64 or not host.this_machine().machine.pairs:
        return "code with tiles has vectors of 64 bytes, and products of bfloat16 in them"
    return "" if has_compiler("cc") else "no C compiler builds the emulator"


def build(built: Path, *more: str) -> Path:
    """Compile the emulator; with -DPRELOAD, for LD_PRELOAD of another process."""
    subprocess.run(["cc", *_FLAGS, *more, "-o", built, _SOURCE, "-lm", "-ldl"], check=True)
    return built


@cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        library = ctypes.CDLL(str(build(Path(folder, "tiles.so"))))
    library.tiles_in_use.restype = library.tiles_counted.restype = ctypes.c_long
    return library


def _made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    if host.this_machine().machine.pair_tiles:
        yield Emulator(None)
        return
    library = _library()
    triple, name, features = host._describe_host()
    kept = [each for each in features.split(",") if each[1:] not in _FEATURES]
    described = (triple, name, ",".join([*kept, *(f"+{each}" for each in _FEATURES)]))
    level = cpu.this_level()
    flags = level.flags | TILE_FLAGS
    emulator = Emulator(library)
    with monkeypatch.context() as patch:
        patch.setattr(host, "_describe_host", lambda: described)
        # the module of the original last: the others must not import its replacement
        for module in ("deploy.load", "deploy.save", "api.program_cache", "runtime.cpu"):
            patch.setattr(f"anydim.{module}.this_level", lambda: replace(level, flags=flags))
        assert library.tiles_install() == 0
        emulator.counted()
        yield emulator
        assert library.tiles_uninstall() == 0
        assert emulator.in_use == 0, "a thread kept its tiles"


@pytest.fixture
def tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """This machine, with tiles for products of bytes and of bfloat16."""
    if reason():
        pytest.skip(reason())
    yield from _made(monkeypatch)


@pytest.fixture
def tiles_if_possible(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator | None]:
    """The same, for tests that the evaluator takes elsewhere."""
    if reason():
        yield None
    else:
        yield from _made(monkeypatch)
