"""Sizes that are looked at before a call: set ones, which inputs must have, and expected bounds."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from anydim.base.errors import DimError
from anydim.base.records import dataclass
from anydim.runtime.signature import Signature
from anydim.sizes import Size


@dataclass(frozen=True)
class Axis:
    """An axis of an input, the `place` of its size among all, its formula and a value of that."""

    place: int
    input: str
    axis: int
    size: Size
    value: int

    def __str__(self) -> str:
        return f"axis {self.axis} of input '{self.input}'"


def axes_with(signature: Signature, sizes: Mapping[str, int]) -> tuple[Axis, ...]:
    """The axes whose size follows from these sizes of dims."""
    axes = [(spec.name, axis, size) for spec in signature.inputs
            for axis, size in enumerate(spec.shape)]  # fmt: skip
    return tuple(
        Axis(place, name, axis, size, size.evaluate(sizes))
        for place, (name, axis, size) in enumerate(axes)
        if size.symbols and size.symbols <= sizes.keys()
    )


class Watched:
    """What is looked at in each call of a program; nothing at first."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.sizes: Mapping[str, int] = {}
        self.bounds: Mapping[str, int] = {}
        self._fixed: tuple[Axis, ...] = ()
        self._bounded: tuple[Axis, ...] = ()
        self.busy = False

    def fix(self, sizes: Mapping[str, int]) -> None:
        """These sizes and no others from now on."""
        self.sizes, self._fixed = dict(sizes), axes_with(self.signature, sizes)
        self.busy = bool(self._fixed or self._bounded)

    def expect(self, bounds: Mapping[str, int]) -> None:
        """Say so, once, where a dim is above what was expected."""
        single = {name: axes_with(self.signature, {name: most}) for name, most in bounds.items()}
        self.bounds, self._bounded = dict(bounds), sum(single.values(), ())
        self.busy = bool(self._fixed or self._bounded)

    def look(self, shapes: Sequence[int]) -> None:
        """Raise DimError where an input disagrees with a size that was set."""
        name = self.signature.name
        for axis in self._fixed:
            if shapes[axis.place] != axis.value:
                at = ", ".join(f"{dim} = {self.sizes[dim]}" for dim in sorted(axis.size.symbols))
                raise DimError(
                    f"{name}: {axis} is {shapes[axis.place]}, but {at} was set",
                    "give inputs of that size, or set another: model.set_sizes(...)",
                )
        for axis in self._bounded:
            if shapes[axis.place] > axis.value:
                self.expect({})
                warnings.warn(
                    f"{name}: {axis} is {shapes[axis.place]}, above {axis.value}, which its dims "
                    "were expected to stay within: memory grows beyond the bound",
                    stacklevel=5,
                )
                return

    def size(self, dim: str) -> int:
        """The size of a dim that no input tells: the one that was set, or the only one inside its
        bounds. Raises DimError where it is neither."""
        if dim not in self.sizes:
            for known in self.signature.box.dims:
                if known.name == dim and known.lo == known.hi:
                    return known.lo
            raise DimError(
                f"{self.signature.name}: dim '{dim}' has no size, and no input tells it",
                f"set it: model.set_sizes({dim}=...)",
            )
        return self.sizes[dim]
