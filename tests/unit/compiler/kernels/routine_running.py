"""Runs routines at given sizes: in the evaluator, which checks every access, or compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from anydim.base import settings
from anydim.base.frozen import FrozenMapping
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.routines.routine import Routine
from anydim.compiler.targets.cuda import dialect as cuda
from anydim.compiler.targets.evaluated.evaluator import run
from anydim.compiler.targets.opencl import dialect as opencl
from anydim.compiler.targets.run import build, call
from anydim.lang.tree import TensorType
from anydim.sizes import Box

GUARD = 64  # bytes before and after each tensor that must stay as they are
FILL = 0xA5


class Running:
    """A routine lowered for some types, ready to run at any size of the box."""

    def __init__(
        self, routine: Routine, types: Sequence[TensorType], box: Box, machine: Machine,
        **attributes: Any,
    ) -> None:  # fmt: skip
        self.routine = routine
        most = {"opencl": opencl.MAX_LANES, "cuda": cuda.MAX_LANES}.get(settings.target, 0)
        machine = replace(machine, max_lanes=most)
        self.attributes = FrozenMapping(attributes)
        self.results = routine.infer(types, self.attributes, box)
        self.steps = routine.lower(types, self.attributes, box, machine)
        self.machine = machine
        self._loaded: dict[str, Any] = {}

    def expected(self, arrays: Sequence[np.ndarray], env: Mapping[str, int]) -> tuple[Any, ...]:
        return self.routine.evaluate(arrays, self.attributes, env)

    def __call__(
        self, arrays: Sequence[np.ndarray], env: Mapping[str, int], parts: int = 1,
        compiled: bool = False,
    ) -> tuple[np.ndarray, ...]:  # fmt: skip
        """The results, every parallel range cut into `parts`."""
        tensors = {f"x{n}": np.ascontiguousarray(array) for n, array in enumerate(arrays)}
        blocks = []
        own = {f"y{number}": kind for number, kind in enumerate(self.results)}
        own |= {tensor.name: tensor.type for tensor in self.steps.temporaries}
        for name, kind in own.items():
            block, tensors[name] = _tensor(kind, env)
            blocks.append(block)
        for launch in self.steps.launches:
            self._launch(launch, tensors, env, parts, compiled)
        for block in blocks:
            assert (block[:GUARD] == FILL).all() and (block[-GUARD:] == FILL).all()
        return tuple(tensors[f"y{number}"] for number in range(len(self.results)))

    def _launch(
        self, launch: Launch, tensors: Mapping[str, np.ndarray], env: Mapping[str, int],
        parts: int, compiled: bool,
    ) -> None:  # fmt: skip
        operands = [tensors[argument.tensor] for argument in launch.arguments]
        sizes = [size.evaluate(env) for size in launch.sizes]
        scratch, extent = (int(s.evaluate(env)) for s in (launch.scratch, launch.parallel))
        assert scratch >= 0 and extent >= 0
        cuts = sorted({extent * part // parts for part in range(parts + 1)})
        for start, stop in pairwise(cuts):
            if compiled:
                address = self._code(launch).address(launch.kernel.name)
                call(address, operands, sizes, start, stop, scratch)
            else:
                run(launch.kernel, operands, sizes, start, stop, scratch)

    def _code(self, launch: Launch) -> Any:
        name = f"{settings.target} {launch.kernel.name}"
        if name not in self._loaded:
            self._loaded[name] = build(launch.kernel, self.machine.vector_bytes)
        return self._loaded[name]


def _tensor(kind: TensorType, env: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """The block a tensor lies in, and the tensor; both hold rubbish."""
    shape = [size.evaluate(env) for size in kind.shape]
    count = int(np.prod(shape, dtype=np.int64)) * kind.dtype.bytes
    block = np.full(count + 2 * GUARD, FILL, np.uint8)
    inside = block[GUARD : GUARD + count]
    return block, inside.view(kind.dtype.numpy).reshape(shape)


def same(results: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    """Bit for bit, but that NaN is NaN."""
    assert len(results) == len(expected)
    for number, (found, right) in enumerate(zip(results, expected)):
        assert found.dtype == right.dtype and found.shape == right.shape, number
        if found.dtype.kind == "V":  # a type of ml_dtypes
            found, right = found.astype(np.float32), right.astype(np.float32)
        np.testing.assert_array_equal(found, right, err_msg=f"result {number}")
