"""Runs a saved straight program for aarch64 under qemu-user: no compiler, no C library.

The program, its inputs and room for its results become one static executable. Its first
instructions call `bind` and `run` on a block of words that Python has filled, then write all memory
to the standard output, where Python finds the results.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from anydim.deploy.container import Container
from anydim.deploy.records import parse_record
from anydim.deploy.saved import Saved, constant_member, member
from anydim.runtime.image import read_head
from anydim.runtime.layout import ARENA

QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
BASE, CODE_AT = 0x10000000, 0x10000
WRITE, EXIT = 64, 93  # of Linux on aarch64


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
        self.program = path.with_name("program")
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
        out = self._run(memory, stub(at, bind, run, 8 * asked.words, len(memory.data)))
        results = {}
        for spec in signature.outputs:
            start, shape = places[spec.key] - BASE, shapes[spec.key]
            count = int(np.prod(shape)) * spec.dtype.bytes
            assert out[start + count : start + count + 64] == b"\xee" * 64, "written behind its end"
            results[spec.key] = np.frombuffer(out[start : start + count], spec.dtype.numpy)
            results[spec.key] = results[spec.key].reshape(shape)
        bound, ran = struct.unpack_from("<2q", out, at - BASE + 8 * asked.words)
        return bound, ran, results

    def _run(self, memory: Memory, start: bytes) -> bytes:
        assert QEMU is not None
        entry = BASE + 0x1000
        memory.data[0x1000 : 0x1000 + len(start)] = start
        length = len(memory.data)
        memory.data[:64] = struct.pack(
            "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, 183, 1, entry, 64, 0, 0, 64, 56, 1, 64, 0, 0
        )
        memory.data[64:120] = struct.pack("<IIQQQQQQ", 1, 7, 0, BASE, BASE, length, length, 1 << 16)
        self.program.write_bytes(memory.data)
        self.program.chmod(0o755)
        done = subprocess.run([QEMU, str(self.program)], capture_output=True, timeout=120)
        assert done.returncode == 0, (done.returncode, done.stderr[-500:])
        assert len(done.stdout) == length
        return done.stdout


def stub(block: int, bind: int, run: int, returned: int, length: int) -> bytes:
    """Calls bind, run if that gave 0, writes memory out and ends; what they return goes to the
    block's words at `returned`."""
    lines = [
        *_load(19, block), *_load(20, bind), *_load(21, run), *_load(22, block + returned),
        0xAA1303E0,  # mov x0, x19
        0xD63F0280,  # blr x20
        0xF90002C0,  # str x0, [x22]
        0xB5000080,  # cbnz x0, past run
        0xAA1303E0,  # mov x0, x19
        0xD63F02A0,  # blr x21
        0xF90006C0,  # str x0, [x22, 8]
        *_load(1, BASE), *_load(2, length),
        0xD2800020,  # mov x0, 1: the standard output
        *_load(8, WRITE),
        0xD4000001,  # svc 0
        0xCB000042,  # sub x2, x2, x0
        0x8B000021,  # add x1, x1, x0
        0xB5FFFEE2,  # cbnz x2: back to mov x0, 1
        0xD2800000,  # mov x0, 0
        *_load(8, EXIT),
        0xD4000001,
    ]  # fmt: skip
    return struct.pack(f"<{len(lines)}I", *lines)


def _load(register: int, value: int) -> list[int]:
    """A 64-bit number into a register: movz and three movk."""
    parts = [value >> 16 * n & 0xFFFF for n in range(4)]
    return [
        (0xD2800000 if n == 0 else 0xF2800000) | n << 21 | part << 5 | register
        for n, part in enumerate(parts)
    ]
