"""The memory of a call, known before it runs: a formula, its bound, what fits a limit.

What counts is what a call takes of its own: values between its kernels and the scratch of all
threads, in one arena, and what is kept for its sizes. Where data decides what runs, the results are
among the values. Inputs, results that belong to the caller and constants, which all calls share,
are shown beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property

from anydim.base.amounts import told_bytes
from anydim.base.errors import DimError, MemoryLimitError
from anydim.base.given import by_names, text_of, whole_within
from anydim.base.records import dataclass
from anydim.base.sheet import Sheet, Shown
from anydim.program.binding import check_names, check_sizes
from anydim.program.program import Program
from anydim.program.region_plan import needs, values_at
from anydim.runtime.signature import TensorSpec
from anydim.sizes import (
    LARGEST,
    Box,
    Dim,
    Guard,
    Size,
    as_size,
    bounds,
    given_sizes,
    largest_value,
)


@dataclass(frozen=True)
class Memory(Shown):
    """The most bytes that a call takes of its own, as formulas over the dims.

    `arena` is that of values between kernels and of scratch, `values` are those between steps where
    data decides what runs, `kept` what depends on sizes alone and serves all calls with these
    sizes. `inputs` and `outputs` are the arrays of a call, `constants` bytes that
    all calls share; they are not in `bytes`.
    """

    name: str
    values: Size
    arena: Size
    inputs: Size
    outputs: Size
    constants: int
    box: Box
    guards: tuple[Guard, ...]
    kept: Size = field(default_factory=lambda: as_size(0))

    @cached_property
    def bytes(self) -> Size:
        """Values, arena and what is kept together."""
        return self.values + self.arena + self.kept

    @property
    def devices(self) -> Mapping[str, Size]:
        """`bytes` on each device."""
        return {"cpu": self.bytes}

    @cached_property
    def bound(self) -> int | None:
        """An upper bound of `bytes` over the box; None when there is none."""
        return bounds(self.bytes, self.box).hi

    def at(self, **sizes: int) -> int:
        """Bytes at given sizes; raises DimError when they are not a point of the box."""
        sizes = given_sizes(self.name, sizes)
        check_sizes(self.name, self.box, sizes)
        return self.bytes.evaluate(sizes)

    def largest(self, dim: str, limit: int, sizes: Mapping[str, int]) -> int | None:
        """The largest size of a dim at which a call stays within `limit` bytes; None: any does.

        `sizes` gives the other dims; one that is left out counts with its upper bound. It is the
        largest of all, also where a smaller one needs more. Raises DimError for unknown dims and
        for one left out that has no bound, MemoryLimitError where no size of the dim fits.
        """
        limit = whole_within("the limit", limit, 0, LARGEST, "give a number of bytes")
        dim = text_of("the dim", dim)
        given = given_sizes(self.name, by_names("sizes", sizes))
        others = {name: size for name, size in given.items() if name != dim}
        check_names(self.name, self.box, (dim, *others))
        box = Box(tuple(_fixed(each, others) for each in self.box.dims), self.box.constraints)
        most, unknown = values_at(box, others)
        for name in unknown:
            if name != dim:
                raise DimError(f"{self.name}: dim '{name}' has no size and no upper bound",
                               "give its size")  # fmt: skip
        del most[dim]
        within, needed = box.enclosure.ranges[dim], self.bytes.substitute(most)
        guards = [guard.substitute(most) for guard in (*self.guards, *_not_negative(box))]
        guards = [guard for guard in guards if dim in guard.symbols]
        everywhere = Box.of(Dim(dim, self.box.dim(dim).lo))
        if within.hi is None and not guards and bounds(needed, everywhere).high <= limit:
            return None
        low = max(within.lo or 0, 0)
        found = largest_value(needed, dim, low, within.hi, limit, guards)
        if found is None:
            at = "".join(f" at {name} = {value}" for name, value in most.items())
            raise MemoryLimitError(
                f"{self.name}: no size of '{dim}' fits in {told_bytes(limit)}{at}",
                f"{dim} = {low} takes {told_bytes(needed.evaluate({dim: low}))}",
            )
        return found

    def _sheet(self) -> Sheet:
        """The formulas, and what they come to at most."""
        parts = (("values", self.values), ("arena", self.arena), ("kept", self.kept))
        taken = [(name, size) for name, size in parts if size != 0]
        return Sheet(
            f"memory of a call of {self.name}, in bytes",
            (
                ("bytes", str(self.bytes)),
                ("bound", "none" if self.bound is None else told_bytes(self.bound)),
                ("dims", str(self.box) or "none"),
                *((f"of these, {name}", str(size)) for name, size in taken if len(taken) > 1),
                ("inputs", str(self.inputs)),
                ("outputs", str(self.outputs)),
                ("constants", told_bytes(self.constants)),
            ),
        )

    def __str__(self) -> str:
        limit = "without bound" if self.bound is None else f"at most {told_bytes(self.bound)}"
        return f"{self.bytes} bytes, {limit} for {str(self.box) or 'its only size'}"

    __repr__ = Shown.__repr__


def _fixed(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    """Raises DimError for a size outside the bounds of a dim."""
    if dim.name not in sizes:
        return dim
    if sizes[dim.name] not in dim:
        raise DimError(f"dim '{dim.name}' is {sizes[dim.name]}, outside its bounds {dim.range}")
    return Dim(dim.name, sizes[dim.name], sizes[dim.name])


def _not_negative(box: Box) -> list[Guard]:
    return [Guard(as_size(0), "<=", constraint, "") for constraint in box.constraints]


def memory(program: Program) -> Memory:
    """The memory of a call of a program."""
    known, signature = needs(program), program.signature
    return Memory(
        signature.name, known.values, known.arena, _total(signature.inputs),
        _total(signature.outputs), sum(constant.bytes for constant in program.constants),
        known.box, signature.guards, known.kept,
    )  # fmt: skip


def _total(specs: tuple[TensorSpec, ...]) -> Size:
    return sum((spec.bytes for spec in specs), as_size(0))
