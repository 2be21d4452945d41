"""Reference-counted memory blocks for values that outlive a step; the same code for every program.

A block has a head (`runtime/context.py`), then its bytes, 64-byte aligned. When its reference count
reaches 0, it is cached for an allocation of similar size. All live blocks are in a list, so that
none leaks when a call ends early. Live and cached bytes together never exceed the peak of live
bytes: cached blocks are freed before a new one is allocated. The block of an empty value has no
bytes, only its head takes memory.

    anydim_allocate(call, bytes) -> block   with one reference; 0: out of memory (FOUND has the
                                            bytes), or above the memory limit
    anydim_hold(block)                      add a reference; 0 is ignored
    anydim_drop(call, block)                remove a reference
    anydim_arena(call, bytes) -> address    of at least `bytes`; previous contents are lost
    anydim_grow(call, addresses of data, block and capacity, used, bytes) -> flag
                                            ensure capacity for used + 1 items of `bytes` each
    anydim_leave(call, block) -> address    remove it from the live list: ownership moves
    anydim_clear(call) -> number            drop all live blocks; returns their number
    anydim_trim(call, bytes)                cache at most `bytes`

The same code manages blocks of a device (`runtime/slots.py`), with the prefix `anydim_device_` and
the slots of the device in place of the call's; their heads are in host memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anydim.base.dtypes import int64, uint64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import apply, greatest, least, select
from anydim.compiler.native.body import Body, overflows, parameter
from anydim.runtime import context, slots
from anydim.runtime.context import BYTES, HEAD, MEMORY, NEXT, PREVIOUS, REFERENCES
from anydim.runtime.results import MAPPED

ALLOCATE, HOLD, DROP = "anydim_allocate", "anydim_hold", "anydim_drop"
ARENA, GROW, LEAVE = "anydim_arena", "anydim_grow", "anydim_leave"
CLEAR, TRIM = "anydim_clear", "anydim_trim"


@dataclass(frozen=True)
class Memory:
    """A kind of memory: the prefix of its functions, its allocation and deallocation.

    `data` returns the address of a block's bytes, `allowance` the call slots whose ALLOWED is the
    remaining budget, 0: unlimited.
    """

    name: str
    take: Callable[[Body], None]
    give: Callable[[Body, ir.Value], None]
    data: Callable[[Body, ir.Value], ir.Value]
    copy: Callable[[Body, ir.Value, ir.Value, ir.Value], None]
    allowance: Callable[[Body], ir.Value]

    def function(self, name: str) -> str:
        """Return the symbol of a public function."""
        return name.replace("anydim", self.name)


_MAX_BYTES = 1 << 60  # bytes: a larger request is a miscalculation
_TRIES = 8  # cached blocks examined per bin
_CALL, _BLOCK, _BYTES = parameter("call"), parameter("block"), parameter("bytes")


def blocks_code() -> ir.Library:
    """Return the module for host memory."""
    return ir.Library("blocks", lambda: tuple(_functions(SYSTEM)), "of every program", True)


def device_blocks_code() -> ir.Library:
    """Return the module for device memory."""
    made = lambda: tuple(_functions(DEVICE))  # noqa: E731
    return ir.Library("device blocks", made, identity="of every program with devices")


def _functions(memory: Memory) -> Iterator[ir.Function]:
    yield _delist(memory)
    yield _shelve()
    yield _give_back(memory)
    yield _trim(memory)
    yield _from_system(memory)
    yield _enlist(memory)
    yield _find()
    yield _fresh()
    yield _allocate(memory)
    yield _hold(memory)
    yield _drop(memory)
    yield _arena(memory)
    yield _grow(memory)
    yield _leave(memory)
    yield _clear(memory)


def _count(body: Body, word: int, amount: ir.Value | int) -> ir.Value:
    """Add an amount to a call slot; returns the new value."""
    new = body.let(body.load(_CALL, word) + amount)
    body.store(_CALL, word, new)
    return new


def _bin(body: Body, bytes: ir.Value) -> ir.Value:
    """Return the bin of a size: its power of two; empty blocks are in the bin of 1 byte."""
    return body.let(63 - apply("leading_zeros", (bytes | 1).bits(uint64)).bits(int64))


def _first(body: Body, bin: ir.Value) -> ir.Value:
    """Return the address of the slot with the first cached block of a bin."""
    return body.let(_CALL + 8 * context.BINS + 8 * bin)


def _take_first(body: Body, link: ir.Value, block: ir.Value) -> None:
    """Unlink a cached block from the slot that refers to it."""
    body.store(link, 0, body.load(block, NEXT))
    _count(body, context.CACHED_BYTES, 0 - body.load(block, BYTES))


# ---- allocation --------------------------------------------------------------------------------


def _allocate(memory: Memory) -> ir.Function:
    body = Body()
    with body.when((_BYTES < 0) | (_BYTES > _MAX_BYTES)):
        body.store(_CALL, context.FOUND, 0)
        body.give(0)
    bytes = body.let((_BYTES + 63) & -64)
    limit = body.variable(bytes * 2)  # maximum size of a cached block for reuse
    with body.when(bytes < MAPPED):  # keep large blocks, mapped for results, for results
        limit.set(least(limit(), MAPPED))
    with _allowance(body, memory) as (words, remaining):
        with body.when(bytes >= remaining):
            body.store(words, context.REFUSED, 1)
            body.give(0)
        limit.set(bytes)
    bin = _bin(body, bytes)
    first = _first(body, bin)
    link = body.variable(body.ask("find", first, bytes, limit()))
    with body.when(link().equals(0)):
        link.set(body.ask("find", first + 8, bytes, limit()))
    block = body.variable(0)
    with body.when(link().equals(0)):
        block.set(body.ask("fresh", _CALL, bytes, bin))
        with body.when(block().equals(0)):
            body.give(0)
    with body.otherwise():
        block.set(body.load(link()))
        _take_first(body, link(), block())
    body.call("enlist", _CALL, block())
    body.give(block())
    return body.function(memory.function(ALLOCATE), ("call", "bytes"), public=True)


@contextmanager
def _allowance(body: Body, memory: Memory) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Guard code by whether the call has a memory budget; yields its slots and remaining bytes +
    1."""
    words = body.let(memory.allowance(body))
    with body.when(words.differs(0)):
        remaining = body.load(words, context.ALLOWED)
        with body.when(remaining > 0):
            yield words, remaining


