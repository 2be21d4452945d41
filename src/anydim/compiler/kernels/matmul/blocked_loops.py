"""The loop driver of blocked products: contractions, convolutions and int8 products.

    for each rectangle of a thread's part (`work_partition.py`)
        enter
        for each level, outermost first: blocks of rows and columns, chunks of k, tiles
            before: copies or packs what the level reads
            the next level
            after: processes finished sums

Each kind of product defines its levels and the steps of each level. An operand is read in place,
is *packed* when the program is loaded or on use, consists of *windows* of a tensor, is
*transformed*, or holds *bytes*; the last level runs register tiles. Products with weights of few
bits (`weight_only_quant/`) and products by a library (`blas/`) have loops of their own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import loop
from anydim.compiler.kernels.codegen.scalar_lowering import SizeParameters
from anydim.compiler.kernels.matmul.epilogue import Output
from anydim.compiler.kernels.matmul.matmul_kernel import ProductKernel
from anydim.compiler.kernels.matmul.register_tile import Tile
from anydim.compiler.kernels.matmul.work_partition import WorkPartition
from anydim.lang.tree import Group
from anydim.sizes import Size


@dataclass(frozen=True)
class Level:
    """A loop of the driver over start, start + step, ... below stop, with its steps."""

    index: str | ir.Var
    start: ir.Value | int
    stop: ir.Value | int
    step: ir.Value | int
    before: Sequence[ir.Step] = ()
    after: Sequence[ir.Step] = ()


def nest_levels(levels: Sequence[Level]) -> tuple[ir.Step, ...]:
    """Return the loops of levels, outermost first."""
    body: tuple[ir.Step, ...] = ()
    for at in reversed(levels):
        steps = (*at.before, *body, *at.after)
        body = (loop(at.index, at.start, at.stop, at.step, *steps),)
    return body


class Blocked(ProductKernel):
    """A kernel whose threads share rectangles; a subclass defines the levels of a rectangle."""

    partition: WorkPartition

    def __init__(
        self, group: Group, outputs: tuple[Output, ...], dtype: DType, tile: Tile,
        sizes: SizeParameters,
    ) -> None:  # fmt: skip
        super().__init__(group, outputs, dtype, tile.lanes, sizes)
        self.tile = tile

    @property
    def grain(self) -> int:  # type: ignore[override]
        return self.partition.grain

    @property
    def parallel(self) -> Size:
        return self.partition.steps

    @property
    def done(self) -> str:
        """The register that `WorkPartition.rectangles` uses."""
        return ""

    @abstractmethod
    def callees(self) -> Sequence[ir.Function]:
        """Return the functions that main calls."""

    @abstractmethod
    def levels(self) -> Sequence[Level]:
        """Return the loops of a rectangle."""

    def start(self) -> Sequence[ir.Step]:
        """Return the steps that run once, before all rectangles."""
        return ()

    def end(self) -> Sequence[ir.Step]:
        """Return the steps that run once, after all rectangles."""
        return ()

    def enter(self) -> Sequence[ir.Step]:
        """Return the steps that run once per rectangle."""
        return ()

    def rectangle(self) -> Sequence[ir.Step]:
        """Return all steps of a rectangle."""
        return (*self.enter(), *nest_levels(self.levels()))

    def role(self, name: str, size: Size) -> ir.Value:
        """Return a size by which threads share work."""
        return self.sizes.value(size)

    # ---- the kernel ----------------------------------------------------------------------------

    def functions(self) -> tuple[ir.Function, ...]:
        made = self.callees()
        rectangles = self.partition.rectangles(self.role, self.rectangle(), self.done)
        return (*made, self.main((*self.start(), *rectangles, *self.end())))

    def needs(self, library: ir.Library) -> None:
        """Add a library that the kernel calls, once."""
        if all(library.name != each.name for each in self.libraries):
            self.libraries = (*self.libraries, library)

    def with_all_sizes(self, make: Callable[[], ir.Function]) -> ir.Function:
        """Return a function whose parameters include every size it uses."""
        known = self.sizes.names
        function = make()
        return function if self.sizes.names == known else make()
