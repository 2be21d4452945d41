"""Slots that launches read, each loaded once per function: addresses of buffers, sizes."""

from __future__ import annotations

from collections.abc import Mapping

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import constant
from anydim.compiler.native.body import Body, parameter
from anydim.runtime.layout import ADDRESS, ARENA, ARENA_BYTES, CONSTANTS, Layout
from anydim.runtime.program.segment import Segment, Site
from anydim.sizes import Size

BLOCK = parameter("block")


@dataclass(frozen=True)
class Words:
    """Slots of sizes and pointers in a block, and of constants in their table.

    `arguments` are the first slots of the arguments of each launch, `setups` the slots with the
    addresses of setup blocks, by value.
    """

    slots: Mapping[Size, int]
    pointers: Mapping[str, int]
    constants: Mapping[str, int]
    arguments: tuple[int, ...]
    first_status: int
    setups: Mapping[str, int]


def words_of(program: Segment, layout: Layout) -> Words:
    interface = (*program.signature.inputs, *program.signature.outputs)
    return Words(
        {size: layout.first_slot + n for n, size in enumerate(program.slots)},
        {spec.name: layout.pointer(n) for n, spec in enumerate(interface)},
        {name: n for n, name in enumerate(program.constants)},
        tuple(layout.first_slot + word for word in program.arguments),
        layout.first_status,
        {name: layout.setup(number) + ADDRESS for name, number in program.setup_of.items()},
    )


class Chunk:
    """The body of a function with some of the launches."""

    def __init__(self, program: Segment, words: Words, body: Body) -> None:
        self.program, self.words, self.body = program, words, body
        self.loaded: dict[int, ir.Value] = {}
        self.buffers: dict[str, ir.Value] = {}

    def load(self, word: int) -> ir.Value:
        if word not in self.loaded:
            self.loaded[word] = self.body.load(BLOCK, word)
        return self.loaded[word]

    def size(self, size: Size) -> ir.Value:
        fixed = size.constant
        return self.load(self.words.slots[size]) if fixed is None else constant(fixed)

    def give_operands(self, number: int, site: Site) -> ir.Value:
        """Store the addresses of a launch's operands before its sizes; returns their address."""
        first = self.words.arguments[number]
        for word, name in enumerate(site.operands, first):
            self.body.store(BLOCK, word, self.buffer(name))
        return self.body.let(BLOCK + 8 * first)

    def buffer(self, name: str) -> ir.Value:
        if name not in self.buffers:
            self.buffers[name] = self._address(name)
        return self.buffers[name]

    def _address(self, name: str) -> ir.Value:
        buffer = self.program.buffer[name]
        if buffer.kind == "constant":
            return self.body.load(self.load(CONSTANTS), self.words.constants[name])
        if buffer.kind == "status":
            assert buffer.offset is not None and buffer.offset.constant is not None
            return self.body.let(self.statuses() + buffer.offset.constant)
        if buffer.kind == "arena":
            assert buffer.offset is not None
            offset = self.size(buffer.offset)
            return self.body.let(self.load(ARENA) + offset)
        if buffer.kind == "setup":
            assert buffer.offset is not None
            offset = self.size(buffer.offset)
            return self.body.let(self.load(self.words.setups[name]) + offset)
        return self.load(self.words.pointers[name])

    def statuses(self) -> ir.Value:
        """The address of the status slots of checked indices; on a device they follow its arena."""
        if self.program.device:
            return self.body.let(self.load(ARENA) + self.load(ARENA_BYTES))
        return BLOCK + 8 * self.words.first_status