def _find() -> ir.Function:
    """Return the link to the smallest fitting block among the first few of a bin; 0: none."""
    body = Body()
    link, tries = body.variable(parameter("first")), body.variable(_TRIES)
    found, smallest = body.variable(0), body.variable(parameter("most") + 1)
    with body.loop(lambda: body.load(link()).differs(0) & (tries() > 0)):
        kept = body.load(link())
        has = body.load(kept, BYTES)
        with body.when((has >= _BYTES) & (has < smallest())):
            found.set(link())
            smallest.set(has)
        link.set(kept + 8 * NEXT)
        tries.set(select(has.equals(_BYTES), 0, tries() - 1))
    body.give(found())
    return body.function("find", ("first", "bytes", "most"))


def _fresh() -> ir.Function:
    """Allocate a block from the system after cached ones were freed for it; 0: out of memory."""
    body = Body()
    limit = body.load(_CALL, context.LIMIT)
    used = body.load(_CALL, context.LIVE_BYTES) + _BYTES
    body.call("give_back", _CALL, greatest(limit - used, 0), parameter("bin"))
    block = body.variable(body.ask("from_system", _CALL, _BYTES))
    with body.when(block().equals(0)):
        body.call("give_back", _CALL, 0, 63)
        block.set(body.ask("from_system", _CALL, _BYTES))
        with body.when(block().equals(0)):
            body.store(_CALL, context.FOUND, _BYTES)
    body.give(block())
    return body.function("fresh", ("call", "bytes", "bin"))


def _from_system(memory: Memory) -> ir.Function:
    body = Body()
    memory.take(body)
    return body.function("from_system", ("call", "bytes"))


def _take_memory(body: Body) -> None:
    """Allocate head and bytes together."""
    memory = body.ask(body.load(_CALL, context.MALLOC), _BYTES + 2 * HEAD)
    with body.when(memory.equals(0)):
        body.give(0)
    block = body.let((memory + HEAD - 1) & -HEAD)
    body.store(block, MEMORY, memory)
    body.store(block, BYTES, _BYTES)
    body.give(block)


def _give_memory(body: Body, block: ir.Value) -> None:
    body.call(body.load(_CALL, context.FREE), body.load(block, MEMORY))


