"""Calls of a model with tensors of torch, for torch.compile: gradients are recorded by torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import torch
import torch.utils.dlpack

from anydim.api.model import Model
from anydim.base.dtypes import from_numpy as dtype_from_numpy
from anydim.compiler.frontends.torch.importer import Imported
from anydim.runtime.exchange import export_array, with_strides
from anydim.runtime.program.adapter import complex_tensor

_MOST_BYTES = 1 << 20  # allocated for a number; larger ones are arrays of stride 0


class ModelCall:
    """Calls the model of an imported graph with the arguments of the graph.

    A call with sizes that came before passes tensors to native code, others pass arrays that share
    their memory.
    """

    def __init__(self, model: Model, imported: Imported, is_on_host: bool) -> None:
        self._model, self._executable = model, model.executable
        self._executable.tensors = torch.Tensor
        self._inputs = list(zip((spec.name for spec in model.inputs), imported.placeholders))
        self._complex, self._negated = imported.complex_names, imported.negated
        self._complex_inputs = [name for name, _ in self._inputs if name in self._complex]
        self._are_arrays = is_on_host and _is_native(model)

    def __call__(self, arguments: Sequence[Any]) -> Mapping[str, torch.Tensor]:
        """The outputs of the model."""
        given = {name: arguments[position] for name, position in self._inputs}
        for name in self._complex_inputs:
            given[name] = torch.view_as_real(given[name].resolve_conj())
        for name in self._negated:
            given[name] = -given[name]
        given = {name: _plain(value) for name, value in given.items()}
        outputs = self._executable.repeat(given)
        if outputs is None:
            outputs = self._model(**(_share_arrays(given) if self._are_arrays else given))
        found = {name: value if isinstance(value, torch.Tensor) else _tensor_of(value)
                 for name, value in outputs.items()}  # fmt: skip
        for name in self._complex & found.keys():
            found[name] = complex_tensor(found[name])
        return found


def _is_native(model: Model) -> bool:
    """Whether numpy has all element types: the executable takes numpy arrays faster."""
    return all(spec.dtype.numpy.isbuiltin == 1 for spec in (*model.inputs, *model.outputs))


def _plain(value: Any) -> Any:
    """Detaches a tensor; encodes a number as the size of an array of bytes."""
    if type(value) is torch.Tensor and not value.requires_grad:
        return value
    return _bytes(value) if isinstance(value, int) else value.detach()


def _bytes(count: int) -> numpy.ndarray:
    """An array of `count` bytes that stands for a number; empty for a negative one."""
    if count <= _MOST_BYTES:
        return numpy.empty(max(count, 0), numpy.uint8)
    return numpy.lib.stride_tricks.as_strided(numpy.empty(1, numpy.uint8), (count,), (1,))


def _share_arrays(given: Mapping[str, Any]) -> dict[str, numpy.ndarray]:
    """Converts tensors to arrays that share their memory."""
    return {name: value if isinstance(value, numpy.ndarray) else _array_of(value)
            for name, value in given.items()}  # fmt: skip


class _Shared:
    """Exports a tensor by DLPack."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        return torch.utils.dlpack.to_dlpack(self.tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def _array_of(tensor: torch.Tensor) -> numpy.ndarray:
    """An array that shares a tensor's memory, which may still be resized."""
    return numpy.from_dlpack(_Shared(tensor.resolve_neg() if tensor.is_neg() else tensor))


def _tensor_of(array: numpy.ndarray) -> torch.Tensor:
    """A tensor that shares an array's memory, of types that numpy does not know, too."""
    array = with_strides(array)
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    return torch.from_dlpack(export_array(array, dtype_from_numpy(array.dtype)))
