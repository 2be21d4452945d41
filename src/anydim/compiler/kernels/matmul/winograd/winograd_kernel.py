"""Base class of the kernels of Winograd convolutions, for both layouts."""

from __future__ import annotations

from abc import abstractmethod

from anydim.base.dtypes import float32
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import constant
from anydim.compiler.kernels.matmul.blocked_loops import Blocked
from anydim.compiler.kernels.matmul.epilogue import Output, read_by
from anydim.compiler.kernels.matmul.matmul_kernel import roles_of
from anydim.compiler.kernels.matmul.register_tile import Tile
from anydim.compiler.kernels.matmul.tile_epilogue import TileEpilogue
from anydim.compiler.kernels.matmul.window_geometry import LayerSizes
from anydim.lang.tree import Group, Read
from anydim.sizes import Size


class WinogradKernel(Blocked):
    """A product of a run-time operand, transformed on use, and weights transformed at load time.

    Operands are the transformed weights w, x, the reads of the epilogue, and the result.
    """

    sizes: LayerSizes
    packed = {"w": float32}

    def __init__(
        self, group: Group, outputs: tuple[Output, ...], factors: tuple[str, str],
        epilogue: TileEpilogue, tile: Tile,
    ) -> None:  # fmt: skip
        super().__init__(group, outputs, float32, tile, LayerSizes())
        self.epilogue = epilogue
        results = [output.tensor for output in outputs]
        roles = zip(factors, ("w", "x"))
        self.roles, self.buffers = roles_of(tuple(roles), self.packed, read_by(outputs), results)
        self.in_place = epilogue.in_place(factors, results[0])

    def role(self, name: str, size: Size) -> ir.Value:
        return self.sizes.role(name, size)

    def callees(self) -> tuple[ir.Function, ...]:
        """Return the two transforms."""
        self.spread, self.collect = self._transforms()
        return (self.spread, self.collect)

    @abstractmethod
    def _transforms(self) -> tuple[ir.Function, ir.Function]:
        """Return the transforms of windows to 36 products and of sums to results."""

    @abstractmethod
    def _bias(self, read: Read) -> ir.Value:
        """Return the offset of the first element of a bias."""

    def _epilogue_addresses(self) -> dict[str, ir.Address]:
        """Return the addresses of result, bias and addend; a missing one is `zeros`."""
        bias = more = ir.Address("zeros", constant(0))
        if self.epilogue.bias is not None:
            tensor = self.epilogue.bias.tensor
            bias = ir.Address(self.buffers[tensor], self._bias(self.epilogue.bias))
        if self.epilogue.more is not None:
            more = ir.Address(self.buffers[self.epilogue.more.tensor], constant(0))
        y = ir.Address(self.buffers[self.outputs[0].tensor], constant(0))
        return {"y": y, "bias": bias, "more": more}
