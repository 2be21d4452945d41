"""Runs a saved straight program for another machine or system, emulated: by qemu-user or Wine.

The program, its inputs and room for its results are one piece of memory at a fixed address. A host
calls `bind` and `run` on a block of words that Python has filled, then writes the memory out, where
Python finds the results. Under qemu, the memory is a static executable, and the host its first
instructions, without a C library; the system's calls are those of Linux. Under Wine, the host is a
program in C (`windows_host.c`), which maps code as the runtime does.
"""

from __future__ import annotations

import atexit
import os
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from anydim.compiler.targets.image import link
from anydim.compiler.targets.llvm.compiler import compile_modules
from anydim.compiler.targets.processor import describe_processor
from anydim.compiler.targets.target import Source
from anydim.deploy.container import Container
from anydim.deploy.records import parse_record
from anydim.deploy.saved import Saved, constant_member, member
from anydim.runtime.image import read_head
from anydim.runtime.layout import ARENA

BASE, CODE_AT = 0x10000000, 0x10000
MINGW, WINE = shutil.which("x86_64-w64-mingw32-gcc"), shutil.which("wine")
HOST = Path(__file__).with_name("windows_host.c")


@dataclass(frozen=True)
class Kernel:
    """Linux on an architecture: its number in ELF, its calls `write` and `exit`, and code of
    `int64 system_call(int64 number, int64 a, int64 b, int64 c)`."""

    elf: int
    write: int
    exit: int
    call: str
    options: tuple[str, ...] = ()


KERNELS = {
    "x86_64": Kernel(62, 1, 60, "4889f8 4889f7 4889d6 4889ca 0f05 c3"),
    "aarch64": Kernel(183, 64, 93, "e80300aa e00301aa e10302aa e20303aa 010000d4 c0035fd6"),
    "riscv64": Kernel(243, 64, 93, "aa88 2e85 b285 3686 73000000 8280"),
}
HOST_TEXT = """
@system_call = constant [{count} x i8] c"{code}", section ".text.call", align 16
define void @start() noreturn nounwind "stackrealign" {{
  %bound = call i64 inttoptr (i64 {bind} to ptr)(i64 {block})
  store i64 %bound, ptr inttoptr (i64 {returned} to ptr)
  %good = icmp eq i64 %bound, 0
  br i1 %good, label %run, label %write
run:
  %ran = call i64 inttoptr (i64 {run} to ptr)(i64 {block})
  store i64 %ran, ptr inttoptr (i64 {returned} + 8 to ptr)
  br label %write
write:
  %from = phi i64 [ {base}, %0 ], [ {base}, %run ], [ %next, %write ]
  %left = phi i64 [ {length}, %0 ], [ {length}, %run ], [ %rest, %write ]
  %done = call i64 @system_call(i64 {write}, i64 1, i64 %from, i64 %left)
  %next = add i64 %from, %done
  %rest = sub i64 %left, %done
  %more = icmp sgt i64 %rest, 0
  br i1 %more, label %write, label %end
end:
  call i64 @system_call(i64 {exit}, i64 0, i64 0, i64 0)
  unreachable
}}
""".replace("{returned} + 8", "{second}")


def qemu(level: str) -> list[str]:
    """The command that runs programs for a processor; empty if it is missing.

    A level of x86-64 runs on a processor that has no more than it.
    """
    name = describe_processor(level).architecture
    found = shutil.which(f"qemu-{name}") or shutil.which(f"qemu-{name}-static")
    options = {"x86-64-v2": ["-cpu", "Nehalem"]}.get(level, [])
    return [found, *options] if found else []


def can_run(level: str) -> bool:
    if level.startswith("windows-"):
        return bool(MINGW and WINE)
    return bool(qemu(level))


@dataclass
class Memory:
    """What the executable is loaded as, from `BASE` on."""

    data: bytearray = field(default_factory=lambda: bytearray(CODE_AT))

    def put(self, data: bytes, alignment: int = 64) -> int:
        """The address of a copy."""
        self.data += bytes(-len(self.data) % alignment)
        at = BASE + len(self.data)
        self.data += data
        return at

    def words(self, values: list[int]) -> int:
        return self.put(struct.pack(f"<{len(values)}Q", *values))


