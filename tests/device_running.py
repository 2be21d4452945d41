"""Runs straight programs on an open device, launch by launch: what a driver and a target give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from anydim.compiler.native.build import Assembled
from anydim.compiler.pipeline import Compiled
from anydim.compiler.targets.target import Target
from anydim.runtime.devices.device import Device, Launch
from anydim.runtime.positions import FINE
from anydim.runtime.program.segment import Segment


class OnDevice:
    """A straight program of `compiled`, made again for the target of a device."""

    def __init__(self, compiled: Compiled, device: Device, target: Target, workers: int) -> None:
        self.made: Assembled = compiled.again(target, workers).made
        (self.segment,) = self.made.program.segments
        assert isinstance(self.segment, Segment)
        self.device = device
        kernels = self.made.kernels.values()
        objects = target.compile(target.sources(kernels, target.processor))
        self.entries = device.load(objects.code, [kernel.name for kernel in kernels])
        self.constants = {
            name: self._put(self.made.arrays[name]) for name in self.segment.constants
        }

    def __call__(self, arrays: Mapping[str, np.ndarray], env: Mapping[str, int]) -> dict[str, Any]:
        """The outputs for inputs at dims; raises IndexError where an index leaves its tensor."""
        places, blocks = self.bind(arrays, env)
        try:
            self.run(places, env)
            return self._results(places, env)
        finally:
            for block in blocks:
                self.device.free(block)

    def bind(
        self, arrays: Mapping[str, np.ndarray], env: Mapping[str, int]
    ) -> tuple[dict[str, int], list[int]]:
        """The address of every buffer, with inputs copied, and the blocks to be freed."""
        segment, places, blocks = self.segment, dict(self.constants), []
        arena = self.device.allocate(max(64, segment.arena_bytes.evaluate(env)))
        status = self.device.allocate(max(64, 8 * len(segment.positions)))
        blocks += [arena, status]
        fine = np.full(max(8, len(segment.positions)), FINE)
        self.device.copy_in(status, fine.ctypes.data, 8 * len(segment.positions))
        for buffer in segment.buffers:
            if buffer.kind in ("arena", "status"):
                base = arena if buffer.kind == "arena" else status
                assert buffer.offset is not None
                places[buffer.name] = base + buffer.offset.evaluate(env)
            elif buffer.kind == "input":
                blocks.append(self._put(np.ascontiguousarray(arrays[buffer.name])))
                places[buffer.name] = blocks[-1]
            elif buffer.kind == "output":
                blocks.append(self.device.allocate(max(64, buffer.bytes.evaluate(env))))
                places[buffer.name] = blocks[-1]
        places["$status"] = status
        return places, blocks

    def run(self, places: Mapping[str, int], env: Mapping[str, int]) -> None:
        """All launches."""
        for site in self.segment.sites:
            words = [places[name] for name in site.operands]
            words += [size.evaluate(env) for size in site.sizes]
            block = np.array(words, np.int64)
            scratch = site.scratch.evaluate(env)
            self.device.launch(Launch(
                self.entries[site.kernel], block.ctypes.data, len(site.operands), len(site.sizes),
                site.parallel.evaluate(env), site.grain.evaluate(env),
                places[site.workspace] if scratch else 0, scratch,
            ))  # fmt: skip

    def _results(self, places: Mapping[str, int], env: Mapping[str, int]) -> dict[str, Any]:
        segment, results = self.segment, {}
        status = np.full(max(8, len(segment.positions)), FINE)
        self.device.copy_out(status.ctypes.data, places["$status"], 8 * len(segment.positions))
        for spec in segment.signature.outputs:
            shape = [size.evaluate(env) for size in spec.shape]
            made = results[spec.name] = np.zeros(shape, spec.dtype.numpy)
            self.device.copy_out(made.ctypes.data, places[spec.name], made.nbytes)
        self.device.wait(self.device.record())
        if (status != FINE).any():
            raise IndexError(f"index {status[status != FINE][0]} leaves its tensor")
        return results

    def _put(self, array: np.ndarray) -> int:
        address = self.device.allocate(max(64, array.nbytes))
        self.device.copy_in(address, array.ctypes.data, array.nbytes)
        return address
