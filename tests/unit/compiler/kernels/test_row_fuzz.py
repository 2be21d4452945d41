"""Random groups of elements, scalars and reductions: what a template takes, it computes right."""

from __future__ import annotations

import random

import numpy as np
import pytest

from anydim.base.dtypes import float64, int64
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.rows import pointwise
from anydim.compiler.kernels.rows import row_template as rows
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.tree import (
    Apply,
    Axis,
    Cast,
    Expr,
    Group,
    Index,
    Literal,
    Read,
    SizeTerm,
    Statement,
    Tensor,
    TensorType,
)
from anydim.sizes import Box, Dim, Size, as_size
from tests.unit.compiler.kernels.launching import Prepared

DIMS = {name: Size.symbol(name) for name in ("R", "S", "C")}
BOX = Box.of(*(Dim(name, 0, 4096) for name in DIMS))
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 17)


class Maker:
    """Makes one random group."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        chosen = self.random.sample(sorted(DIMS), self.random.randint(1, 3))
        self.axes = [Axis(f"i{n}", DIMS[name]) for n, name in enumerate(chosen)]
        if self.random.random() < 0.2:
            self.axes[0] = Axis("i0", as_size(self.random.choice((1, 3, 8))))
        self.row = set(self.random.sample(self.axes, self.random.randint(1, len(self.axes))))
        self.inputs: dict[str, Tensor] = {}
        self.made: dict[str, tuple[Axis, ...]] = {}

    def group(self) -> Group:
        statements = [self.statement(n) for n in range(self.random.randint(1, 5))]
        last = statements[-1].target
        outputs = [s.target for s in statements if s.target == last or self.random.random() < 0.3]
        tensors = {s.target: Tensor(s.target, TensorType(float64, s.shape)) for s in statements}
        return Group(
            inputs=tuple(self.inputs.values()),
            outputs=tuple(tensors[name] for name in outputs),
            statements=tuple(statements),
            temporaries=tuple(t for name, t in tensors.items() if name not in outputs),
        )

    def statement(self, number: int) -> Statement:
        outer = [axis for axis in self.axes if axis not in self.row]
        kind = self.random.choice(("element", "element", "scalar", "reduction"))
        axes = list(self.axes) if kind == "element" else outer
        if self.random.random() < 0.2:
            self.random.shuffle(axes)
        inside = self.axes if kind != "scalar" else outer
        body = self.expr(list(inside), self.random.randint(1, 4))
        target = f"v{number}"
        self.made[target] = tuple(axes)
        if kind != "reduction":
            return Statement(target, tuple(axes), body)
        combine = self.random.choice(("add", "add", "max", "min"))
        reduced = tuple(axis for axis in self.axes if axis in self.row)
        return Statement(target, tuple(axes), body, combine, reduced)

    def expr(self, axes: list[Axis], depth: int) -> Expr:
        if depth == 0:
            return self.leaf(axes)
        kind = self.random.random()
        left, right = self.expr(axes, depth - 1), self.expr(axes, depth - 1)
        if kind < 0.6:
            return Apply(self.random.choice(("add", "sub", "mul", "max", "min")), (left, right))
        if kind < 0.75:
            return Apply(self.random.choice(("tanh", "abs", "neg")), (left,))
        if kind < 0.85:
            bounded = Apply("add", (Apply("abs", (right,)), Literal(1.0, float64)))
            return Apply("div", (left, bounded))
        test = Apply(self.random.choice(("less", "greater_equal")), (left, right))
        return Apply("select", (test, right, self.leaf(axes)))

    def leaf(self, axes: list[Axis]) -> Expr:
        kind = self.random.random()
        names = {axis.name for axis in axes}
        own = [n for n, written in self.made.items() if {a.name for a in written} <= names]
        if kind < 0.35 and own:
            name = self.random.choice(own)
            return Read(name, tuple(Index(axis.name) for axis in self.made[name]))
        if kind < 0.45:
            return Literal(self.random.choice((0.5, -2.0, 3.0)), float64)
        if kind < 0.55 and axes:
            axis = self.random.choice(axes)
            term = Index(axis.name) if self.random.random() < 0.5 else SizeTerm(axis.extent)
            return Apply("mul", (Cast(float64, term), Literal(0.125, float64)))
        return self.read(axes)

    def read(self, axes: list[Axis]) -> Expr:
        """A read of an input: some of the axes, in some order, at times shifted and guarded."""
        picked = self.random.sample(axes, self.random.randint(0, len(axes)))
        if self.random.random() < 0.7:
            picked.sort(key=axes.index)
        shifted = self.random.random() < 0.2 and picked
        name = "x" + "".join(axis.name for axis in picked)
        shape = tuple(axis.extent for axis in picked)
        self.inputs[name] = Tensor(name, TensorType(float64, shape))
        indices: list[Expr] = [Index(axis.name) for axis in picked]
        if not shifted:
            return Read(name, tuple(indices))
        place = self.random.randrange(len(indices))
        step = self.random.choice((-1, 2))
        indices[place] = Apply("add", (indices[place], Literal(step, int64)))
        return Read(name, tuple(indices), default=Literal(0.25, float64))


# all that the others cover of the compiler
COVERING = (11, 12, 16, 17, 20, 27, 31, 33, 34, 50, 51, 53, 58, 66, 80, 81, 82, 88, 90, 91, 95)


@pytest.mark.sampled(only=[f"-{seed}" for seed in COVERING], most=9)
@pytest.mark.parametrize("seed", range(100))
def test_random_group(seed: int) -> None:
    group = Maker(seed).group()
    machine = Machine((16, 32, 64)[seed % 3], 16)
    try:
        made = Prepared(group, (rows.TEMPLATE, pointwise.TEMPLATE), BOX, machine)
    except AssertionError:
        assert len(group.statements) > 1
        return
    chance = random.Random(seed)
    for _ in range(4):
        env = {name: chance.choice(SIZES) for name in DIMS}
        numbers = np.random.default_rng(seed)
        arrays = [
            numbers.standard_normal([size.evaluate(env) for size in tensor.type.shape])
            for tensor in group.inputs
        ]
        tensors = dict(zip((tensor.name for tensor in group.inputs), arrays))
        expected = evaluate(group, tensors, env)
        found = made.outputs(arrays, env, parts=1 + seed % 2, compiled=seed % 4 != 0)
        for tensor, result in zip(group.outputs, found):
            np.testing.assert_allclose(result, expected[tensor.name], rtol=1e-9, atol=1e-9)
