"""Promise: what host code has beyond kernels does the same compiled and evaluated."""

from __future__ import annotations

import ctypes
import itertools
import threading

import numpy
import pytest

from anydim.base.dtypes import boolean, float32, int8, int32, uint64
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import apply, constant, select
from anydim.compiler.kernels.ir_text import print_function
from anydim.compiler.native.body import Body, as_int64, overflows, parameter
from anydim.compiler.targets.evaluated.evaluator import call
from anydim.compiler.targets.evaluated.space import Space
from anydim.compiler.targets.llvm.host import this_machine
from anydim.compiler.targets.llvm.render import render
from tests.unit.compiler.targets.host_code import Both, callable_at, compiled

BLOCK, N = parameter("block"), parameter("n")
EDGES = (0, 1, -1, 2, 7, -8, 2**31, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1)


def function(body: Body, *parameters: str, quick: bool = False) -> ir.Function:
    return body.function("tested", ("block", *parameters), public=True, quick=quick)


@pytest.mark.parametrize("quick", [False, True])
def test_words_are_read_and_written_at_addresses(quick: bool) -> None:
    body = Body()
    first = body.load(BLOCK)
    body.store(BLOCK, 0, body.load(BLOCK, 1))
    body.store(BLOCK, N, first * 10)
    body.store(BLOCK + 8 * N, 1, first)
    body.give(body.load(BLOCK, N - 1))
    run = Both(function(body, "n", quick=quick))
    assert run([3, 4, 5, 6], 2) == (4, [4, 4, 30, 3])
    assert run([3, 4, 5, 6], 1) == (4, [4, 30, 3, 6])


def test_smaller_elements() -> None:
    body = Body()
    for dtype, value in ((int8, -3), (int32, -70_000), (float32, 0.5)):
        before = body.load(BLOCK, 1, dtype)
        body.store(BLOCK, 1, constant(value, dtype))
        body.store(BLOCK, 8 // dtype.bytes, before)
    flag = body.load(BLOCK, 0, boolean)
    body.store(BLOCK, 7, ~flag)
    body.give(as_int64(flag))
    run = Both(function(body))
    assert run([0x0100, 2])[0] == 0
    assert run([0x0107, 2])[0] == 1


@pytest.mark.parametrize("quick", [False, True])
def test_an_early_return_ends_its_branch(quick: bool) -> None:
    body = Body()
    kept = body.variable(5)
    with body.when(N < 0):
        body.give(-1)
    with body.when(N < 10):
        kept.set(6)
        with body.when(N.equals(3)):
            body.store(BLOCK, 0, 33)
            body.give(3)
        with body.otherwise():
            kept += N
    with body.when(N > 100):
        body.give(kept())
    with body.otherwise():
        with body.when(N > 50):
            body.give(50)
        with body.otherwise():
            body.give(kept() + 1)
    run = Both(function(body, "n", quick=quick))
    results = {n: run([0], n) for n in (-1, 0, 3, 9, 10, 50, 51, 100, 101)}
    assert results == {
        -1: (-1, [0]), 0: (7, [0]), 3: (3, [33]), 9: (16, [0]), 10: (6, [0]), 50: (6, [0]),
        51: (50, [0]), 100: (50, [0]), 101: (5, [0]),
    }  # fmt: skip


def test_a_return_leaves_a_loop() -> None:
    """The place of the first n among the words, looked for by a loop of either kind."""
    body = Body()
    with body.range(0, 3) as i, body.when(body.load(BLOCK, i).equals(N)):
        body.give(i)
    place = body.variable(3)
    with body.loop(lambda: place() < 6):
        with body.when(body.load(BLOCK, place()).equals(N)):
            body.give(place() * 100)
        place += 1
    body.give(-1)
    run = Both(function(body, "n"))
    for at in range(6):
        assert run([5, 6, 7, 8, 9, 10], 5 + at)[0] == (at if at < 3 else 100 * at)
    assert run([5, 6, 7, 8, 9, 10], 99)[0] == -1


def test_steps_behind_a_return_are_refused() -> None:
    body = Body()
    body.give(1)
    body.store(BLOCK, 0, 1)
    with pytest.raises(InternalError, match="after a return on all paths"):
        compiled(ir.Library("tested", (function(body),)))
    body = Body()
    with body.when(N > 0):
        body.give(1)
    with pytest.raises(InternalError, match="ends without a result"):
        compiled(ir.Library("tested", (function(body, "n"),)))
    with pytest.raises(InternalError, match="ends without a result"):
        call((function(body, "n"),), "tested", [0, 0], Space())


def test_sums_and_products_that_overflow() -> None:
    body = Body()
    body.store(BLOCK, 0, as_int64(overflows("add", N, parameter("m"))))
    body.store(BLOCK, 1, as_int64(overflows("mul", N, parameter("m"))))
    body.store(BLOCK, 2, N + parameter("m"))
    body.give(N * parameter("m"))
    run = Both(function(body, "n", "m"))
    for a, b in itertools.product(EDGES, EDGES):
        product, words = run([0] * 3, a, b)
        assert words[0] == (not -(2**63) <= a + b < 2**63)
        assert words[1] == (not -(2**63) <= a * b < 2**63)
        assert (words[2] - a - b) % 2**64 == 0 and (product - a * b) % 2**64 == 0


def test_leading_zeros() -> None:
    body = Body()
    body.give(apply("leading_zeros", N.bits(uint64)).bits(N.dtype))
    run = Both(function(body, "n"))
    for n in EDGES:
        assert run([], n)[0] == 64 - (n % 2**64).bit_length()


def test_calls_with_results_and_through_addresses() -> None:
    """A sum by recursion; a function of this module, of another one, and at an address."""
    body = Body()
    with body.when(N.equals(0)):
        body.give(0)
    body.give(N + body.ask("sum", BLOCK, N - 1))
    total = body.function("sum", ("block", "n"))
    body = Body()
    body.call("other", BLOCK)
    given = body.ask(body.load(BLOCK, 1), body.load(BLOCK, 0), 5)
    body.call(body.load(BLOCK, 2))
    body.give(given + body.ask("sum", BLOCK, N))
    main = function(body, "n")
    body = Body()
    body.store(parameter("block"), 0, 40)
    other = body.function("other", ("block",), public=True, result=False)

    seen = []
    count = ctypes.CFUNCTYPE(None)(lambda: seen.append(1))
    plus = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 2)(lambda a, b: a + b)
    loaded = compiled(ir.Library("one", (total, main)), ir.Library("two", (other,)))
    functions = [ctypes.cast(f, ctypes.c_void_p).value for f in (plus, count)]
    block = numpy.array([0, *functions], numpy.int64)
    assert callable_at(loaded.address("tested"), 2)(block.ctypes.data, 10) == 45 + 55
    assert seen == [1]

    space = Space()
    words = numpy.array(
        [0, space.function(lambda a, b: a + b), space.function(lambda: seen.append(2))]
    )

    def write(at: int) -> None:
        space.bytes(at, 8).view(numpy.int64)[0] = 40

    meant = call((total, main), "tested", [space.address_of(words), 10], space, {"other": write})
    assert meant == 100 and seen == [1, 2]
    with pytest.raises(InternalError, match="is not a function"):
        words[1] = 12345
        call((total, main), "tested", [space.address_of(words), 10], space, {"other": write})


