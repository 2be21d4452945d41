"""Promise: random graphs of branches, loops, calls and found sizes, in each other, give what the
evaluator of graphs gives, at every size, and leave nothing behind."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import boolean, float32, int64
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.nodes import Constant, Graph, Node
from anydim.compiler.graph.regions import (
    BRANCH,
    CALL,
    LOOP,
    SIZES,
    BranchRegion,
    CallRegion,
    LoopRegion,
    Scan,
    Sizes,
)
from anydim.lang.tree import TensorType
from anydim.runtime.region import RegionExecutable
from anydim.sizes import Box, Dim, Guard, as_size
from tests.unit.compiler.graph.region_graphs import kind

N, T = Dim("n", 0, 6), Dim("T", 0, 4)
ROW, ONE = kind(float32, "n"), kind(float32)
DEEPEST = 2


@dataclass
class Maker:
    """Writes one graph; `rows` and `ones` are the values that later nodes may take."""

    chance: random.Random
    depth: int
    name: str
    dims: list[Dim] = field(default_factory=lambda: [N, T])
    types: dict[str, TensorType] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    constraints: list[Any] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    ones: list[str] = field(default_factory=list)

    def value(self, of: TensorType, stem: str = "v") -> str:
        name = f"{stem}{len(self.types)}"
        self.types[name] = of
        if of == ROW:
            self.rows.append(name)
        elif of == ONE:
            self.ones.append(name)
        return name

    def input(self, of: TensorType) -> str:
        self.inputs.append(self.value(of, "i"))
        return self.inputs[-1]

    def node(
        self, operator: str, inputs: list[str], made: list[TensorType], **more: Any
    ) -> list[str]:
        outputs = [self.value(of) for of in made]
        source = f"{self.name}/{len(self.nodes)}"
        self.nodes.append(Node(operator, tuple(inputs), tuple(outputs), more, source))
        return outputs

    def graph(self, outputs: list[str]) -> Graph:
        box = Box(tuple(self.dims), tuple(self.constraints))
        return Graph(self.name, box, self.types, tuple(self.inputs), tuple(outputs),
                     self.constants, tuple(self.nodes))  # fmt: skip

    # ---- what a graph may hold -----------------------------------------------------------------

    def row(self) -> str:
        return self.chance.choice(self.rows)

    def one(self) -> str:
        return self.chance.choice(self.ones)

    def fill(self, count: int) -> None:
        kinds = [self.element, self.element, self.total, self.constant, self.spread, self.found]
        if self.depth < DEEPEST:
            kinds += [self.branch, self.loop, self.loop, self.call]
        for _ in range(count):
            self.chance.choice(kinds)()

    def element(self) -> None:
        operator = self.chance.choice(["add", "maximum", "tanh", "neg"])
        pick, of = self.chance.choice([(self.row, ROW), (self.one, ONE)])
        count = 1 if operator in ("tanh", "neg") else 2
        self.node(operator, [pick() for _ in range(count)], [of])

    def total(self) -> None:
        made = self.node("reduce_sum", [self.row()], [ONE], axes=(0,), keepdims=False)
        self.node("tanh", made, [ONE])

    def number(self, value: float) -> str:
        name = self.value(ONE, "c")
        self.constants[name] = Constant(np.array(value, np.float32))
        return name

    def constant(self) -> None:
        self.number(self.chance.randrange(-2, 3))

    def spread(self) -> None:
        self.node("add", [self.row(), self.one()], [ROW])

    def found(self) -> None:
        """The sum of the first k of a row, where k <= n is what a number rounds to.

        The number is moved away from whole ones, which rounding errors could fall off.
        """
        dim = Dim(f"k{self.name}{len(self.nodes)}", 0, 6)
        wide = self.node("mul", [self.one(), self.number(2.7)], [ONE])
        moved = self.node("add", [*wide, self.number(0.4)], [ONE])
        (count,) = self.node("cast", moved, [kind(int64)], to="int64")
        (size,) = self.node("abs", [count], [kind(int64)])
        (most,) = self.node("size_tensor", [], [kind(int64)], values=(N.size,), scalar=True)
        (least,) = self.node("minimum", [size, most], [kind(int64)])
        self.node(SIZES, [least], [], region=Sizes((dim.name,)))
        self.dims.append(dim)
        self.constraints.append(N.size - dim.size)
        (part,) = self.node("slice", [self.row()], [kind(float32, dim.name)], starts=(0,),
                            ends=(dim.size,), axes=(0,))  # fmt: skip
        self.node("reduce_sum", [part], [ONE], axes=(0,), keepdims=False)

    def held(self, inputs: list[TensorType], name: str) -> Maker:
        made = Maker(self.chance, self.depth + 1, f"{self.name}{name}{len(self.nodes)}")
        for of in (*inputs, ROW, ONE):
            made.input(of)
        return made

    def given(self) -> list[str]:
        return [self.row(), self.one()]

    def branch(self) -> None:
        arms = []
        for name in "ab":
            arm = self.held([], name)
            arm.fill(self.chance.randrange(3))
            arms.append(arm.graph([arm.row(), arm.one(), arm.one()]))
        if self.chance.random() < 0.3:
            guard = Guard(N.size, "<", T.size, "")
            record, condition = BranchRegion(*arms, guard), []
        else:
            record = BranchRegion(*arms)
            condition = self.node("less", [self.one(), self.one()], [kind(boolean)])
        self.node(BRANCH, [*condition, *self.given()], [ROW, ONE, ONE], region=record)

    def call(self) -> None:
        body = self.held([], "f")
        body.fill(self.chance.randrange(1, 4))
        made = body.graph([body.row(), body.one()])
        for _ in range(self.chance.randrange(1, 3)):
            self.node(CALL, self.given(), [ROW, ONE], region=CallRegion(made))

    def loop(self) -> None:
        """Carries a row, a number and a vector that grows; stacks what turns make."""
        counter, own = (Dim(f"{stem}{self.name}{len(self.nodes)}", 0) for stem in "ts")
        state = kind(float32, own.name)
        body = self.held([ROW, ONE, state], "l")
        body.dims += [counter, own]
        body.fill(self.chance.randrange(1, 5))
        conditional = self.chance.random() < 0.4
        results = []
        if conditional:
            results += body.node("less", [body.one(), body.one()], [kind(boolean)])
        grown = kind(float32, own.size + N.size)
        results += [body.row(), body.one(), *body.node("concat", [body.inputs[2], body.row()],
                                                       [grown], axis=0)]  # fmt: skip
        turns = self.chance.choice([T.size, as_size(3), T.size * 2])
        scans, stacks, slices = [], [], []
        for _ in range(self.chance.randrange(3)):
            of = self.chance.choice([ROW, ONE])
            slices.append(body.row() if of == ROW else body.one())
            extent, position = self.chance.choice(
                [(None, counter.size), (turns, counter.size), (turns, turns - 1 - counter.size),
                 (turns * 2, counter.size * 2)]
            )  # fmt: skip
            length = extent
            if extent is None:
                self.dims.append(Dim(f"u{self.name}{len(self.nodes)}{len(scans)}", 0))
                length = self.dims[-1].size
            scans.append(Scan(position, extent))
            stacks.append(TensorType(float32, (length, *of.shape)))
        end = Dim(f"e{self.name}{len(self.nodes)}", 0)
        self.dims.append(end)
        record = LoopRegion(body.graph([*results, *slices]), counter.name, turns, conditional, 3,
                      tuple(scans))  # fmt: skip
        condition = []
        if conditional:
            condition = self.node("less", [self.one(), self.one()], [kind(boolean)])
        given = [*condition, self.row(), self.one(), self.row(), *self.given()]
        made = self.node(LOOP, given, [ROW, ONE, kind(float32, end.name), *stacks], region=record)
        for name in made[2:]:
            axes = tuple(range(self.types[name].rank))
            self.node("reduce_sum", [name], [ONE], axes=axes, keepdims=False)


def random_graph(seed: int) -> Graph:
    maker = Maker(random.Random(seed), 0, "g")
    for of in (ROW, ROW, ONE, ONE, kind(float32, "T")):
        maker.input(of)
    maker.fill(6)
    outputs = [maker.row(), *maker.rows[-2:], *maker.ones[-4:]]
    return maker.graph(list(dict.fromkeys(outputs)))


@pytest.mark.sampled(most=7)
@pytest.mark.parametrize("seed", range(24))
def test_random_regions(seed: int) -> None:
    graph = random_graph(seed)
    model = ad.compile(graph, threads=1 + seed % 2)
    rng = np.random.default_rng(seed)
    for n, t in ((0, 0), (1, 1), (4, 2), (0, 3), (6, 4), (3, 0), (5, 3)):
        shapes = {"n": n, "T": t}
        inputs = {
            name: (rng.standard_normal([s.evaluate(shapes) for s in graph.types[name].shape]) * 2)
            .astype(np.float32)
            for name in graph.inputs
        }  # fmt: skip
        wanted = evaluate(graph, inputs)
        got = model(**inputs)
        for name, value in wanted.items():
            assert got[name].shape == value.shape
            np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-4)
    if isinstance(model.executable, RegionExecutable):
        assert model.executable.leaked == 0
