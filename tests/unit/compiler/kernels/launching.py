"""Runs launches at given sizes, part by part: in the evaluator, or compiled for this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, wraps
from itertools import pairwise
from typing import Any, ParamSpec, TypeVar

import numpy as np

from anydim.base import settings
from anydim.compiler.kernels.launch import STATUS_TENSOR, Launch, Machine
from anydim.compiler.kernels.template import Template
from anydim.compiler.targets.cuda import dialect as cuda
from anydim.compiler.targets.evaluated.evaluator import run
from anydim.compiler.targets.evaluated.space import uninitialised_memory
from anydim.compiler.targets.opencl import dialect as opencl
from anydim.compiler.targets.run import build, call
from anydim.compiler.targets.target import Code
from anydim.lang.tree import Group
from anydim.runtime.packing import pack
from anydim.runtime.positions import FINE
from anydim.sizes import Box
from anydim.sizes.derived import negated_if_negative

P = ParamSpec("P")
T = TypeVar("T")
GUARD = 64  # elements before and after each output that must stay as they are


def once_for_each_target(make: Callable[P, T]) -> Callable[P, T]:
    """`functools.cache`; what is prepared for one target has vectors that another lacks."""
    made = cache(lambda target, *arguments, **more: make(*arguments, **more))

    @wraps(make)
    def found(*arguments: P.args, **more: P.kwargs) -> T:
        return made(settings.target, *arguments, **more)

    return found


class Prepared:
    """A group made into a launch by a template, ready to run at any size."""

    def __init__(
        self, group: Group, templates: Sequence[Template], box: Box, machine: Machine,
        constants: frozenset[str] = frozenset(), schedule: object | None = None,
    ) -> None:  # fmt: skip
        self.group = group
        most = {"opencl": opencl.MAX_LANES, "cuda": cuda.MAX_LANES}.get(settings.target, 0)
        permutes = machine.permutes and settings.target == "llvm"  # others are never told
        self.machine = machine = replace(machine, max_lanes=most, permutes=permutes)
        for template in templates:
            found = template.match(group, box, machine, constants)
            if found is not None:
                self.template = template
                break
        else:
            raise AssertionError("no template matches the group")
        self.schedule = schedule or found
        self.launch: Launch = template.lower(group, self.schedule, box, machine, constants)
        self._loaded: dict[str, Code] = {}

    def outputs(
        self, arrays: Sequence[np.ndarray], env: Mapping[str, int], parts: int = 1,
        compiled: bool = False,
    ) -> tuple[np.ndarray, ...]:  # fmt: skip
        """The outputs for some inputs, the parallel range cut into `parts`.

        The same bits come out where results lie in the bytes of the operands that may hold them.
        """
        apart = self._run(arrays, env, parts, compiled, {})
        for pairs in self._in_place(arrays, env):
            for found, expected in zip(self._run(arrays, env, parts, compiled, pairs), apart):
                assert found.tobytes() == expected.tobytes(), f"wrong in place: {pairs}"
        return apart

    def _in_place(
        self, arrays: Sequence[np.ndarray], env: Mapping[str, int]
    ) -> list[dict[str, str]]:
        """Results with operands of as many bytes: as many at a time as there may be, every one."""
        bytes_of = dict(zip((t.name for t in self.group.inputs), (a.nbytes for a in arrays)))
        for tensor in self.group.outputs:
            count = np.prod([size.evaluate(env) for size in tensor.type.shape], dtype=np.int64)
            bytes_of[tensor.name] = int(count) * tensor.type.dtype.bytes
        found: list[dict[str, str]] = []
        for result, operand in self.launch.in_place:
            free = (p for p in found if result not in p and operand not in p.values())
            if bytes_of[result] == bytes_of[operand]:
                pairs = next(free, None)
                if pairs is None:
                    found.append(pairs := {})
                pairs[result] = operand
        return found

    def _run(
        self, arrays: Sequence[np.ndarray], env: Mapping[str, int], parts: int, compiled: bool,
        in_place: Mapping[str, str],
    ) -> tuple[np.ndarray, ...]:  # fmt: skip
        """The outputs; a result of `in_place` is in the bytes of an operand."""
        tensors = dict(zip((tensor.name for tensor in self.group.inputs), arrays))
        guarded = {}
        for tensor in self.group.outputs:
            shape = [size.evaluate(env) for size in tensor.type.shape]
            guarded[tensor.name], made = _guarded(shape, tensor.type.dtype.numpy)
            tensors[tensor.name] = made
            if tensor.name in in_place:
                operand = in_place[tensor.name]
                given = np.ascontiguousarray(tensors[operand])
                made.reshape(-1).view(np.uint8)[:] = given.reshape(-1).view(np.uint8)
                tensors[operand] = made.reshape(-1).view(given.dtype).reshape(given.shape)
        self.status = tensors[STATUS_TENSOR] = np.full(8, FINE)
        operands = [
            np.ascontiguousarray(tensors[a.tensor])
            if a.packing is None
            else pack(tensors[a.tensor], a.packing)
            for a in self.launch.arguments
        ]
        operands = [
            tensors[a.tensor] if a.tensor in guarded else o
            for a, o in zip(self.launch.arguments, operands)
        ]
        sizes = [size.evaluate(env) for size in self.launch.sizes]
        extent = self.launch.parallel.evaluate(env)
        cuts = sorted({extent * part // parts for part in range(parts + 1)})
        scratch: Any = self.launch.scratch.evaluate(env)
        if (
            negated_if_negative(self.launch.grain) is not None
        ):  # stages: all parts have the same scratch
            scratch = (
                np.zeros(scratch + 64, np.uint8) if compiled else uninitialised_memory("", scratch)
            )
        for start, stop in pairwise(cuts):
            if compiled:
                call(self._address(), operands, sizes, start, stop, scratch)
            else:
                run(self.launch.kernel, operands, sizes, start, stop, scratch)
        for whole, fill in guarded.values():
            assert (whole[:GUARD] == fill).all() and (whole[-GUARD:] == fill).all()
        return tuple(tensors[tensor.name] for tensor in self.group.outputs)

    def _address(self) -> int:
        name = settings.target
        if name not in self._loaded:
            self._loaded[name] = build(self.launch.kernel, self.machine.vector_bytes)
        return self._loaded[name].address(self.launch.kernel.name)


def _guarded(shape: list[int], dtype: np.dtype) -> tuple[tuple[np.ndarray, object], np.ndarray]:
    count = int(np.prod(shape, dtype=np.int64))
    fill = dtype.type(1)
    whole = np.full(count + 2 * GUARD, fill, dtype)
    return (whole, fill), whole[GUARD : GUARD + count].reshape(shape)
