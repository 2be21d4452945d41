"""Promise: compiled loop IR does what the evaluator does, bit by bit, in random programs."""

from __future__ import annotations

import random

import numpy
import pytest

from anydim.base.dtypes import DType, boolean, float32, float64, int32, int64
from anydim.compiler.kernels import ir
from anydim.compiler.targets.evaluated import evaluator
from anydim.compiler.targets.run import build, call, launch
from tests.unit.compiler.targets.programs import START, STOP, index, kernel, loop, number, op

pytestmark = pytest.mark.usefixtures("kernel_target")

LENGTH = 64  # elements of every buffer


class Program:
    """Grows a random kernel: what may be used where is tracked as it is written."""

    def __init__(self, seed: int, dtype: DType, lanes: int) -> None:
        self.random = random.Random(seed)
        self.kind = ir.Type(dtype, lanes)
        self.count = 0
        self.depth = 0

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def kernel(self) -> ir.Kernel:
        dtype = self.kind.dtype
        operands = [ir.Operand("x", dtype), ir.Operand("y", dtype, True)]
        return kernel(operands, self.block([index("n")], [], []), ["n"])

    def block(
        self, indices: list[ir.Var], names: list[ir.Var], registers: list[str]
    ) -> tuple[ir.Step, ...]:
        """Some steps; lists say which index values, values and registers are in reach."""
        indices, names, registers = list(indices), list(names), list(registers)
        steps: list[ir.Step] = []
        for _ in range(self.random.randint(2, 5)):
            steps += self.step(indices, names, registers)
        if registers:
            value = ir.Get(self.kind, self.random.choice(registers))
            steps.append(ir.Store("y", self.offset(indices), value))
        return tuple(steps)

    def step(
        self, indices: list[ir.Var], names: list[ir.Var], registers: list[str]
    ) -> list[ir.Step]:
        value = self.value(indices, names, registers, 3)
        choice = self.random.randint(0, 7 if self.depth < 3 else 4)
        if choice == 0:
            name = self.fresh("v")
            names.append(ir.Var(self.kind, name))
            return [ir.Let(name, value)]
        if choice == 1:
            registers.append(self.fresh("r"))
            return [ir.Declare(registers[-1], value)]
        if choice in (2, 3) and registers:
            return [ir.Assign(self.random.choice(registers), value)]
        if choice == 5:
            return [self.loop(indices, names, registers)]
        if choice == 6:
            flag = op("less", self.offset(indices), self.offset(indices))
            branches = [self.inner(indices, names, registers) for _ in range(2)]
            return [ir.If(flag, branches[0], branches[1] if self.random.random() < 0.5 else ())]
        if choice == 7:
            which = op("mod", self.random.choice(indices), number(3))
            cases = tuple((n, self.inner(indices, names, registers)) for n in (0, 2))
            return [ir.Switch(which, cases)]
        mask = self.mask(indices) if self.random.random() < 0.4 else None
        return [ir.Store("y", self.offset(indices), value, mask)]

    def loop(self, indices: list[ir.Var], names: list[ir.Var], registers: list[str]) -> ir.For:
        name = self.fresh("i")
        start = number(self.random.randint(0, 2))
        stop = self.random.choice([number(self.random.randint(0, 4)), index("n")])
        body = self.inner([*indices, index(name)], names, registers)
        return loop(name, start, stop, *body, step=self.random.randint(1, 2))

    def inner(
        self, indices: list[ir.Var], names: list[ir.Var], registers: list[str]
    ) -> tuple[ir.Step, ...]:
        self.depth += 1
        steps = self.block(indices, names, registers)
        self.depth -= 1
        return steps

    def offset(self, indices: list[ir.Var]) -> ir.Value:
        """An index expression, brought into the buffer."""
        total: ir.Value = number(self.random.randint(0, 9))
        for _ in range(self.random.randint(0, 3)):
            term: ir.Value = self.random.choice(indices)
            if self.random.random() < 0.6:
                term = op("mul", term, number(self.random.randint(1, 7)))
            if self.random.random() < 0.2:
                term = op("mul", op("add", term, number(2)), number(3))
            total = op(self.random.choice(["add", "add", "sub"]), total, term)
        if self.random.random() < 0.5 and total == number(0):
            return total
        return op("mod", total, number(LENGTH - self.kind.lanes + 1))

    def mask(self, indices: list[ir.Var]) -> ir.Value:
        lanes = ir.Type(int64, self.kind.lanes)
        limit = ir.Splat(lanes, op("mod", self.random.choice(indices), number(5)))
        return op("less", ir.Iota(lanes), limit)

    def value(
        self, indices: list[ir.Var], names: list[ir.Var], registers: list[str], depth: int
    ) -> ir.Value:
        leaf = depth == 0 or self.random.random() < 0.25
        if leaf:
            return self.leaf(indices, names, registers)
        parts = [self.value(indices, names, registers, depth - 1) for _ in range(2)]
        name = self.random.choice(["add", "sub", "mul", "min", "max", "neg", "abs", "select"])
        if name == "select":
            return op("select", op("less", *parts), *parts)
        if name in ("neg", "abs"):
            return op(name, parts[0])
        if self.kind.lanes > 1 and self.random.random() < 0.2:
            lanes = [self.random.randrange(2 * self.kind.lanes) for _ in range(self.kind.lanes)]
            return ir.Shuffle(self.kind, *parts, tuple(lanes))
        return op(name, *parts)

    def leaf(self, indices: list[ir.Var], names: list[ir.Var], registers: list[str]) -> ir.Value:
        scalar = ir.Type(self.kind.dtype)
        options: list[ir.Value] = [
            ir.Const(self.kind, self.random.randint(-3, 3)),
            ir.Load(self.kind, "x", self.offset(indices)),
            ir.Load(self.kind, "x", self.offset(indices), self.mask(indices)),
            ir.Splat(self.kind, ir.Convert(scalar, self.random.choice(indices))),
            ir.Splat(self.kind, ir.Load(scalar, "x", self.offset(indices))),
            *self.random.sample(names, min(len(names), 2)),
            *(ir.Get(self.kind, name) for name in registers[-2:]),
        ]
        if self.kind.lanes > 1:
            inner = self.random.choice([ir.Load(self.kind, "x", self.offset(indices)), options[0]])
            options += [
                ir.Gather(self.kind, "x", self.offsets(indices), self.mask(indices)),
                ir.Splat(self.kind, ir.Extract(scalar, inner, self.kind.lanes - 1)),
                ir.Splat(self.kind, ir.Reduce(scalar, "max", inner)),
            ]
        return self.random.choice(options)

    def offsets(self, indices: list[ir.Var]) -> ir.Value:
        kind = ir.Type(int64, self.kind.lanes)
        spread = op("mul", ir.Iota(kind), ir.Const(kind, self.random.randint(1, 5)))
        total = op("add", spread, ir.Splat(kind, self.random.choice(indices)))
        return op("mod", total, ir.Const(kind, LENGTH))