class OtherMachine:
    """The code for `level` of a saved straight program; executables go into the file's folder."""

    def __init__(self, path: Path, level: str = "aarch64") -> None:
        self.program, self.level = path.with_name("program"), level
        container = Container(str(path))
        self.saved = parse_record(Saved, bytes(container.view(member(level, "start.json"))))
        self.code = bytes(container.view(member(level, "code")))
        self.arrays = {
            each.name: bytes(container.view(constant_member(each.digest)))
            for each in self.saved.arrays
        }
        assert "bind" in self.saved.interface.functions

    def __call__(
        self, inputs: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]], arena: int
    ) -> tuple[int, int, dict[str, np.ndarray]]:
        """What bind and run return, and the results; `shapes` are those they should have."""
        asked, signature, memory = self.saved.interface, self.saved.signature, Memory()
        code = memory.put(self.code, 1 << 16)
        memory.put(b"", 1 << 12)  # code has pages of its own
        head = read_head(self.code)
        entry = {symbol: code + at for symbol, at in zip(asked.symbols, head.entries)}
        block = [0] * (asked.words + 2)
        given = [np.ascontiguousarray(inputs[spec.name]) for spec in signature.inputs]
        for number, array in enumerate(given):
            block[asked.inputs + number] = memory.put(array.tobytes())
        sizes = [size for array in given for size in array.shape]
        block[asked.shapes : asked.shapes + len(sizes)] = sizes
        places = {}
        for spec, (pointer, _, _) in zip(signature.outputs, asked.results):
            count = int(np.prod(shapes[spec.key])) * spec.dtype.bytes
            block[pointer] = places[spec.key] = memory.put(b"\xee" * (count + 64))
        block[ARENA] = memory.put(bytes(arena + 64))
        for word, names in asked.tables:
            block[word] = memory.words([memory.put(self.arrays[name]) for name in names])
        for word, names in asked.entries:
            block[word] = memory.words([entry[name] for name in names])
        at = memory.words(block)
        bind, run = (entry[asked.functions[role]] for role in ("bind", "run"))
        words = (at, bind, run, at + 8 * asked.words)
        windows = self.level.startswith("windows-")
        made = self._under_wine if windows else self._under_qemu
        out = made(memory, words, (code, len(self.code)))
        results = {}
        for spec in signature.outputs:
            start, shape = places[spec.key] - BASE, shapes[spec.key]
            count = int(np.prod(shape)) * spec.dtype.bytes
            assert out[start + count : start + count + 64] == b"\xee" * 64, "written behind its end"
            results[spec.key] = np.frombuffer(out[start : start + count], spec.dtype.numpy)
            results[spec.key] = results[spec.key].reshape(shape)
        bound, ran = struct.unpack_from("<2q", out, at - BASE + 8 * asked.words)
        return bound, ran, results

    def _under_qemu(
        self, memory: Memory, words: tuple[int, ...], code: tuple[int, int]
    ) -> bytes:  # fmt: skip
        start = host_code(self.level, words, len(memory.data))
        entry = memory.put(start, 1 << 16) + read_head(start).entries[0]
        length, kernel = len(memory.data), KERNELS[describe_processor(self.level).architecture]
        memory.data[:64] = struct.pack(
            "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, kernel.elf, 1, entry, 64, 0, 0, 64, 56, 1,
            64, 0, 0,
        )  # fmt: skip
        memory.data[64:120] = struct.pack("<IIQQQQQQ", 1, 7, 0, BASE, BASE, length, length, 1 << 16)
        self.program.write_bytes(memory.data)
        self.program.chmod(0o755)
        out = _done([*qemu(self.level), str(self.program)])
        assert len(out) <= length
        return out

    def _under_wine(
        self, memory: Memory, words: tuple[int, ...], code: tuple[int, int]
    ) -> bytes:  # fmt: skip
        head = struct.pack("<8Q", BASE, len(memory.data), *code, *words)
        self.program.write_bytes(head + memory.data)
        given, out = str(self.program), str(self.program.with_name("results"))
        host = windows_host()
        more = {"WINEPREFIX": str(host.with_name("wine")), "WINEDEBUG": "-all"}
        # Wine's server outlives the program by seconds, and would hold its output open
        done = subprocess.run(
            [str(WINE), str(host), given, out], stdout=subprocess.DEVNULL, check=False,
            stderr=subprocess.DEVNULL, timeout=90, env={**os.environ, **more},
        )  # fmt: skip
        assert done.returncode == 0, done.returncode
        return Path(out).read_bytes()


def host_code(level: str, words: tuple[int, ...], length: int) -> bytes:
    """An image that calls bind, run if that gave 0, writes memory out and ends.

    `words` are the addresses of the block, of both functions, and for what they return.
    """
    processor = describe_processor(level).of_images
    kernel = KERNELS[processor.architecture]
    code, (block, bind, run, returned) = bytes.fromhex(kernel.call), words
    text = HOST_TEXT.format(
        count=len(code), code="".join(f"\\{byte:02x}" for byte in code), block=block, bind=bind,
        run=run, returned=returned, second=returned + 8, base=BASE, length=length,
        write=kernel.write, exit=kernel.exit,
    )  # fmt: skip
    return link(compile_modules({"host": Source.of(text)}, processor).code.values(), ["start"])


@cache
def windows_host() -> Path:
    """The program `windows_host.c`, built once."""
    folder = Path(tempfile.mkdtemp(prefix="anydim-windows-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _done([str(MINGW), "-O1", "-static", "-o", str(folder / "host.exe"), str(HOST)])
    return folder / "host.exe"


def _done(command: list[str]) -> bytes:
    done = subprocess.run(command, capture_output=True, timeout=90, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-500:])
    return done.stdout