def _copy_memory(body: Body, target: ir.Value, source: ir.Value, bytes: ir.Value) -> None:
    body.call(body.load(_CALL, context.COPY), target, source, bytes)


def _take_of_device(body: Body) -> None:
    """Allocate a head in host memory and the bytes on the device."""
    block = body.ask(body.load(_CALL, slots.MALLOC), HEAD)
    with body.when(block.equals(0)):
        body.give(0)
    of, data = body.load(_CALL, slots.CONTEXT), body.variable(body.load(_CALL, slots.EMPTY))
    with body.when(_BYTES.differs(0)):
        data.set(body.ask(body.load(_CALL, slots.ALLOCATE), of, _BYTES))
    with body.when(data().equals(0)):
        body.call(body.load(_CALL, slots.FREE_HEAD), block)
        body.give(0)
    body.store(block, MEMORY, block)
    body.store(block, BYTES, _BYTES)
    body.store(block, slots.DATA, data())
    body.give(block)


def _give_to_device(body: Body, block: ir.Value) -> None:
    of = body.load(_CALL, slots.CONTEXT)
    with body.when(body.load(block, BYTES).differs(0)):
        body.call(body.load(_CALL, slots.FREE), of, body.load(block, slots.DATA))
    body.call(body.load(_CALL, slots.FREE_HEAD), block)


def _copy_of_device(body: Body, target: ir.Value, source: ir.Value, bytes: ir.Value) -> None:
    """Copy on the device; its failure is reported when the call goes on."""
    of = body.load(_CALL, slots.CONTEXT)
    failed = body.ask(body.load(_CALL, slots.COPY_WITHIN), of, target, source, bytes)
    with body.when(failed.differs(0)):
        body.give(0)


SYSTEM = Memory(
    "anydim", _take_memory, _give_memory, lambda body, block: block + HEAD, _copy_memory,
    lambda body: _CALL,
)  # fmt: skip
DEVICE = Memory(
    "anydim_device", _take_of_device, _give_to_device,
    lambda body, block: body.load(block, slots.DATA), _copy_of_device,
    lambda body: body.load(_CALL, context.ALLOWED),
)  # fmt: skip


def _enlist(memory: Memory) -> ir.Function:
    """Insert a block at the head of the live list with one reference."""
    body = Body()
    with _allowance(body, memory) as (words, remaining):
        body.store(words, context.ALLOWED, remaining - body.load(_BLOCK, BYTES))
    head = body.load(_CALL, context.LIVE)
    body.store(_BLOCK, NEXT, head)
    body.store(_BLOCK, PREVIOUS, 0)
    body.store(_BLOCK, REFERENCES, 1)
    body.store(_CALL, context.LIVE, _BLOCK)
    with body.when(head.differs(0)):
        body.store(head, PREVIOUS, _BLOCK)
    _count(body, context.COUNT, 1)
    live = _count(body, context.LIVE_BYTES, body.load(_BLOCK, BYTES))
    for word in (context.PEAK, context.LIMIT):
        body.store(_CALL, word, greatest(body.load(_CALL, word), live))
    return body.function("enlist", ("call", "block"), result=False)


# ---- deallocation ------------------------------------------------------------------------------


def _delist(memory: Memory) -> ir.Function:
    body = Body()
    with _allowance(body, memory) as (words, remaining):
        body.store(words, context.ALLOWED, remaining + body.load(_BLOCK, BYTES))
    next, previous = body.load(_BLOCK, NEXT), body.load(_BLOCK, PREVIOUS)
    with body.when(previous.equals(0)):
        body.store(_CALL, context.LIVE, next)
    with body.otherwise():
        body.store(previous, NEXT, next)
    with body.when(next.differs(0)):
        body.store(next, PREVIOUS, previous)
    _count(body, context.COUNT, -1)
    _count(body, context.LIVE_BYTES, 0 - body.load(_BLOCK, BYTES))
    return body.function("delist", ("call", "block"), result=False)


def _shelve() -> ir.Function:
    """Move a live block to the bin of its size."""
    body = Body()
    body.call("delist", _CALL, _BLOCK)
    bytes = body.load(_BLOCK, BYTES)
    first = _first(body, _bin(body, bytes))
    body.store(_BLOCK, NEXT, body.load(first))
    body.store(first, 0, _BLOCK)
    _count(body, context.CACHED_BYTES, bytes)
    return body.function("shelve", ("call", "block"), result=False)


