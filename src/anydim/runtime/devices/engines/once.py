"""Runs a model once by an engine on numpy arrays, for references."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache

import numpy

from anydim.runtime.delegated import Port
from anydim.runtime.devices.engines.engine import EnginePart, EngineResult, Tensor
from anydim.runtime.devices.engines.table import open_engine


def evaluate_once(
    engine: str, model: bytes, inputs: Sequence[Port], given: Sequence[numpy.ndarray],
    outputs: Sequence[Port], where: str = "",
) -> list[numpy.ndarray]:  # fmt: skip
    """Return the results of a model for arrays of its inputs' types.

    Raises MissingError if the engine is not installed, DeviceError if it fails.
    """
    part = _load_part(engine, model, tuple(inputs), tuple(outputs))
    arrays = [numpy.ascontiguousarray(array).reshape(array.shape) for array in given]
    tensors = [
        Tensor(array.ctypes.data, port.dtype, array.shape) for port, array in zip(inputs, arrays)
    ]
    found = open_engine(engine).converting_errors(
        "run", lambda: part.run(tensors, [None] * len(outputs)), f"{where}: " if where else ""
    )
    return [_copy_result(port, each) for port, each in zip(outputs, found)]


@lru_cache(maxsize=64)
def _load_part(
    engine: str, model: bytes, inputs: tuple[Port, ...], outputs: tuple[Port, ...]
) -> EnginePart:
    return open_engine(engine).load(model, inputs, outputs, 1)


def _copy_result(port: Port, found: EngineResult) -> numpy.ndarray:
    made = numpy.empty(found.shape, port.dtype.numpy)
    if made.nbytes:
        ctypes.memmove(made.ctypes.data, found.address, made.nbytes)
    return made
