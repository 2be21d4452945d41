"""What kernels of Winograd convolutions share, whichever way tensors lie: operands, functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from anydim.base.dtypes import DType
from anydim.kernels import ir
from anydim.kernels.product.convolution.ending import Ending
from anydim.kernels.product.kernel import main_function, pointers_of, shared_names
from anydim.kernels.product.micro import Tile
from anydim.kernels.product.places import LayerSizes
from anydim.kernels.product.sharing import Sharing
from anydim.kernels.write.arithmetic import constant
from anydim.lang.tree import Read
from anydim.sizes import Size


class WinogradKernel(ABC):
    """Writes the functions of one kernel, and collects the sizes it needs.

    Operands are the transformed weights w, x, what an ending reads, and the result y.
    """

    name: str
    libraries: Sequence[ir.Library]
    sharing: Sharing

    def __init__(
        self, factors: tuple[str, str], result: str, dtype: DType, ending: Ending, tile: Tile
    ) -> None:
        self.dtype, self.ending, self.tile = dtype, ending, tile
        self.sizes = LayerSizes()
        w, x = factors
        self.roles = [(w, "w"), (x, "x")]
        for read in (ending.bias, ending.more):
            if read is not None and read.tensor not in {tensor for tensor, _ in self.roles[1:]}:
                self.roles.append((read.tensor, f"r{len(self.roles)}"))
        self.roles.append((result, "y"))
        self.buffers = {tensor: role for tensor, role in self.roles if role != "w"}
        self.in_place = ending.in_place(factors, result)

    @property
    def operands(self) -> tuple[ir.Operand, ...]:
        return tuple(ir.Operand(role, self.dtype, role == "y") for _, role in self.roles)

    def functions(self) -> tuple[ir.Function, ...]:
        """The two transforms and main."""
        self._spread(), self._collect()  # for all of the sizes they need
        self.spread, self.collect = self._spread(), self._collect()
        pointers = pointers_of(self.operands, shared_names(self.in_place, self.buffers))
        body = self._body()
        main = main_function(self.name, pointers, self.sizes.names, body)
        return (self.spread, self.collect, main)

    @property
    @abstractmethod
    def scratch(self) -> Size:
        """Bytes of scratch."""

    @abstractmethod
    def _spread(self) -> ir.Function:
        """Windows to 36 products."""

    @abstractmethod
    def _collect(self) -> ir.Function:
        """Sums of products to results."""

    @abstractmethod
    def _body(self) -> tuple[ir.Step, ...]:
        """What main does."""

    @abstractmethod
    def _bias(self, read: Read) -> ir.Value:
        """Where the first element of a bias lies."""

    def _added(self) -> dict[str, ir.Address]:
        """The bias and what else is added, as arguments; zeros for what there is not."""
        bias = more = ir.Address("zeros", constant(0))
        if self.ending.bias is not None:
            tensor = self.ending.bias.tensor
            bias = ir.Address(self.buffers[tensor], self._bias(self.ending.bias))
        if self.ending.more is not None:
            more = ir.Address(self.buffers[self.ending.more.tensor], constant(0))
        return {"bias": bias, "more": more}
