"""Contractions written as groups, run through the LLVM target on numpy arrays with guarded ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy

from anydim.base import settings
from anydim.base.dtypes import DType, float32
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.matmul.contraction.contraction_template import TEMPLATE
from anydim.compiler.targets.llvm.host import machine as host_machine
from anydim.compiler.targets.run import build, call
from anydim.lang.tree import (
    Apply,
    Axis,
    Expr,
    Group,
    Index,
    Read,
    Statement,
    Tensor,
    TensorType,
)
from anydim.runtime.packing import pack
from anydim.sizes import Box, Dim, Size, parse

GUARD = 64  # elements behind every array that must stay as they are
BOX = Box.of(Dim("M", 0, 4096), Dim("N", 0, 4096), Dim("K", 0, 4096), Dim("H", 0, 64))


def sizes(text: str) -> tuple[Size, ...]:
    """'M K' -> sizes."""
    return tuple(parse(part) for part in text.split())


def tensor(name: str, shape: str, dtype: DType = float32) -> Tensor:
    return Tensor(name, TensorType(dtype, sizes(shape)))


def read(name: str, *indices: str) -> Read:
    return Read(name, tuple(Index(i) for i in indices))


def apply(function: str, *arguments: Expr) -> Apply:
    return Apply(function, arguments)


def axes(**extents: str) -> tuple[Axis, ...]:
    return tuple(Axis(name, parse(extent)) for name, extent in extents.items())


def product_statement(
    target: str, a: Read, b: Read, over: tuple[Axis, ...], k: tuple[Axis, ...]
) -> Statement:
    return Statement(target, over, apply("mul", a, b), "add", k)


@dataclass(frozen=True)
class Compiled:
    """A group, its launch, and the loaded code."""

    group: Group
    launch: Launch
    address: int

    def run(
        self,
        env: Mapping[str, int],
        inputs: Mapping[str, numpy.ndarray],
        parts: int = 1,
    ) -> dict[str, numpy.ndarray]:
        """Outputs at some sizes; checks that nothing behind any array changed.

        The same bits come out in place of an operand that the kernel allows it for.
        """
        results = self._run(env, inputs, parts, ())
        for pair in self.launch.in_place:
            again = self._run(env, inputs, parts, pair)
            assert all(again[name].tobytes() == found.tobytes() for name, found in results.items())
        return results

    def _run(
        self, env: Mapping[str, int], inputs: Mapping[str, numpy.ndarray], parts: int,
        in_place: tuple[str, ...],
    ) -> dict[str, numpy.ndarray]:  # fmt: skip
        launch = self.launch
        arrays: dict[str, numpy.ndarray] = {}
        for found in self.group.outputs:
            shape = tuple(s.evaluate(env) for s in found.type.shape)
            arrays[found.name] = numpy.full(_count(shape) + GUARD, 77, found.type.dtype.numpy)
        if in_place:
            result, operand = in_place
            arrays[result][:-GUARD] = inputs[operand].reshape(-1)
            inputs = {**inputs, operand: arrays[result]}
        operands = []
        for argument in launch.arguments:
            if argument.tensor in arrays:
                operands.append(arrays[argument.tensor])
            elif argument.packing is not None:
                operands.append(pack(inputs[argument.tensor], argument.packing))
            else:
                operands.append(inputs[argument.tensor])
        values = [size.evaluate(env) for size in launch.sizes]
        units = launch.parallel.evaluate(env)
        scratch = launch.scratch.evaluate(env)
        for part in range(parts):
            start, stop = part * units // parts, (part + 1) * units // parts
            call(self.address, operands, values, start, stop, scratch)
        results = {}
        for found in self.group.outputs:
            shape = tuple(s.evaluate(env) for s in found.type.shape)
            whole = arrays[found.name]
            assert (whole[_count(shape) :] == 77).all(), "written behind the end"
            results[found.name] = whole[: _count(shape)].reshape(shape)
        return results


def _count(shape: tuple[int, ...]) -> int:
    return int(numpy.prod(shape, dtype=numpy.int64))


def compiled(
    group: Group, constants: frozenset[str] = frozenset(), machine: Machine | None = None
) -> Compiled | None:
    """The group through the template and the target; None when the template does not take it."""
    return _compiled(group, constants, machine or host_machine(), settings.target)


@lru_cache(maxsize=64)
def _compiled(
    group: Group, constants: frozenset[str], machine: Machine, target: str
) -> Compiled | None:
    schedule = TEMPLATE.match(group, BOX, machine, constants)
    if schedule is None:
        return None
    launch = TEMPLATE.lower(group, schedule, BOX, machine, constants)
    loaded = build(launch.kernel, machine.vector_bytes)
    _KEPT.append(loaded)
    return Compiled(group, launch, loaded.address(launch.kernel.name))


_KEPT: list[object] = []


def matmul(m: str = "M", k: str = "K", n: str = "N", dtype: DType = float32) -> Group:
    """c[m, n] = sum a[m, k] b[k, n]."""
    return Group(
        (tensor("a", f"{m} {k}", dtype), tensor("b", f"{k} {n}", dtype)),
        (tensor("c", f"{m} {n}", dtype),),
        (
            product_statement(
                "c", read("a", "i", "k"), read("b", "k", "j"), axes(i=m, j=n), axes(k=k)
            ),
        ),
    )


def tolerance(a: numpy.ndarray, b: numpy.ndarray, extra: float = 1.0) -> numpy.ndarray:
    """How far float32 sums of products may lie from exact ones."""
    eps = 1e-6 if a.dtype == numpy.float32 else 1e-14
    a64, b64 = (numpy.abs(x).astype(numpy.float64) for x in (a, b))
    return 4 * eps * (a64 @ b64 + extra)