def _give_back(memory: Memory) -> ir.Function:
    """Free cached blocks until at most `most` bytes remain: bins from `start` down, then upwards.

    The largest are last: they are earlier results, and the system zeroes pages that replace them.
    """
    body, limit, start = Body(), parameter("most"), parameter("start")
    empty = body.variable(0)
    cached = context.CACHED_BYTES
    with body.loop(lambda: (body.load(_CALL, cached) > limit) & (empty() < 64)):
        first = _first(body, select(empty() <= start, start - empty(), empty()))
        block = body.load(first)
        with body.when(block.equals(0)):
            empty += 1
        with body.otherwise():
            _take_first(body, first, block)
            memory.give(body, block)
    return body.function("give_back", ("call", "most", "start"), result=False)


def _trim(memory: Memory) -> ir.Function:
    body = Body()
    body.call("give_back", _CALL, select(_BYTES > 0, _BYTES, -1), 63)  # -1: free empty blocks too
    return body.function(memory.function(TRIM), ("call", "bytes"), public=True, result=False)


def _leave(memory: Memory) -> ir.Function:
    body = Body()
    body.call("delist", _CALL, _BLOCK)
    body.give(body.load(_BLOCK, MEMORY))
    return body.function(memory.function(LEAVE), ("call", "block"), public=True)


def _clear(memory: Memory) -> ir.Function:
    body = Body()
    arena = body.load(_CALL, context.ARENA_BLOCK)
    body.store(_CALL, context.ARENA_BLOCK, 0)
    body.call(memory.function(DROP), _CALL, arena)
    cleared = body.variable(0)
    with body.loop(lambda: body.load(_CALL, context.LIVE).differs(0)):
        body.call("shelve", _CALL, body.load(_CALL, context.LIVE))
        cleared += 1
    body.give(cleared())
    return body.function(memory.function(CLEAR), ("call",), public=True)


# ---- reference counts --------------------------------------------------------------------------


def _hold(memory: Memory) -> ir.Function:
    body = Body()
    with body.when(_BLOCK.differs(0)):
        body.store(_BLOCK, REFERENCES, body.load(_BLOCK, REFERENCES) + 1)
    return body.function(memory.function(HOLD), ("block",), public=True, result=False)


def _drop(memory: Memory) -> ir.Function:
    body = Body()
    with body.when(_BLOCK.differs(0)):
        less = body.let(body.load(_BLOCK, REFERENCES) - 1)
        body.store(_BLOCK, REFERENCES, less)
        with body.when(less.equals(0)):
            body.call("shelve", _CALL, _BLOCK)
    return body.function(memory.function(DROP), ("call", "block"), public=True, result=False)


def _arena(memory: Memory) -> ir.Function:
    body = Body()
    block = body.load(_CALL, context.ARENA_BLOCK)
    with body.when(block.differs(0)):
        with body.when(body.load(block, BYTES) >= _BYTES):
            body.give(memory.data(body, block))
        body.store(_CALL, context.ARENA_BLOCK, 0)
        body.call(memory.function(DROP), _CALL, block)
    fresh = body.ask(memory.function(ALLOCATE), _CALL, _BYTES)
    body.store(_CALL, context.ARENA_BLOCK, fresh)
    with body.when(fresh.equals(0)):
        body.give(0)
    body.give(memory.data(body, fresh))
    return body.function(memory.function(ARENA), ("call", "bytes"), public=True)


def _grow(memory: Memory) -> ir.Function:
    names = ("call", "data", "owner", "room", "used", "bytes")
    _, data, owner, room_at, used, bytes = map(parameter, names)
    body = Body()
    room = body.load(room_at)
    with body.when(used < room):
        body.give(1)
    wider = body.let(room * 2 + 1)
    with body.when(overflows("mul", wider, bytes)):
        body.give(0)
    block = body.ask(memory.function(ALLOCATE), _CALL, wider * bytes)
    with body.when(block.equals(0)):
        body.give(0)
    old, before = body.load(data), body.load(owner)
    there = memory.data(body, block)
    memory.copy(body, there, old, used * bytes)
    body.call(memory.function(DROP), _CALL, before)
    body.store(data, 0, there)
    body.store(owner, 0, block)
    body.store(room_at, 0, wider)
    body.give(1)
    return body.function(memory.function(GROW), names, public=True)
