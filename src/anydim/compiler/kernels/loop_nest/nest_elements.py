"""Expressions inside ordered loops: reads of tensors that a loop writes are not hoisted out of it.

Besides the axes of statements, size expressions refer to loop variables here; such sizes are
computed in the kernel. An expression without reads is hoisted out of the loops it does not depend
on. A read is hoisted out of a loop only if that loop is known to run and does not write the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, TypeVar

from anydim.base.dtypes import DType, int64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.scalar_lowering import Context, ScalarLowering
from anydim.compiler.kernels.inference import Linear, free_axes, linear
from anydim.compiler.kernels.ir import operate, select
from anydim.lang.tree import Apply, Expr, Read, SizeTerm
from anydim.lang.tree.affine import Affine, operands, reads, row_major_strides
from anydim.sizes import Size, as_size

NestInside = TypeVar("NestInside", bound="NestElements")


@dataclass(frozen=True)
class Storage:
    """The location of a tensor: a buffer, the offset of its first element, and its strides.

    `rings` maps dimensions to the number of stored slices: index i is stored at i modulo that
    number.
    """

    buffer: str
    start: Size
    strides: tuple[Size, ...]
    rings: Mapping[int, int] = field(default_factory=dict)

    def address(self, indices: tuple[Expr, ...], flat: bool = False) -> Linear:
        """The offset of an element, in elements of the tensor."""
        if flat:
            return linear(indices[0]) + Linear(Affine(self.start))
        total = Linear(Affine(self.start))
        for dimension, (index, stride) in enumerate(zip(indices, self.strides)):
            depth = self.rings.get(dimension)
            if depth is not None:
                index = Apply("mod", (index, SizeTerm(as_size(depth))))
                index = SizeTerm(as_size(0)) if depth == 1 else index
            total = total + linear(index).scale(stride)
        return total

    @staticmethod
    def of(buffer: str, shape: tuple[Size, ...]) -> Storage:
        """The storage of a tensor in a buffer of its own."""
        return Storage(buffer, as_size(0), row_major_strides(shape))


@dataclass
class NestContext(Context):
    """A context with the storage of every tensor, and the names of loop variables."""

    storage: Mapping[str, Storage] = field(default_factory=dict)
    variables: frozenset[str] = frozenset()


class NestElements(ScalarLowering):
    """The body of a loop, a branch or a statement of a nest.

    `written`: the tensors that it writes.
    """

    context: NestContext

    written = own_variables = frozenset[str]()

    def __init__(self, context: NestContext) -> None:
        super().__init__(context)
        self.variables: dict[str, ir.Value] = {}

    def inner(
        self: NestInside, indices: Mapping[str, ir.Value], *,
        written: frozenset[str] = frozenset(), variables: Mapping[str, ir.Value] | None = None,
        **options: Any,
    ) -> NestInside:  # fmt: skip
        """The body of a nested loop; `variables` gives values to loop variables.

        The other options are those of `ScalarLowering`.
        """
        inner = super().inner(indices, **options)
        inner.written = written
        inner.own_variables = frozenset(variables or ())
        inner.variables = {**self.variables, **(variables or {})}
        return inner

    def step(
        self, body: Callable[[NestElements], None], registers: Mapping[Read, str] | None = None
    ) -> None:
        """Add steps here; they reload what they read, except for reads held in `registers`."""
        held = registers or {}

        def local(read: Read) -> ir.Value | None:
            return ir.Get(ir.Type(self.dtype(read)), held[read]) if read in held else None

        scope = self.inner({}, certain=False, local=local)
        body(scope)
        self.merge(scope)

    def now(self, expr: Expr, dtype: DType) -> ir.Value:
        """The current value of an expression; its reads are reloaded."""
        found: list[ir.Value] = []
        self.step(lambda here: found.append(here.name(here.value(expr, dtype))))
        return found[0]

    def merge(self, scope: ScalarLowering) -> None:
        """Append the steps of a scope that is not a block of its own."""
        self.steps += scope.steps
        scope.steps = self.steps

    def load(self, read: Read) -> ir.Value:
        """The current value of an element of a tensor."""
        return self.name(self._load(read))

    def size(self, size: Size) -> ir.Value:
        """A size expression, possibly of loop variables, as an int64 scalar."""
        return self.scalar(SizeTerm(size), int64)

    def address(self, tensor: str, indices: tuple[Expr, ...], flat: bool = False) -> Linear:
        """The offset of an element in the buffer of its tensor."""
        return self.context.storage[tensor].address(indices, flat)

    # ---- overrides -----------------------------------------------------------------------------

    def _hoistable(self, expr: Expr) -> bool:
        if free_axes(expr) & self.own or size_symbols(expr) & self.own_variables:
            return False
        tensors = {read.tensor for read in reads(expr)}
        return not tensors or (self.certain and not tensors & self.written)

    def _size(self, size: Size) -> ir.Value:
        """Sums and products of sizes computed by the host and of loop variables."""
        if not size.symbols & self.context.variables:
            return super()._size(size)
        split = size.linear_in(sorted(self.context.variables))
        if split is not None:
            coefficients, rest = split
            total = super()._size(rest) if rest != 0 or not coefficients else None
            for name, coefficient in coefficients.items():
                term = self.variables[name]
                if coefficient != 1:
                    factor = super()._size(coefficient)
                    term = self.name(term * factor)
                total = term if total is None else self.name(total + term)
            assert total is not None
            return total

        def apply(function: str, parts: tuple[ir.Value, ...]) -> ir.Value:
            if function == "where":
                test, then, otherwise = parts
                return self.name(select(test >= 0, then, otherwise))
            return self.name(operate(function, *parts))

        return size.fold(lambda value: ir.Const(ir.INDEX, value), self._symbol, apply)

    def _symbol(self, name: str) -> ir.Value:
        if name in self.variables:
            return self.variables[name]
        return super()._size(Size.symbol(name))

    def _address(self, read: Read, shape: tuple[Size, ...]) -> Linear:
        return self.address(read.tensor, read.indices, read.flat)


@lru_cache(maxsize=1 << 14)
def size_symbols(expr: Expr) -> frozenset[str]:
    """The symbols in the sizes of an expression."""
    if isinstance(expr, SizeTerm):
        return expr.size.symbols
    return frozenset().union(*map(size_symbols, operands(expr)))
