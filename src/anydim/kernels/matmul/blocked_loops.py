"""The driver of blocked products: the loops of contractions, convolutions and products of bytes.

    for each rectangle of a thread's part (`work_partition.py`)
        enter
        for each level, outermost first: blocks of rows and columns, chunks of what is summed, tiles
            before: what the level reads is brought into place
            the next level
            behind: what is done with finished sums

A kind of product says what its levels are and what is done at each of them. What they read lies *in
place*, is *packed* when it is loaded or as it is used, is *windows* of a tensor, *transformed*, or
*bytes*; the last level is that of register tiles. Products with weights of few bits
(`weight_only_quant/`) and those of a library (`blas/`) have loops of their own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.codegen.arithmetic import loop
from anydim.kernels.codegen.scalar_lowering import SizeParameters
from anydim.kernels.matmul.epilogue import Output
from anydim.kernels.matmul.matmul_kernel import ProductKernel
from anydim.kernels.matmul.register_tile import Tile
from anydim.kernels.matmul.work_partition import GRAIN, Sharing
from anydim.lang.tree import Group
from anydim.sizes import Size


@dataclass(frozen=True)
class Level:
    """A loop of the driver over start, start + step, ... below stop, and what is done in it."""

    index: str
    start: ir.Value | int
    stop: ir.Value | int
    step: ir.Value | int
    before: Sequence[ir.Step] = ()
    behind: Sequence[ir.Step] = ()


def nested(levels: Sequence[Level]) -> tuple[ir.Step, ...]:
    """The loops of levels, outermost first."""
    body: tuple[ir.Step, ...] = ()
    for at in reversed(levels):
        steps = (*at.before, *body, *at.behind)
        body = (loop(at.index, at.start, at.stop, at.step, *steps),)
    return body


class Blocked(ProductKernel):
    """A kernel whose threads share rectangles, by what a subclass says of their levels."""

    sharing: Sharing
    grain = GRAIN

    def __init__(
        self, group: Group, outputs: tuple[Output, ...], dtype: DType, tile: Tile,
        sizes: SizeParameters,
    ) -> None:  # fmt: skip
        super().__init__(group, outputs, dtype, tile.lanes, sizes)
        self.tile = tile

    @property
    def parallel(self) -> Size:
        return self.sharing.steps

    @property
    def done(self) -> str:
        """The register of `Sharing.rectangles`."""
        return ""

    @abstractmethod
    def made(self) -> Sequence[ir.Function]:
        """The functions that main calls."""

    @abstractmethod
    def levels(self) -> Sequence[Level]:
        """The loops of a rectangle."""

    def start(self) -> Sequence[ir.Step]:
        """What is done once, before all rectangles."""
        return ()

    def end(self) -> Sequence[ir.Step]:
        """What is done once, behind them."""
        return ()

    def enter(self) -> Sequence[ir.Step]:
        """What is done once for a rectangle."""
        return ()

    def rectangle(self) -> Sequence[ir.Step]:
        """All of a rectangle."""
        return (*self.enter(), *nested(self.levels()))

    def role(self, name: str, size: Size) -> ir.Value:
        """A size that threads share work by."""
        return self.sizes.value(size)

    # ---- the kernel ----------------------------------------------------------------------------

    def functions(self) -> tuple[ir.Function, ...]:
        made = self.made()
        rectangles = self.sharing.rectangles(self.role, self.rectangle(), self.done)
        return (*made, self.main((*self.start(), *rectangles, *self.end())))

    def needs(self, library: ir.Library) -> None:
        """One more library that is called."""
        if all(library.name != each.name for each in self.libraries):
            self.libraries = (*self.libraries, library)

    def sized(self, make: Callable[[], ir.Function]) -> ir.Function:
        """A function whose parameters are all sizes it turned out to need."""
        known = self.sizes.names
        function = make()
        return function if self.sizes.names == known else make()