def test_the_address_of_a_local_array() -> None:
    body = Body()
    words = body.array(4)
    body.call("fill", words, N)
    body.give(body.load(words, 0) + body.load(words, 3))
    main = function(body, "n")
    body = Body()
    with body.range(0, 4) as i:
        body.store(parameter("words"), i, parameter("n") + i)
    body.leave()
    fill = body.function("fill", ("words", "n"), result=False)
    assert Both(fill, main)([], 20)[0] == 43


@pytest.mark.parametrize("quick", [False, True])
def test_atomic_steps(quick: bool) -> None:
    body = Body()
    body.publish(BLOCK + 8, N)
    seen = [
        body.atomic("load", BLOCK + 8),
        body.atomic("add", BLOCK, 5),
        body.atomic("exchange_if", BLOCK + 16, 7, N),
        body.atomic("exchange_if", BLOCK + 16, N + 1, 9),
    ]
    body.emit(ir.Fence())
    body.emit(ir.Pause())
    for word, value in enumerate(seen, 3):
        body.store(BLOCK, word, value)
    body.give(0)
    run = Both(function(body, "n", quick=quick))
    assert run([1, 2, 7, 0, 0, 0, 0], 50)[1] == [6, 50, 50, 50, 1, 7, 50]
    assert run([1, 2, 8, 0, 0, 0, 0], 7)[1] == [6, 7, 9, 7, 1, 8, 8]


def test_threads_lose_no_atomic_step() -> None:
    """Two counters that eight threads move, one by additions, one by exchanges."""
    body = Body()
    with body.range(0, N):
        body.atomic("add", BLOCK, 1)
        seen = body.variable(body.atomic("load", BLOCK + 8))
        tried = body.variable(body.atomic("exchange_if", BLOCK + 8, seen(), seen() + 1))
        with body.loop(lambda: tried().differs(seen())):
            body.emit(ir.Pause())
            seen.set(tried())
            tried.set(body.atomic("exchange_if", BLOCK + 8, seen(), seen() + 1))
    body.give(0)
    loaded = compiled(ir.Library("tested", (function(body, "n"),)))
    block = numpy.zeros(2, numpy.int64)
    run = callable_at(loaded.address("tested"), 2)
    threads = [threading.Thread(target=run, args=(block.ctypes.data, 20_000)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert block.tolist() == [160_000, 160_000]


def test_stray_addresses_are_refused() -> None:
    body = Body()
    body.give(body.load(BLOCK, N))
    space, words = Space(), numpy.arange(4)
    for n in (-1, 4, 2**40):
        with pytest.raises(InternalError, match="accesses unmapped memory"):
            call((function(body, "n"),), "tested", [space.address_of(words), n], space)
    with pytest.raises(InternalError, match="misaligned access"):
        call((function(body, "n"),), "tested", [space.address_of(words) + 4, 0], space)


def test_host_code_as_text() -> None:
    body = Body()
    with body.when(body.load(BLOCK, 2) < N):
        body.give(body.ask("other", N))
    body.store(BLOCK, 3, select(N.equals(0), N, 4))
    body.store(BLOCK, 1, constant(1, int8))
    body.call(body.load(BLOCK, 1), N)
    body.atomic("add", BLOCK, N)
    body.publish(BLOCK, 1)
    body.emit(ir.Fence())
    body.emit(ir.Pause())
    body.give(0)
    assert print_function(function(body, "n")).splitlines() == [
        "function tested(block, n) -> int64",
        "  v1 = block.at[2]",
        "  if v1 < n",
        "    v2 = other(n)",
        "    return v2",
        "  block.at[3] = select(n == 0, n, 4)",
        "  block.at.int8[1] = 1.int8",
        "  v3 = block.at[1]",
        "  call v3(n)",
        "  v4 = atomic add(block, n)",
        "  atomic store(block, 1)",
        "  fence",
        "  pause",
        "  return 0",
    ]


def test_quick_functions_are_marked() -> None:
    body = Body()
    body.give(0)
    quick = render(ir.Library("l", (function(body, quick=True),)), this_machine())
    plain = render(ir.Library("l", (function(body),)), this_machine())
    assert "optnone" in quick and "optnone" not in plain
