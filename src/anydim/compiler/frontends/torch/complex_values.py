"""Complex tensors as pairs of real ones.

A graph has no complex types. An input or a result of a complex type is a real tensor of the graph
with a last axis of 2: the real and the imaginary parts, as of `torch.view_as_real`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anydim.base.records import dataclass
from anydim.compiler.frontends.builder import Value
from anydim.sizes import Size

if TYPE_CHECKING:
    from anydim.base.dtypes import DType
    from anydim.compiler.frontends.torch.builder import TorchBuilder


@dataclass(frozen=True)
class Complex:
    """A complex tensor: its real and its imaginary part, of one shape and one float type."""

    real: Value
    imag: Value

    @property
    def shape(self) -> tuple[Size, ...]:
        return self.real.shape

    @property
    def dtype(self) -> DType:
        """The type of the parts."""
        return self.real.dtype


def split(g: TorchBuilder, pairs: Value) -> Complex:
    """A complex tensor from a real one with a last axis of 2."""
    return Complex(pairs[..., 0], pairs[..., 1])


def join_parts(g: TorchBuilder, x: Complex) -> Value:
    """The real tensor with a last axis of 2."""
    rank = len(x.shape)
    parts = [g.unsqueeze(part, axes=(rank,)) for part in (x.real, x.imag)]
    return g.concat(*parts, axis=rank)


def of_type(g: TorchBuilder, x: Complex, dtype: DType) -> Complex:
    """A complex tensor with parts of a type."""
    return Complex(g.as_type(x.real, dtype), g.as_type(x.imag, dtype))


def is_complex(value: Any) -> bool:
    """Whether an argument of a row, or an element of a list, is complex."""
    if isinstance(value, (list, tuple)):
        return any(map(is_complex, value))
    return isinstance(value, (Complex, complex))


def as_complex(g: TorchBuilder, value: Any) -> Any:
    """Converts real tensors and numbers to complex ones, in lists too."""
    if isinstance(value, (list, tuple)):
        return [as_complex(g, each) for each in value]
    if is_complex(value):
        return value
    if isinstance(value, Size):
        value = g.scalar(value, g.result)
    if isinstance(value, Value):
        return Complex(value, g.fill_shape(value.shape, 0, value.dtype))
    return complex(value)


def part_of(value: Any, name: str) -> Any:
    """Takes `real` or `imag` of complex arguments, in lists too; others stay."""
    if isinstance(value, (list, tuple)):
        return [part_of(each, name) for each in value]
    return getattr(value, name) if is_complex(value) else value
