"""Checks of input shapes before a call: sizes fixed by the user, and expected upper bounds."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from anydim.base.errors import DimError
from anydim.base.records import dataclass
from anydim.runtime.signature import Signature
from anydim.sizes import Size


@dataclass(frozen=True)
class Axis:
    """An axis of an input: its index among all axes, its size expression and a value."""

    index: int
    input: str
    axis: int
    size: Size
    value: int

    def __str__(self) -> str:
        return f"axis {self.axis} of input '{self.input}'"


def axes_with(signature: Signature, sizes: Mapping[str, int]) -> tuple[Axis, ...]:
    """Return the axes whose sizes are determined by these dims."""
    axes = [(spec.name, axis, size) for spec in signature.inputs
            for axis, size in enumerate(spec.shape)]  # fmt: skip
    return tuple(
        Axis(index, name, axis, size, size.evaluate(sizes))
        for index, (name, axis, size) in enumerate(axes)
        if size.symbols and size.symbols <= sizes.keys()
    )


class CallSizes:
    """The sizes that a program checks in each call; initially none."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.sizes: Mapping[str, int] = {}
        self.bounds: Mapping[str, int] = {}
        self._fixed: tuple[Axis, ...] = ()
        self._bounded: tuple[Axis, ...] = ()
        self.has_checks = False

    def fix(self, sizes: Mapping[str, int]) -> None:
        """Accept only these sizes of dims from now on."""
        self.sizes, self._fixed = dict(sizes), axes_with(self.signature, sizes)
        self.has_checks = bool(self._fixed or self._bounded)

    def expect(self, bounds: Mapping[str, int]) -> None:
        """Warn once if a dim exceeds its expected bound."""
        single = {name: axes_with(self.signature, {name: most}) for name, most in bounds.items()}
        self.bounds, self._bounded = dict(bounds), sum(single.values(), ())
        self.has_checks = bool(self._fixed or self._bounded)

    def check_shapes(self, shapes: Sequence[int]) -> None:
        """Raise DimError if an input contradicts a fixed size; warn above an expected bound."""
        name = self.signature.name
        for axis in self._fixed:
            if shapes[axis.index] != axis.value:
                at = ", ".join(f"{dim} = {self.sizes[dim]}" for dim in sorted(axis.size.symbols))
                raise DimError(
                    f"{name}: {axis} is {shapes[axis.index]}, but {at} was set",
                    "pass inputs of that size, or set another: model.set_sizes(...)",
                )
        for axis in self._bounded:
            if shapes[axis.index] > axis.value:
                self.expect({})
                warnings.warn(
                    f"{name}: {axis} is {shapes[axis.index]}, above the expected bound "
                    f"{axis.value}: memory exceeds the predicted bound",
                    stacklevel=5,
                )
                return

    def size(self, dim: str) -> int:
        """Return the size of a dim that no input determines: the fixed size, or its only value.

        Raises DimError if it has neither.
        """
        if dim not in self.sizes:
            for known in self.signature.box.dims:
                if known.name == dim and known.lo == known.hi:
                    return known.lo
            raise DimError(
                f"{self.signature.name}: dim '{dim}' has no size, and no input determines it",
                f"set it: model.set_sizes({dim}=...)",
            )
        return self.sizes[dim]
