"""Promise: blocks never overlap, hold what was written, and take no more than was ever used."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from anydim.compiler.native.blocks import CLEAR, DROP, LEAVE, TRIM, blocks_code
from anydim.compiler.targets.targets import target
from anydim.runtime import context
from anydim.runtime.system_functions import memory_functions

POINTER, WORD = ctypes.c_void_p, ctypes.c_int64
NAMES = ("anydim_allocate", "anydim_hold", DROP, "anydim_arena", LEAVE, CLEAR, TRIM, "anydim_grow")
TYPES: dict[str, Callable[[int], Callable[..., int]]] = {
    "anydim_allocate": ctypes.CFUNCTYPE(POINTER, POINTER, WORD),
    "anydim_hold": ctypes.CFUNCTYPE(None, POINTER),
    DROP: ctypes.CFUNCTYPE(None, POINTER, POINTER),
    "anydim_arena": ctypes.CFUNCTYPE(POINTER, POINTER, WORD),
    LEAVE: ctypes.CFUNCTYPE(POINTER, POINTER, POINTER),
    CLEAR: ctypes.CFUNCTYPE(WORD, POINTER),
    TRIM: ctypes.CFUNCTYPE(None, POINTER, WORD),
    "anydim_grow": ctypes.CFUNCTYPE(ctypes.c_bool, POINTER, POINTER, POINTER, POINTER, WORD, WORD),
}


@dataclass
class Call:
    """The words of a call, and the functions on them."""

    words: ctypes.Array[ctypes.c_int64]
    functions: dict[str, Callable[..., int]]

    def __call__(self, name: str, *arguments: int) -> int:
        return self.functions[name](self.address, *arguments)

    def hold(self, block: int) -> None:
        self.functions["anydim_hold"](block)

    @property
    def address(self) -> int:
        return ctypes.addressof(self.words)

    @property
    def used(self) -> tuple[int, int, int]:
        """Blocks in use, their bytes, and bytes that are kept."""
        words = (context.COUNT, context.LIVE_BYTES, context.CACHED_BYTES)
        return tuple(self.words[word] for word in words)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def functions() -> Iterator[dict[str, Callable[..., int]]]:
    here = target("llvm")
    code = here.compile(here.sources([blocks_code()], here.processor), 1).code
    assert here.load is not None
    with here.load(code.values(), NAMES) as loaded:  # type: ignore[attr-defined]
        yield {name: TYPES[name](loaded.address(name)) for name in NAMES}


@pytest.fixture
def call(functions: dict[str, Callable[..., int]]) -> Iterator[Call]:
    made = Call((ctypes.c_int64 * context.WORDS)(), functions)
    made.words[context.MALLOC : context.FILL + 1] = list(memory_functions())
    yield made
    made(CLEAR)
    made(TRIM, 0)
    assert made.used == (0, 0, 0)


def data_of(block: int) -> int:
    return block + context.HEAD


@pytest.mark.parametrize("seed", range(4))
def test_random_blocks_keep_what_they_hold(call: Call, seed: int) -> None:
    rng = random.Random(seed)
    held: dict[int, tuple[int, int, int]] = {}  # block -> bytes, mark, holders
    for step in range(3000):
        if held and rng.random() < 0.48:
            block = rng.choice(list(held))
            bytes, mark, holders = held[block]
            assert ctypes.string_at(data_of(block), bytes) == bytes_of(mark, bytes)
            call(DROP, block)
            if holders == 1:
                del held[block]
            else:
                held[block] = bytes, mark, holders - 1
        elif held and rng.random() < 0.2:
            block = rng.choice(list(held))
            call.hold(block)
            held[block] = (*held[block][:2], held[block][2] + 1)
        else:
            bytes = rng.choice((0, 1, 63, 64, 65, 1000, 4096, rng.randrange(20000)))
            block = call("anydim_allocate", bytes)
            assert data_of(block) % 64 == 0
            assert block not in held
            ctypes.memset(data_of(block), step % 251, bytes)
            held[block] = bytes, step % 251, 1
        count, live, cached = call.used
        assert count == len(held)
        assert live >= sum(bytes for bytes, _, _ in held.values())
        assert live + cached <= call.words[context.LIMIT] == call.words[context.PEAK]
    assert call(CLEAR) == len(held)


def bytes_of(mark: int, count: int) -> bytes:
    return bytes([mark]) * count


def test_a_block_that_nobody_holds_serves_again(call: Call) -> None:
    first = call("anydim_allocate", 1000)
    call(DROP, first)
    assert call("anydim_allocate", 960) == first
    assert call.used == (1, 1024, 0)


def test_sizes_that_grow_leave_little_behind(call: Call) -> None:
    """A state that is larger in every turn: two are alive at a time, and no more is ever held."""
    state = call("anydim_allocate", 64)
    for turn in range(2, 2000):
        larger = call("anydim_allocate", 64 * turn)
        call(DROP, state)
        state = larger
        count, live, cached = call.used
        assert count == 1 and live + cached <= 64 * (2 * turn - 1)


@pytest.mark.parametrize("bytes", [-1, 2**62, 2**63 - 1])
def test_what_cannot_be_had_is_null(call: Call, bytes: int) -> None:
    assert call("anydim_allocate", bytes) is None
    assert call("anydim_arena", bytes) is None
    assert call.used == (0, 0, 0)


def test_when_the_system_has_nothing_left_kept_blocks_go_first(call: Call) -> None:
    left = [2]
    malloc = ctypes.CFUNCTYPE(POINTER, WORD)(memory_functions()[0])

    def scarce(bytes: int) -> int | None:
        left[0] -= 1
        return malloc(bytes) if left[0] >= 0 else None

    function = ctypes.CFUNCTYPE(POINTER, WORD)(scarce)
    call.words[context.MALLOC] = ctypes.cast(function, POINTER).value or 0
    blocks = [call("anydim_allocate", 5000) for _ in range(2)]
    assert call("anydim_allocate", 64) is None
    assert call.used[0] == 2
    call(DROP, blocks[0])
    left[0] = 1
    assert call("anydim_allocate", 100) is not None
    call(DROP, blocks[1])


def test_the_arena_grows_and_stays(call: Call) -> None:
    small = call("anydim_arena", 100)
    assert call("anydim_arena", 90) == small
    large = call("anydim_arena", 100_000)
    assert large % 64 == 0 and call.used[0] == 1
    assert call("anydim_arena", 100_000) == large
    assert call(CLEAR) == 0


def test_what_leaves_is_nobody_elses(call: Call) -> None:
    block = call("anydim_allocate", 100)
    memory = call(LEAVE, block)
    assert call.used == (0, 0, 0)
    ctypes.CFUNCTYPE(None, POINTER)(memory_functions()[1])(memory)


@pytest.mark.parametrize("bytes", [0, 8, 1000])
def test_a_stack_grows_with_what_it_holds(call: Call, bytes: int) -> None:
    cells = (ctypes.c_int64 * 3)()
    at = ctypes.addressof(cells)
    for used in range(200):
        assert call("anydim_grow", at, at + 8, at + 16, used, bytes)
        assert cells[2] > used
        for item in (0, used - 1):
            if 0 <= item < used:
                assert ctypes.string_at(cells[0] + item * bytes, bytes) == bytes_of(item, bytes)
        ctypes.memset(cells[0] + used * bytes, used, bytes)
    assert call.used[0] == 1
    assert not call("anydim_grow", at, at + 8, at + 16, cells[2], 2**60)
