"""Promise: no launch of a program writes outside of its operands and its scratch.

`tests/guards.py` watches the launches; the law fails for layouts and sizes that are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy
import pytest

import anydim as ad
from anydim.compiler.passes import assemble
from anydim.compiler.passes.memory import ArenaPlan, Stacked
from anydim.runtime.program.segment import ALIGNMENT, Buffer
from anydim.sizes import as_size
from tests.golden.files import CASES
from tests.golden.record import compiled, inputs
from tests.guards import Trespass, Watched, _Launch, telling

# launches of the evaluator are calls of Python, and batches of rows have feeds of their own
NAMES = [name for name, case in CASES.items() if not (case.on_tiles or case.ragged)]


@pytest.mark.sampled(most=24)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_launches_write_where_they_may(name: str, threads: int) -> None:
    case = CASES[name]
    with telling():
        model = compiled(case, threads)
    watched = Watched(model)
    for sizes in case.sizes:
        given = inputs(case, model, sizes)
        plain, found = model(**given), watched(given)
        for key, array in found.items():  # equal, though dead bytes have other contents
            assert array.tobytes() == numpy.asarray(plain[key]).tobytes(), (sizes, key)
    assert watched.launches


def chain() -> ad.Builder:
    """Products whose results wait for later ones, in memory that others had before."""
    random = numpy.random.default_rng(0)
    g = ad.Builder("chain")
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 48))
    for _ in range(3):
        w, v = (g.constant(random.standard_normal((48, 48), numpy.float32)) for _ in range(2))
        y = g.softmax(g.matmul(x, w), axis=-1)
        scores = g.softmax(g.matmul(y, g.transpose(x, perm=(1, 0))), axis=-1)
        x = g.add(g.matmul(g.matmul(scores, y), v), x)
    g.output("y", x)
    return g


def overlapping(self: Any, lifetimes: Any, *rest: Any) -> ArenaPlan:
    """All values in one place."""
    most = sum((value.bytes for value in lifetimes), as_size(0))
    return ArenaPlan({value.name: as_size(0) for value in lifetimes}, most)


def forgetting(real: Callable[..., Any]) -> Callable[..., ArenaPlan]:
    """Values that are given up before their last reader."""

    def run(self: Any, lifetimes: Any, *rest: Any) -> ArenaPlan:
        short = [replace(v, last=max(v.first, v.last - 1)) for v in lifetimes]
        plan: ArenaPlan = real(self, short, *rest)
        return plan

    return run


def narrow(real: Callable[..., Any]) -> Callable[..., Iterator[Buffer]]:
    """Values of the arena with one element less than their kernels write."""

    def arena(*given: Any) -> Iterator[Buffer]:
        for buffer in real(*given):
            yield replace(buffer, bytes=buffer.bytes - 4) if buffer.dtype else buffer

    return arena


def one_line(item: Any, box: Any, gap: int) -> Any:
    """A cache line of scratch for launches that need more."""
    return as_size(0 if item.launch.scratch == 0 else ALIGNMENT)


def roomy(real: Callable[..., Any]) -> Callable[..., ArenaPlan]:
    """Arenas with memory behind them, where faults do no harm."""

    def run(*given: Any) -> ArenaPlan:
        plan: ArenaPlan = real(*given)
        return replace(plan, bytes=plan.bytes + (1 << 20))

    return run


MUTANTS = {
    "overlapping values": {"run": overlapping},
    "lives that end too early": {"run": forgetting(Stacked.run)},
    "an element less": {"_arena": narrow(assemble._arena)},
    "too little scratch": {"_scratch": one_line, "run": roomy(Stacked.run)},
}


@pytest.mark.parametrize("fault", MUTANTS)
def test_a_wrong_layout_is_found(fault: str) -> None:
    with telling(), ExitStack() as patches:
        for name, mutant in MUTANTS[fault].items():
            where = Stacked if name == "run" else assemble
            patches.enter_context(mock.patch.object(where, name, mutant))
        model = ad.compile(chain(), threads=1)
    given = {"x": numpy.random.default_rng(1).standard_normal((50, 48), numpy.float32)}
    with pytest.raises(Trespass, match=r"wrote [0-9]+ bytes of the arena|overlap in the arena"):
        Watched(model)(given)


def test_bytes_without_a_live_value_have_a_pattern() -> None:
    with telling():
        model = ad.compile(chain(), threads=1)
    given = {"x": numpy.ones((50, 48), numpy.float32)}
    with mock.patch.object(_Launch, "_live", lambda self: iter(())):  # so all bytes of the arena
        assert Watched(model)(given)["y"].tobytes() != model(**given)["y"].tobytes()
