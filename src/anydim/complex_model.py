"""Models with complex inputs and results, which are pairs of real numbers in the program."""

from __future__ import annotations

from typing import Any

import numpy

from anydim.base.errors import InputError
from anydim.model import Model
from anydim.runtime.arrays import by_name

_COMPLEX = {"float32": "complex64", "float64": "complex128"}


class ComplexModel(Model):
    """A model of a torch program with complex tensors.

    `names` are its complex inputs and results. `core` has real ones with a last axis of 2, which
    `inputs` and `outputs` describe, and a saved model takes and returns.
    """

    def __init__(self, core: Model, names: frozenset[str]) -> None:
        self.core, self.names = core, names
        self._made = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "core":  # before it is set
            raise AttributeError(name)
        return getattr(self.core, name)

    def __call__(self, *values: Any, **named: Any) -> dict[str, Any]:
        """Run the model on arrays of complex types. Raises as a model."""
        if values:
            named = by_name(self.name, [spec.name for spec in self.inputs], values, named)
        given = {name: _parts(name, value) if name in self.names else value
                 for name, value in named.items()}  # fmt: skip
        found = self.core(**given)
        return {name: _whole(value) if name in self.names else value
                for name, value in found.items()}  # fmt: skip

    def __repr__(self) -> str:
        return f"{self.core!r} with complex tensors"

    def __reduce__(self) -> tuple[Any, ...]:
        return ComplexModel, (self.core, self.names)


def _parts(name: str, value: Any) -> Any:
    """A complex array as a real one with a last axis of 2, which shares its memory if it can."""
    if type(value).__module__.startswith("torch"):
        import torch

        if not value.is_complex():
            raise _real(name, value.dtype)
        return torch.view_as_real(value.detach().resolve_conj().contiguous())
    array = numpy.ascontiguousarray(value)
    if array.dtype.kind != "c":
        raise _real(name, array.dtype)
    return array.reshape(*numpy.shape(value), 1).view(array.real.dtype)


def _real(name: str, dtype: Any) -> InputError:
    return InputError(f"'{name}' is of {dtype}", "give an array of a complex type")


def _whole(pairs: Any) -> Any:
    """The complex array of a real one with a last axis of 2. Its memory is shared.

    numpy has no complex type of 16-bit parts: such results stay real.
    """
    if not isinstance(pairs, numpy.ndarray):
        return complex_tensor(pairs)
    name = _COMPLEX.get(pairs.dtype.name)
    return pairs if name is None else pairs.view(name)[..., 0]


def complex_tensor(pairs: Any) -> Any:
    """The complex tensor of torch of a real one with a last axis of 2. Its memory is shared."""
    import torch

    if not pairs.numel():  # torch demands strides, also without elements
        pairs = torch.empty(pairs.shape, dtype=pairs.dtype)
    return torch.view_as_complex(pairs)
