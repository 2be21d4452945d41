"""Promise: equal code of steps becomes one function, and does what it did."""

from __future__ import annotations

import random

import numpy as np
import pytest

import anydim as ad
from anydim.compiler.kernels import ir
from anydim.compiler.native import shared_steps
from anydim.compiler.native.body import Body
from anydim.compiler.native.host import host_of
from anydim.compiler.native.region_code import BLOCK
from anydim.compiler.native.shared_steps import share_steps
from tests.unit.compiler.native.region_cases import drawn
from tests.unit.compiler.native.test_region_programs import GRAPHS, native, regions, same
from tests.unit.compiler.targets.host_code import Both

SLOTS = 16


@pytest.fixture
def all_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_steps, "_FEWEST_NUMBERS", 1)
    monkeypatch.setattr(shared_steps, "_FEWEST_PARTS", 2)


def write_part(body: Body, first: int, failure: int, factor: int = 3) -> None:
    """slot[first + 1] = factor*slot[first] + first, repeatedly; it fails where that is large."""
    value = body.variable(body.load(BLOCK, first))
    with body.loop(lambda: value() < 100):
        value.set(value() * factor + first)
        with body.when(value().equals(0)):
            body.give(failure)
    body.store(BLOCK, first + 1, value() + failure)
    with body.when(value() > 10**6):
        body.give(failure + 7)


def shared(parts: list[tuple[int, ...]], name: str = "tested") -> tuple[Both, Both, int]:
    """The parts in a row and with functions, and how many functions there are."""
    body, ends = Body(), [0]
    for given in parts:
        write_part(body, *given)
        ends.append(body.here)
    body.give(0)
    functions, written = share_steps(body.written, ends, name)
    plain = body.function(name, ("block",), public=True)
    calling = Body()
    calling.take(written)
    return (
        Both(plain),
        Both(*functions, calling.function(name, ("block",), public=True)),
        len(functions),
    )


@pytest.mark.usefixtures("all_shared")
@pytest.mark.parametrize(
    "parts, functions",
    [
        ([(1, 5)], 0),
        ([(1, 5), (1, 5)], 1),
        ([(1, 5), (2, 6), (3, 7), (9, 1)], 1),
        ([(1, 5), (2, 6), (3, 7, 5)], 1),
        ([(1, 5), (2, 6, 5), (3, 7, 5), (4, 9), (8, 8, 2)], 2),
    ],
)
def test_shared_code_does_what_it_did(parts: list[tuple[int, ...]], functions: int) -> None:
    plain, calling, found = shared(parts)
    assert found == functions
    draw = random.Random(0)
    for _ in range(40):
        words = [draw.choice([0, -1, -9, 1, 99, 100, 10**7, draw.randrange(-30, 300)])] * 2
        words += [draw.randrange(-40, 300) for _ in range(SLOTS - 2)]
        assert calling(words) == plain(words)


@pytest.mark.usefixtures("all_shared")
def test_code_that_others_need_is_not_shared() -> None:
    body, ends = Body(), [0]
    values = []
    for slot in (3, 5):
        values.append(body.load(BLOCK, slot))
        body.store(BLOCK, slot, 1)
        ends.append(body.here)
    body.give(values[0] + values[1])
    assert share_steps(body.written, ends, "tested") == ((), body.written)


@pytest.mark.usefixtures("all_shared")
def test_kinds_of_code_that_are_unknown_are_not_shared() -> None:
    body, ends = Body(), [0]
    for slot in (3, 5):
        body.emit(ir.Atomic("add", BLOCK + 8 * slot, (ir.constant(1),)))
        ends.append(body.here)
    body.give(0)
    assert share_steps(body.written, ends, "tested") == ((), body.written)


@pytest.mark.usefixtures("all_shared")
@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("name", GRAPHS)
def test_programs_whose_steps_are_shared_give_what_the_graph_means(name: str) -> None:
    example = GRAPHS[name]()
    model = ad.compile(example.graph)
    for inputs, wanted in drawn(example, 20):
        same(model(**inputs), wanted)
    assert native(model).leaked == 0


def test_equal_layers_add_calls_alone() -> None:
    def steps(layers: int) -> int:
        g = ad.Builder("layers")
        x = g.input("x", ad.float32, (g.dim("n", 0, 64), 8))
        for _ in range(layers):
            x = x + g.sort(x * np.float32(2), axis=0)[0]
        g.output("y", x)
        code = host_of(regions(ad.compile(g))).code
        return sum(len(f.body) for lib in code if lib.name == "regions" for f in lib.functions)

    few, more, most = map(steps, (4, 6, 8))
    assert most - more == more - few < 25
