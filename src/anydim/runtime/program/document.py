"""A plan as plain dicts, lists, texts and numbers, for other programs (docs/memory.md).

Every size is given as a formula, at the sizes of the plan, and as the maximum over the box.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anydim.runtime.program.memory import memory
from anydim.runtime.program.program import Program
from anydim.runtime.program.region_plan import Needs, needs
from anydim.runtime.program.segment import Buffer, Segment
from anydim.runtime.signature import Signature
from anydim.sizes import Box, Size, bounds

FORMAT = 2
Document = dict[str, Any]


def document(program: Program, sizes: Mapping[str, int]) -> Document:
    """Return the document of a program at sizes for all dims that it needs."""
    return _Writer(program, sizes).document()


class _Writer:
    """Numbers storages in the order of values."""

    def __init__(self, program: Program, sizes: Mapping[str, int]) -> None:
        self.program, self.sizes = program, sizes
        self.needs: Needs = needs(program)
        self.storages: list[Document] = []

    def document(self) -> Document:
        known, signature = memory(self.program), self.program.signature
        values = list(self._arguments(signature))
        values += self._arena()
        values += self._setup_values()
        values += self._between()
        return {
            "format": FORMAT,
            "model": signature.name,
            "dims": [
                {"name": dim.name, "low": dim.lo, "high": dim.hi, "size": self.sizes[dim.name]}
                for dim in self.needs.box.dims
            ],
            "constraints": [f"{each} >= 0" for each in self.needs.box.constraints],
            "memory": {
                "peak": self._size(known.bytes),
                "values": self._size(known.values),
                "arena": self._size(known.arena),
                "kept": self._size(known.kept),
                "inputs": self._size(known.inputs),
                "outputs": self._size(known.outputs),
                "constants": known.constants,
            },
            "storages": self.storages,
            "values": values,
            "launches": [
                {
                    "kernel": site.kernel,
                    "source": site.source,
                    "body": "generic",
                    "kept": number < segment.first_launch,
                }
                for segment, _ in self.needs.parts
                for number, site in enumerate(segment.sites)
            ],
        }

    def _size(self, size: Size, box: Box | None = None) -> Document:
        most = bounds(size, box or self.needs.box).hi
        return {
            "formula": str(size), "bytes": max(0, size.evaluate(self.sizes)), "max_bytes": most
        }  # fmt: skip

    def _storage(self, kind: str, size: Size) -> int:
        self.storages.append({"id": len(self.storages), "kind": kind, **self._size(size)})
        return len(self.storages) - 1

    def _arguments(self, signature: Signature) -> Iterator[Document]:
        """Yield inputs and outputs: each is a storage of its own."""
        segment = self.program.straight
        for kind, specs in (("input", signature.inputs), ("output", signature.outputs)):
            for spec in specs:
                size = spec.bytes
                shown = {
                    "name": spec.key, "kind": kind, "dtype": str(spec.dtype),
                    "shape": list(map(str, spec.shape)), **self._size(size),
                    "storage": self._storage(kind, size), "offset": "0", "offset_bytes": 0,
                }  # fmt: skip
                yield {**shown, **_life(segment, spec.name, 0)}

    def _arena(self) -> Iterator[Document]:
        """Yield values of segments and the scratch of launches: all in the arena."""
        if not self.needs.parts:
            return
        arena, start = self._storage("arena", self.needs.arena), 0
        for segment, env in self.needs.parts:
            for buffer in segment.buffers:
                if buffer.kind == "arena":
                    yield self._arena_value(buffer, segment, env, arena, start)
            start += len(segment.sites)

    def _setup_values(self) -> Iterator[Document]:
        """Yield values that depend on sizes alone, in the block of their setup."""
        for segment, env in self.needs.parts:
            for setup in segment.setups:
                block = self._storage("kept", setup.bytes)
                for name in setup.values:
                    yield self._arena_value(segment.buffer[name], segment, env, block, 0)

    def _arena_value(
        self, buffer: Buffer, segment: Segment, env: Mapping[str, Size], storage: int, start: int
    ) -> Document:
        assert buffer.offset is not None
        offset = buffer.offset.substitute(env)
        return {
            "name": buffer.name,
            "kind": ("kept" if buffer.kind == "setup" else "value") if buffer.dtype else "scratch",
            "dtype": str(buffer.dtype or ""),
            "shape": [str(size.substitute(env)) for size in buffer.shape],
            **self._size(buffer.bytes.substitute(env)),
            "storage": storage,
            "offset": str(offset),
            "offset_bytes": max(0, offset.evaluate(self.sizes)),
            **_life(segment, buffer.name, start),
        }

    def _between(self) -> Iterator[Document]:
        """Yield values between the steps of regions: allocated when their sizes are known."""
        seen = set()
        for moment in self.needs.moments:
            for name, size in moment.parts:
                if (name, size) not in seen:
                    seen.add((name, size))
                    yield {
                        "name": name, "kind": "between", **self._size(size),
                        "storage": self._storage("block", size), "offset": "0", "offset_bytes": 0,
                    }  # fmt: skip


def _life(segment: Segment | None, name: str, start: int) -> Document:
    """Return the first and last launch that use a value; None if unknown."""
    first, last = (None, None) if segment is None else segment.lives.get(name, (None, None))
    if first is None or last is None:
        return {"first": None, "last": None}
    return {"first": start + first, "last": start + last}
