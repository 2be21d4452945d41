"""NVRTC, NVIDIA's compiler library: text to cubin, without a device.

The functions are those of `nvrtc.h` (NVRTC User Guide, version 12). The library comes with the
wheel `nvidia-cuda-nvrtc-cu12`, or with a toolkit.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from anydim.base.errors import InternalError, OptionError
from anydim.base.records import dataclass
from anydim.runtime.devices.wheels import library_paths

_FUNCTIONS = {
    "nvrtcVersion": 2, "nvrtcCreateProgram": 6, "nvrtcCompileProgram": 3,
    "nvrtcGetProgramLogSize": 2, "nvrtcGetProgramLog": 2, "nvrtcGetCUBINSize": 2,
    "nvrtcGetCUBIN": 2, "nvrtcDestroyProgram": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Resources:
    """Registers per thread, bytes of register spills, and bytes of shared memory per block."""

    registers: int
    spilled: int
    shared: int


_RESOURCES = {
    "registers": r"Used (\d+) registers", "spilled": r"(\d+) bytes spill stores",
    "shared": r"(\d+) bytes smem",
}  # fmt: skip


@dataclass(frozen=True)
class Nvrtc:
    """The library and its version, such as '12.9'."""

    library: Any
    version: str

    def compile(self, text: str, architecture: str) -> bytes:
        """Return the cubin of a text; raises InternalError with the compiler's log."""
        return self._compile(text, architecture)[0]

    def resources(self, text: str, architecture: str) -> Resources:
        """Return the resources of a text's kernel, as reported by the assembler."""
        _, log = self._compile(text, architecture, "--ptxas-options=-v")
        found = {
            name: sum(int(number) for number in re.findall(pattern, log))
            for name, pattern in _RESOURCES.items()
        }
        return Resources(**found)

    def _compile(self, text: str, architecture: str, *more: str) -> tuple[bytes, str]:
        """Return the cubin and the compiler's log."""
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), text.encode(), b"kernel.cu", 0,
                   None, None)  # fmt: skip
        try:
            options = [option.encode() for option in (*OPTIONS, f"-arch={architecture}", *more)]
            given = (ctypes.c_char_p * len(options))(*options)
            code = self.library.nvrtcCompileProgram(program, len(options), given)
            log = self._bytes("nvrtcGetProgramLog", program).rstrip(b"\0").decode()
            if code:
                raise InternalError(f"NVRTC rejects generated code:\n{log}\n{text}")
            return self._bytes("nvrtcGetCUBIN", program), log
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"{what}Size", program, ctypes.byref(size))
        held = ctypes.create_string_buffer(size.value)
        self._call(what, program, held)
        return held.raw

    def _call(self, name: str, *given: Any) -> None:
        code = getattr(self.library, name)(*given)
        if code:
            raise InternalError(f"{name} failed: {code}")


# No contraction to fma except where loop IR has it; division and square root round correctly.
OPTIONS = ("--std=c++17", "--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false",
           "-default-device")  # fmt: skip


@lru_cache(maxsize=1)
def nvrtc() -> Nvrtc:
    """Return the installed library. Raises OptionError if there is none."""
    problems = []
    for path in _paths():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            problems.append(str(error))
            continue
        for name, count in _FUNCTIONS.items():
            getattr(library, name).argtypes = (ctypes.c_void_p,) * count
        library.nvrtcCompileProgram.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
        library.nvrtcCreateProgram.argtypes = (
            ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p,
            ctypes.c_void_p,
        )  # fmt: skip
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return Nvrtc(library, f"{major.value}.{minor.value}")
    raise OptionError(
        f"NVRTC, the compiler for CUDA, is missing: {problems[0] if problems else 'no library'}",
        "pip install 'anydim[cuda]'",
    )


def _paths() -> Iterator[str]:
    """Yield possible paths of the library."""
    packages = ("nvidia.cuda_nvrtc", "nvidia.cu13")
    yield from library_paths(packages, "nvrtc", "nvrtc64_{}0_0.dll", ("12", "13"))
