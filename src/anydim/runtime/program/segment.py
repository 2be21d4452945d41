"""Segments: straight lines of launches with their order, buffers and sizes.

All quantities are size expressions, so one record serves the whole box. `native/` generates host
code from it; `text` prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import cached_property
from itertools import accumulate

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.base.text import count_of
from anydim.runtime.positions import Position
from anydim.runtime.signature import Signature
from anydim.runtime.variant_tables import MORE
from anydim.sizes import Condition, Size, SizeNames, align_up, as_size, negated_if_negative

ALIGNMENT = 64  # bytes: of the arena, of each value in it and of each thread's scratch
Shown = Callable[[Size], str]
KINDS = ("input", "output", "constant", "arena", "status", "setup")


@dataclass(frozen=True)
class Buffer:
    """Memory that a launch reads or writes; `offset` is in bytes from the start of the arena.

    A 'status' buffer has a slot per checked index of the launch; its `offset` is in bytes from the
    first slot. A 'setup' buffer is in the block of its `Setup`, at `offset`. `dtype` and `shape`
    are those of its value.
    """

    name: str
    kind: str  # one of KINDS
    bytes: Size
    offset: Size | None = None
    dtype: DType | None = None
    shape: tuple[Size, ...] = ()

    def __str__(self) -> str:
        return self.text(str)

    def text(self, shown: Shown) -> str:
        """Its text, with that of each size."""
        at = f" at {shown(self.offset)}" if self.offset is not None else ""
        return f"{self.kind} '{self.name}': {shown(self.bytes)} bytes{at}"


@dataclass(frozen=True)
class Site:
    """A launch of a kernel.

    `kernel` names the generic code, `recipe` is the number of its source in the program. `operands`
    are buffer names in the order of the recipe's operands, `sizes` the values of its sizes. The
    parallel range 0:parallel is split into at most one part per thread, none smaller than `grain`;
    `Launch` defines negative values. Each thread gets `scratch` bytes of the buffer `workspace`, a
    multiple of the alignment. `flops` and `moved` (bytes) are estimates for reports; `source` names
    its nodes. A call takes the first of `versions` (name, condition) whose condition holds.
    """

    kernel: str
    operands: tuple[str, ...]
    sizes: tuple[Size, ...]
    parallel: Size
    grain: Size = field(default_factory=lambda: as_size(1))
    scratch: Size = field(default_factory=lambda: as_size(0))
    workspace: str = ""
    source: str = ""
    flops: Size = field(default_factory=lambda: as_size(0))
    moved: Size = field(default_factory=lambda: as_size(0))
    schedule: str = ""
    reason: str = ""
    versions: tuple[tuple[str, Condition], ...] = ()
    recipe: int | None = None

    @property
    def shared(self) -> tuple[Size, Size]:
        """The unit of work that threads share, and the minimum worth a thread."""
        stage = negated_if_negative(self.grain)
        return (self.parallel, self.grain) if stage is None else (stage, as_size(1))

    @property
    def names(self) -> tuple[str, ...]:
        """What patterns find it by: of nodes, without a `/` before them too, and kernel."""
        _, _, nodes = self.source.rpartition(": ")
        named = [part.strip() for part in nodes.split(" + ") if part.strip()]
        plain = [name[1:] for name in named if name.startswith("/")]
        return (*named, *plain, self.kernel.rpartition("_")[0], self.kernel)

    def __str__(self) -> str:
        return self.text(str)

    def text(self, shown: Shown) -> str:
        """Its text, with that of each size."""
        operands = ", ".join(f"'{name}'" for name in self.operands)
        sizes = ", ".join(map(shown, self.sizes))
        work = f"for 0:{shown(self.parallel)} by at least {shown(self.grain)}"
        scratch = f" with {shown(self.scratch)} bytes a thread of '{self.workspace}'"
        scratch = scratch if self.workspace else ""
        source = f"  # {self.source}" if self.source else ""
        return f"{self.kernel}({operands}; {sizes}) {work}{scratch}{source}"


@dataclass(frozen=True)
class Setup:
    """Launches whose results depend on the sizes of `dims` alone and are cached between calls.

    They are the next `launches` of a segment after those of earlier setups. The buffers `values`,
    which other launches read, are in a block of `bytes` bytes. Below `least` bytes, filling the
    block takes about as long as a lookup, so each call has its own.
    """

    dims: tuple[str, ...]
    launches: int
    bytes: Size
    values: tuple[str, ...]
    least: int

    def __str__(self) -> str:
        return self.text(str)

    def text(self, shown: Shown) -> str:
        """Its text, with that of each size."""
        of, count = ", ".join(self.dims) or "no dim", count_of(self.launches, "launch", "es")
        return f"setup of {of}: {count}, {shown(self.bytes)} bytes"


@dataclass(frozen=True)
class Segment:
    """Launches that run in order.

    An input, output or constant buffer is named like that input, output or constant; `constants`
    are the names in the order of their slots. The arena has `arena_bytes`: values, and the
    workspaces of launches on `threads` threads. `positions` are the checked indices in the order of
    their slots. `updates` are pairs (output, input) that may share memory. All memory is on one
    `device`, '' for the host. The first launches are those of `setups`; a call runs them if their
    values are not cached.
    """

    signature: Signature
    buffers: tuple[Buffer, ...]
    sites: tuple[Site, ...]
    constants: tuple[str, ...]
    arena_bytes: Size
    threads: int = 1
    positions: tuple[Position, ...] = ()
    updates: tuple[tuple[str, str], ...] = ()
    device: str = ""
    setups: tuple[Setup, ...] = ()

    @cached_property
    def total_bytes(self) -> Size:
        """The size of the arena."""
        return align_up(self.arena_bytes, ALIGNMENT)

    @cached_property
    def allocated_bytes(self) -> Size:
        """The size of the arena; on a device, with the status slots of checked indices."""
        statuses = 8 * len(self.positions) if self.device else 0
        return self.total_bytes + align_up(as_size(statuses), ALIGNMENT)

    @cached_property
    def slots(self) -> tuple[Size, ...]:
        """All sizes that vary between calls and that the host needs, each once."""
        return tuple(dict.fromkeys(s for s in self._sizes() if s.constant is None))

    @cached_property
    def arguments(self) -> tuple[int, ...]:
        """The first slot of the arguments of each launch, counted from that of `slots`."""
        counts = (len(site.operands) + len(site.sizes) + MORE for site in self.sites)
        return tuple(accumulate(counts, initial=len(self.slots)))

    @property
    def words(self) -> int:
        """The number of slots of sizes and arguments."""
        return self.arguments[-1]

    @cached_property
    def kept_bytes(self) -> Size:
        """Bytes of cached size values of a call."""
        return sum((setup.bytes for setup in self.setups), as_size(0))

    @cached_property
    def first_launch(self) -> int:
        """The number of setup launches."""
        return sum(setup.launches for setup in self.setups)

    @cached_property
    def setup_of(self) -> Mapping[str, int]:
        """The setup of each cached value, by number."""
        return {name: n for n, setup in enumerate(self.setups) for name in setup.values}

    def _sizes(self) -> Iterator[Size]:
        yield self.total_bytes
        yield from (setup.bytes for setup in self.setups)
        for buffer in self.buffers:
            if buffer.offset is not None:
                yield buffer.offset
        for site in self.sites:
            yield from (site.parallel, site.grain, site.scratch, *site.sizes)
            if self.device:  # devices receive these estimates
                yield from (site.flops, site.moved)

    @cached_property
    def buffer(self) -> Mapping[str, Buffer]:
        """The buffers by name."""
        return {buffer.name: buffer for buffer in self.buffers}

    @cached_property
    def lives(self) -> Mapping[str, tuple[int, int]]:
        """The first and last launch that use each buffer, in the order of the first."""
        found: dict[str, tuple[int, int]] = {}
        for number, site in enumerate(self.sites):
            for name in (*site.operands, *filter(None, (site.workspace,))):
                found[name] = (found.get(name, (number, number))[0], number)
        return found

    def lines(self) -> Iterator[str]:
        """Yield its content as text, without its signature; sizes that it repeats have names."""
        names = SizeNames(self._text_sizes())
        yield f"threads {self.threads}"
        yield f"arena {names.text(self.arena_bytes)} bytes"
        yield from (f"size {line}" for line in names.lines())
        yield from (buffer.text(names.text) for buffer in self.buffers)
        start = 0
        for setup in self.setups:
            yield setup.text(names.text)
            for site in self.sites[start : start + setup.launches]:
                yield f"  {site.text(names.text)}"
            start += setup.launches
        yield from (site.text(names.text) for site in self.sites[start:])

    def _text_sizes(self) -> Iterator[Size]:
        yield self.arena_bytes
        for buffer in self.buffers:
            yield from (buffer.bytes, *([] if buffer.offset is None else [buffer.offset]))
        yield from (setup.bytes for setup in self.setups)
        for site in self.sites:
            yield from (*site.sizes, site.parallel, site.grain, site.scratch)
