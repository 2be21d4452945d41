"""Links objects for WebAssembly to one module, by LLVM's linker `wasm-ld`.

A module of threads imports its memory as `env.memory`, the only name that LLD before version 16 has
for it; their instances share it.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from anydim.base.errors import InternalError, MissingError

_LINKER = "wasm-ld"
STACK = 1 << 20  # bytes; below the data, so that an overflow traps
_PAGE = 1 << 16
_FLAGS = (
    "--no-entry", "--strip-all", "--gc-sections", "-O2", "--stack-first", f"-zstack-size={STACK}",
    "--export=__heap_base", "--export-table", "--growable-table", "--fatal-warnings",
)  # fmt: skip
_SHARED = (
    "--shared-memory", "--import-memory", f"--max-memory={1 << 32}",
    "--export=__stack_pointer",
)  # fmt: skip
MARK_DIGITS = 8  # of a module's mark, its last bytes
_SECTION = b"anydim"


def linker() -> tuple[str, ...]:
    """Return the command line of the linker; raises MissingError if there is none."""
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", _LINKER)
    for name in (_LINKER, "zig"):
        path = shutil.which(name)
        if path is not None:
            return (path,) if name == _LINKER else (path, _LINKER)
    raise MissingError(
        "there is no linker for WebAssembly", "pip install 'anydim[zig]', or install LLVM's lld"
    )


def first_pages(objects: Mapping[str, bytes]) -> int:
    """Return the pages of memory that suffice for the stack and the data of objects."""
    return -(-(STACK + sum(map(len, objects.values()))) // _PAGE)


def link(objects: Mapping[str, bytes], exports: Sequence[str], pages: int = 0) -> bytes:
    """Return the module of objects by name; `exports` are the symbols that JavaScript sees.

    `pages`: it imports a shared memory of that many.
    A section of our own ends it: its mark, the CRC-32 of what is before, by which a compiled module
    is known.
    """
    command = linker()
    with tempfile.TemporaryDirectory(prefix="anydim-") as folder:
        files = [Path(folder, f"{number}.o") for number in range(len(objects))]
        for file, data in zip(files, objects.values()):
            file.write_bytes(data)
        made, listed = Path(folder, "made.wasm"), Path(folder, "arguments")
        words = [
            *_FLAGS,
            *((*_SHARED, f"--initial-memory={pages * _PAGE}") if pages else ()),
            *(f"--export={name}" for name in exports),
            *(each.as_posix() for each in files),
        ]
        words += ["-o", made.as_posix()]
        listed.write_text("\n".join(f'"{word}"' for word in words), "utf-8")
        done = subprocess.run([*command, f"@{listed}"], capture_output=True, check=False)
        if done.returncode or not made.exists():
            raise InternalError(
                f"the linker rejects generated code: {done.stderr.decode(errors='replace')}"
            )
        return _with_mark(made.read_bytes())


def _with_mark(module: bytes) -> bytes:
    content = bytes([len(_SECTION)]) + _SECTION + f"{zlib.crc32(module):0{MARK_DIGITS}x}".encode()
    return module + bytes([0, len(content)]) + content
