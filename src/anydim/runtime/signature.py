"""The inputs and outputs of a program: names, element types and symbolic shapes."""

from __future__ import annotations

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.sizes import Box, Guard, Size, product

PASSED_THROUGH = " (passed through)"  # marks an output that copies an input or a constant


@dataclass(frozen=True)
class TensorSpec:
    """A named tensor; its shape entries are size expressions over the dims of the box."""

    name: str
    dtype: DType
    shape: tuple[Size, ...]

    @property
    def key(self) -> str:
        """The name that callers use."""
        return self.name.removesuffix(PASSED_THROUGH)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def bytes(self) -> Size:
        """Bytes of the tensor."""
        return product(self.shape) * self.dtype.bytes

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a program called `name`, and the box of its sizes.

    `guards` are relations that each call must satisfy besides the bounds and constraints of the
    box. `noun` is the word for an input in errors.
    """

    name: str
    box: Box
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    guards: tuple[Guard, ...] = ()
    noun: str = "input"

    def __str__(self) -> str:
        taken = ", ".join(map(str, self.inputs))
        given = ", ".join(map(str, self.outputs))
        return f"{self.name}({taken}) -> ({given})"
