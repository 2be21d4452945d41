"""The table of systems. A new system is a row here, and a loader.

A loader is a module with two functions. `map_code(code)` copies bytes into executable memory and
returns a view of them, their address, and an object that owns them; it raises OSError if the system
forbids that. `flags()` returns the features of this processor, in the names of /proc/cpuinfo.
"""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from importlib import import_module
from typing import Any

from anydim.base.errors import ArtefactError
from anydim.base.records import dataclass
from anydim.base.text import quote_list

_SAME = {"AMD64": "x86_64", "amd64": "x86_64", "arm64": "aarch64", "ARM64": "aarch64"}


@dataclass(frozen=True)
class System:
    """An operating system.

    `name` begins the names of its processors as targets. `number` stands in heads of images.
    `python` is `sys.platform` there. `triple` is LLVM's, without the architecture: the calling
    convention and reserved registers, and the format of `objects`; images are linked of ELF objects
    with the same conventions. `loader` is a module, `c_library` the file of the C
    library, '' for the process itself. `protection` and `threads` say how code becomes executable
    and what threads wait by, `tested` what was seen of each architecture.
    """

    name: str
    number: int
    python: str
    triple: str
    objects: str
    architectures: tuple[str, ...]
    loader: str
    c_library: str
    protection: str
    threads: str
    tested: tuple[str, ...]

    @property
    def prefix(self) -> str:
        """The beginning of its names of processors; '' for Linux."""
        return "" if self is LINUX else f"{self.name}-"

    def platform(self, architecture: str) -> str:
        """The name of the system on an architecture: 'x86_64' on Linux, 'x86_64-windows'."""
        return architecture if self is LINUX else f"{architecture}-{self.name}"

    def load(self) -> Any:
        """Its loader."""
        return import_module(self.loader)


LINUX = System(
    "linux", 0, "linux", "unknown-linux-gnu", "ELF", ("x86_64", "aarch64", "riscv64"),
    "anydim.runtime.linux_system", "",
    "pages of the file, private and executable; or copied, then mprotect",
    "pthreads", ("run", "emulated", "emulated"),
)  # fmt: skip
SYSTEMS = (
    LINUX,
    System(
        "windows", 1, "win32", "pc-windows-gnu", "COFF", ("x86_64",),
        "anydim.runtime.windows_system", "msvcrt",
        "VirtualAlloc, then VirtualProtect", "none: calls run on one thread", ("emulated",),
    ),
    System(
        "macos", 2, "darwin", "apple-macosx11", "Mach-O", ("x86_64", "aarch64"),
        "anydim.runtime.macos_system", "",
        "mmap with MAP_JIT, pthread_jit_write_protect_np", "pthreads", ("built", "built"),
    ),
)  # fmt: skip


@cache
def this_system() -> System | None:
    """Return the row of this system; None if it has none."""
    return next((row for row in SYSTEMS if row.python == sys.platform), None)


def system_of(triple: str) -> System:
    """Return the system of one of LLVM's triples; Linux for an unknown one."""
    parts = triple.split("-")
    return next((row for row in SYSTEMS if set(row.triple.split("-")[:2]) <= {*parts}), LINUX)


def loader() -> Any:
    """Return the loader of this system; raises ArtefactError if it has none."""
    row = this_system()
    if row is None:
        names = quote_list([each.name for each in SYSTEMS])
        raise ArtefactError(
            f"saved code runs on {names}, not on '{sys.platform}'",
            "compile the model on this machine",
        )
    return row.load()


@cache
def this_architecture() -> str:
    """Return the architecture of this process, by LLVM's name."""
    name = os.uname().machine if hasattr(os, "uname") else platform.machine()
    return _SAME.get(name, name)


def this_platform() -> str:
    """Return the platform of this process, as `System.platform` names it."""
    row = this_system()
    return this_architecture() if row is None else row.platform(this_architecture())


def platform_text(platform: str) -> str:
    """Return a platform in words: 'x86_64' on linux."""
    architecture, _, system = platform.partition("-")
    return f"'{architecture}' on {system or LINUX.name}"
