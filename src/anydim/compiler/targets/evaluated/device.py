"""A device that interprets kernels as loop IR in plain Python: slow, every access checked.

  model = ad.compile(graph, devices={"accel": EvaluatedDevice()})

Its target generates no code: an object is the identity of a kernel, which the target keeps. A
kernel that accesses memory outside an operand's block, or writes a read-only one, is a device
error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence

import numpy

from anydim.base.records import dataclass
from anydim.compiler.kernels.ir import Kernel, Library
from anydim.compiler.kernels.templates import TEMPLATES
from anydim.compiler.targets.evaluated import evaluator
from anydim.compiler.targets.processor import Processor, describe_processor
from anydim.compiler.targets.target import Objects, Source, Target
from anydim.runtime.devices.addresses import Blocks
from anydim.runtime.devices.device import Device, Launch

PLAIN = "x86-64-v2"  # the processor assumed by templates: vectors of 16 bytes


class EvaluatedDevice(Device):
    """Memory of numpy arrays at virtual addresses."""

    target = "evaluated"

    def __init__(self, name: str = "evaluated", processor: str = PLAIN) -> None:
        super().__init__(name)
        self._kept: dict[bytes, Kernel] = {}
        self.made_by = _target(describe_processor(processor), self._kept)
        self._blocks: Blocks[numpy.ndarray] = Blocks()
        self._kernels: list[Kernel] = []

    def _allocate(self, bytes: int) -> int:
        return self._blocks.add(numpy.full(bytes, 0xAA, numpy.uint8))

    def _free(self, address: int) -> None:
        self._blocks.remove(address)

    def _bytes(self, address: int, count: int | None = None) -> numpy.ndarray:
        block, offset = self._blocks.find(address)
        if offset + (count or 0) > len(block):
            raise IndexError(f"bytes {offset}:{offset + (count or 0)} of a block of {len(block)}")
        return block[offset : None if count is None else offset + count]

    def _copy_in(self, target: int, source: int, bytes: int) -> None:
        self._bytes(target, bytes)[:] = numpy.frombuffer(
            ctypes.string_at(source, bytes), numpy.uint8
        )

    def _copy_out(self, target: int, source: int, bytes: int) -> None:
        ctypes.memmove(target, self._bytes(source, bytes).ctypes.data, bytes)

    def _copy_within(self, target: int, source: int, bytes: int) -> None:
        self._bytes(target, bytes)[:] = self._bytes(source, bytes)

    def _fill(self, target: int, value: int, bytes: int) -> None:
        self._bytes(target, bytes)[:] = value

    def _load(self, code: Mapping[str, bytes], symbols: Sequence[str]) -> Mapping[str, int]:
        kernels = {kernel.name: kernel for kernel in map(self._kept.__getitem__, code.values())}
        entries = {symbol: len(self._kernels) + n for n, symbol in enumerate(symbols)}
        self._kernels += [kernels[symbol] for symbol in symbols]
        return entries

    def _launch(self, launch: Launch) -> None:
        kernel, count = self._kernels[launch.entry], launch.operands
        words = (ctypes.c_int64 * (count + launch.sizes)).from_address(launch.arguments)[:]
        operands = []
        for operand, address in zip(kernel.operands, words):
            data, width = self._bytes(address), operand.dtype.numpy.itemsize
            operands.append(data[: len(data) // width * width].view(operand.dtype.numpy))
        evaluator.run(kernel, operands, words[count:], 0, launch.parallel, launch.stride)

    def _record(self) -> int:
        return 1

    def _wait(self, event: int) -> None:
        """Return; all work is synchronous."""

    def _synchronise(self) -> None:
        """Return; all work is synchronous."""


def _target(processor: Processor, kept: dict[bytes, Kernel]) -> Target:
    def sources(kernels: Iterable[Kernel | Library], _: Processor) -> dict[str, Source]:
        own = [kernel for kernel in kernels if isinstance(kernel, Kernel)]
        kept.update({kernel.identity.encode(): kernel for kernel in own})
        return {kernel.name: Source.of(kernel.identity) for kernel in own}

    return Target(
        name="evaluated",
        processor=processor,
        templates=TEMPLATES,
        launch="device",
        sources=sources,
        compiling=lambda processor, threads: _Compiling(),
        load=None,
    )


@dataclass(frozen=True)
class _Compiling:
    """Compilation where the text of a module is its object."""

    def begin(self, modules: Mapping[str, Source]) -> None:
        """Do nothing."""

    def beside(self, work: object) -> None:
        """Do nothing."""

    def finish(self, modules: Mapping[str, Source]) -> Objects:
        return Objects({name: each.text().encode() for name, each in modules.items()}, ())

    def __enter__(self) -> _Compiling:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing."""