@pytest.mark.sampled(most=5)
@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize("dtype", [float32, float64, int32, int64], ids=str)
def test_random_programs(dtype: DType, lanes: int) -> None:
    values = numpy.random.default_rng(lanes).integers(-9, 9, LENGTH).astype(dtype.numpy)
    for seed in range(4):
        built = Program(1000 * lanes + seed, dtype, lanes).kernel()
        with build(built) as code:
            for n in (0, 1, 3, 7):
                got, want = (numpy.zeros(LENGTH, dtype.numpy) for _ in range(2))
                evaluator.run(built, [values, want], [n])
                call(code.address(built.name), [values, got], [n], 0, 1)
                numpy.testing.assert_array_equal(got, want, err_msg=f"seed {seed}, n {n}")


@pytest.mark.parametrize("lanes", [2, 8, 32])
@pytest.mark.parametrize("function", ["add", "mul", "min", "max"])
def test_reductions(function: str, lanes: int) -> None:
    for dtype in (float32, float64, int32, boolean):
        kind = ir.Type(dtype, lanes)
        total = ir.Reduce(ir.Type(dtype), function, ir.Load(kind, "x", number(0)))
        operands = [ir.Operand("x", dtype), ir.Operand("y", dtype, True)]
        built = kernel(operands, [ir.Store("y", number(0), total)])
        values = (numpy.arange(lanes) % 3 - 1).astype(dtype.numpy)
        got, want = numpy.zeros(1, dtype.numpy), numpy.zeros(1, dtype.numpy)
        launch(built, [values, got], [])
        evaluator.run(built, [values, want], [])
        assert got == want
        if dtype.is_float and function in ("min", "max"):
            values[lanes // 2] = numpy.nan
            launch(built, [values, got], [])
            assert numpy.isnan(got[0])


def test_calls_stack_arrays_and_libraries() -> None:
    """A library function, a function of the kernel, addresses into stack and scratch memory."""
    f32 = ir.Type(float32)
    pointers = (ir.Pointer("source", float32), ir.Pointer("target", float32))
    source = ir.Load(f32, "source", index("k"))
    double = ir.Store("target", index("k"), op("add", source, source))
    body = (loop("k", number(0), index("count"), double, step=1),)
    doubling = ir.Function("doubling", (*pointers, ir.Scalar("count")), body, public=True)
    factor = ir.Scalar("factor", f32)
    scaled = ir.Store("target", index("k"), op("mul", source, ir.Var(f32, "factor")))
    body = (loop("k", number(0), index("count"), scaled, step=1),)
    scaling = ir.Function("scaling", (*pointers, ir.Scalar("count"), factor), body)
    steps = [
        ir.Stack("work", float32, 10),
        ir.Call("doubling", (ir.Address("x", number(2)), ir.Address("work", number(0)), STOP)),
        ir.Call(
            "scaling",
            (
                ir.Address("work", number(0)),
                ir.Address("scratch", number(64)),
                STOP,
                ir.Load(f32, "x", number(0)),
            ),
        ),
        loop("k", START, STOP, ir.Store("y", index("k"), ir.Load(f32, "scratch", index("at")))),
    ]
    at = ir.Let("at", op("add", index("k"), number(16)))  # 16 floats are 64 bytes
    copy = steps[-1]
    assert isinstance(copy, ir.For)
    steps[-1] = loop("k", START, STOP, at, *copy.body, step=1)
    operands = [ir.Operand("x", float32), ir.Operand("y", float32, True)]
    built = kernel(operands, steps, (), [scaling], [ir.Library("lib", (doubling,))])
    values = numpy.arange(3, 15, dtype=numpy.float32)
    got, want = numpy.zeros(10, numpy.float32), numpy.zeros(10, numpy.float32)
    launch(built, [values, got], [], 0, 10, scratch=128)
    evaluator.run(built, [values, want], [], 0, 10, scratch=128)
    numpy.testing.assert_array_equal(got, want)
    numpy.testing.assert_array_equal(got, values[2:] * 6)


def test_flags_travel_through_memory_registers_and_parameters() -> None:
    flag = ir.Type(boolean)
    steps = [
        ir.Declare("seen", ir.Const(flag, False)),
        loop(
            "i", START, STOP,
            ir.Assign("seen", op("or", ir.Get(flag, "seen"), ir.Load(flag, "x", index("i")))),
            ir.Store("y", index("i"), ir.Get(flag, "seen")),
        ),
    ]  # fmt: skip
    built = kernel([ir.Operand("x", boolean), ir.Operand("y", boolean, True)], steps)
    got = numpy.zeros(6, bool)
    launch(built, [numpy.array([0, 0, 1, 0, 1, 0], bool), got], [], 0, 6)
    assert got.tolist() == [False, False, True, True, True, True]


def test_part_of_the_range() -> None:
    store = ir.Store("y", index("i"), index("i"))
    built = kernel([ir.Operand("y", int64, True)], [loop("i", START, STOP, store)])
    got = numpy.full(8, -1)
    launch(built, [got], [], 3, 6)
    assert got.tolist() == [-1, -1, -1, 3, 4, 5, -1, -1]
