"""The driver of blocked products: the loops of contractions, convolutions and products of bytes.

    for each rectangle of a thread's part (`sharing.py`)
        enter
        for each level, outermost first: blocks of rows and columns, chunks of what is summed, tiles
            before: what the level reads is brought into place
            the next level
            behind: what is done with finished sums

A kind of product says what its levels are and what is done at each of them. What they read lies *in
place*, is *packed* when it is loaded or as it is used, is *windows* of a tensor, *transformed*, or
*bytes*; the last level is that of register tiles. Products with weights of few bits (`narrow/`) and
those of a library (`blas/`) have loops of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.ir import variable
from anydim.kernels.launch import Argument, Launch, Machine, Packing, moved_bytes
from anydim.kernels.naming import named_kernel
from anydim.kernels.product.epilogue import Output
from anydim.kernels.product.kernel import (
    finish_of,
    main_function,
    operands_of,
    pointers_of,
    shared_names,
)
from anydim.kernels.product.micro import Tile
from anydim.kernels.product.sharing import GRAIN, Sharing
from anydim.kernels.schedule import print_schedule
from anydim.kernels.write.arithmetic import loop, summed
from anydim.kernels.write.elements import SizeParameters
from anydim.lang.tree import Group
from anydim.sizes import Size, as_size

BACKWARDS = "backwards"  # the size that is 1 where blocks of columns come in the opposite order


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


class Blocked(ABC):
    """Writes the functions of a kernel, and collects the sizes that it needs.

    `name` begins that of the kernel. `roles` are (tensor, operand) of its operands, those of
    `packed` tensors with their types; `buffers` the operands of tensors that lie as they are.
    `in_place` is as in `Launch`. An `ordered` kernel has a last size, `BACKWARDS`.
    """

    name: str
    ordered: bool = False
    libraries: tuple[ir.Library, ...] = ()
    sharing: Sharing
    in_place: tuple[tuple[str, str], ...] = ()
    packed: Mapping[str, DType] = {}
    roles: Sequence[tuple[str, str]]
    buffers: Mapping[str, str]

    def __init__(
        self, group: Group, outputs: tuple[Output, ...], dtype: DType, tile: Tile,
        sizes: SizeParameters,
    ) -> None:  # fmt: skip
        self.group, self.outputs, self.dtype, self.tile = group, outputs, dtype, tile
        self.sizes = sizes

    @property
    def done(self) -> str:
        """The register of `Sharing.rectangles`."""
        return ""

    @property
    @abstractmethod
    def scratch(self) -> Size:
        """Bytes of scratch."""

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

    @property
    def operands(self) -> tuple[ir.Operand, ...]:
        """The kernel's operands, in the order of their roles."""
        return operands_of(self.roles, self.packed, self.group, self.outputs)

    @property
    def pointers(self) -> tuple[ir.Pointer, ...]:
        """The operands as parameters of functions."""
        return pointers_of(self.operands, shared_names(self.in_place, self.buffers))

    def functions(self) -> tuple[ir.Function, ...]:
        """All functions of the kernel, main the last."""
        made = self.made()
        rectangles = self.sharing.rectangles(self.role, self.rectangle(), self.done)
        body = (*self.start(), *rectangles, *self.end())
        return (*made, main_function(self.name, self.pointers, self._size_names, body))

    @property
    def _size_names(self) -> tuple[str, ...]:
        return (*self.sizes.names, BACKWARDS) if self.ordered else self.sizes.names

    def needs(self, library: ir.Library) -> None:
        """One more library that is called."""
        if all(library.name != each.name for each in self.libraries):
            self.libraries = (*self.libraries, library)

    def sized(self, make: Callable[[], ir.Function]) -> ir.Function:
        """A function whose parameters are all sizes it turned out to need."""
        known = self.sizes.names
        function = make()
        return function if self.sizes.names == known else make()

    def finish_function(self, loops: Iterable[str], machine: Machine) -> ir.Function:
        """What computes outputs from the sums of a tile, see `finish.py`."""
        return finish_of(
            self.group, self.outputs, self.dtype, self.tile.lanes, loops, self.sizes, machine,
            self.buffers, self.pointers,
        )  # fmt: skip

    def at(self, start: Size | int, steps: Iterable[tuple[str, Size]]) -> ir.Value:
        """start and, for each loop, its index times the elements between neighbours."""
        value = self.sizes.value
        return summed(value(start), *(variable(name) * value(by) for name, by in steps))

    def launch(
        self, schedule: object, packings: Mapping[str, Packing | None], work: Size, reason: str
    ) -> Launch:
        """The launch of a product of `work` multiply-adds; `packings` are those of operands."""
        functions, sizes = self.functions(), self.sizes.sizes
        return Launch(
            kernel=named_kernel(
                self.name, self.operands, self._size_names, functions, self.libraries
            ),
            arguments=tuple(Argument(tensor, packings.get(role)) for tensor, role in self.roles),
            sizes=(*sizes, as_size(0)) if self.ordered else sizes,
            parallel=self.sharing.steps,
            grain=GRAIN,
            scratch=self.scratch,
            flops=2 * work,
            moved=moved_bytes(self.group),
            schedule=print_schedule(schedule),
            reason=reason,
            order=len(sizes) if self.ordered else None,
            in_place=self.in_place,
        )


def roles_of(
    factors: Iterable[tuple[str, str]], packed: Iterable[str], read: Iterable[str],
    written: Iterable[str],
) -> tuple[tuple[tuple[str, str], ...], dict[str, str]]:  # fmt: skip
    """(tensor, operand) of factors, of what else is read, of results; and operands of tensors.

    A packed factor is an operand of its own; any other tensor is one, however often it is read.
    """
    apart = set(packed)
    roles: list[tuple[str, str]] = []
    buffers: dict[str, str] = {}
    for tensor, role in factors:
        if role in apart or tensor not in buffers:
            roles.append((tensor, role))
        if role not in apart:
            buffers.setdefault(tensor, role)
    for letter, tensors in (("r", read), ("y", written)):
        for tensor in tensors:
            if tensor not in buffers:
                buffers[tensor] = f"{letter}{len(roles)}"
                roles.append((tensor, buffers[tensor]))
    return tuple(roles), buffers
