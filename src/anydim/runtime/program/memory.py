"""The memory of a call, known before it runs: a formula, its bound, and the sizes that fit a limit.

It counts what a call allocates itself: intermediate values and the scratch of all threads in one
arena, and cached values of its sizes. In programs with data-dependent control flow, results count
as intermediate values. Inputs, caller-owned results, and constants, which all calls share, are
listed separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property

from anydim.base.amounts import exact_bytes_text
from anydim.base.errors import DimError, MemoryLimitError
from anydim.base.records import dataclass
from anydim.base.sheet import Sheet, Shown
from anydim.base.text import COLUMNS, hanging
from anydim.base.user_values import by_names, text_of, whole_within
from anydim.runtime.program.binding import check_names, check_sizes
from anydim.runtime.program.program import Program
from anydim.runtime.program.region_plan import needs, values_at
from anydim.runtime.program.segment import ALIGNMENT
from anydim.runtime.ragged import check_totals
from anydim.runtime.signature import TensorSpec
from anydim.sizes import (
    LARGEST,
    Box,
    Dim,
    Guard,
    Size,
    SizeNames,
    as_size,
    bounds,
    given_sizes,
    largest_value,
)


@dataclass(frozen=True)
class Memory(Shown):
    """The maximum memory of a call, as formulas over the dims, in bytes.

    `arena`: intermediate values of segments and scratch; `values`: values between steps with
    data-dependent control flow; `kept`: cached values that depend on sizes alone. Not in `bytes`:
    `inputs` and `outputs`, the arrays of a call; `constants`, shared by all calls.

    `devices` has the part of `bytes` on each device of the program, and on the host, 'cpu';
    `constants_on` the bytes of constants on each device, which are copies.
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
    totals: tuple[Guard, ...] = ()  # relations between the sizes of a ragged batch
    elsewhere: Mapping[str, Size] = field(default_factory=dict)  # bytes on devices
    constants_on: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def bytes(self) -> Size:
        """The sum of values, arena and cached values."""
        return self.values + self.arena + self.kept

    @property
    def devices(self) -> Mapping[str, Size]:
        """`bytes` per device; 'cpu' is the host."""
        return {"cpu": self.bytes - sum(self.elsewhere.values(), as_size(0)), **self.elsewhere}

    @cached_property
    def bound(self) -> int | None:
        """An upper bound of `bytes` over the box, or None."""
        return bounds(self.bytes, self.box).hi

    def at(self, /, **sizes: int) -> int:
        """Return the bytes at given sizes.

        Raises DimError unless they are a point of the box, and for totals that no rows of a ragged
        batch have.
        """
        sizes = given_sizes(self.name, sizes)
        check_sizes(self.name, self.box, sizes)
        check_totals(self.name, self.totals, sizes)
        return self.bytes.evaluate(sizes)

    def largest(self, dim: str, limit: int, sizes: Mapping[str, int]) -> int | None:
        """Return the largest size of a dim at which a call needs at most `limit` bytes; None:
        unlimited.

        `sizes` has the other dims; missing ones count with their upper bound. The result is the
        largest of all fitting sizes, even if a smaller one needs more. Raises DimError for unknown
        dims and for a missing one without upper bound, MemoryLimitError if no size fits.
        """
        limit = whole_within("the limit", limit, 0, LARGEST, "give a number of bytes")
        dim = text_of("the dim", dim)
        given = given_sizes(self.name, by_names("sizes", sizes))
        others = {name: size for name, size in given.items() if name != dim}
        check_names(self.name, self.box, (dim, *others))
        box = Box(tuple(_fix_dim(each, others) for each in self.box.dims), self.box.constraints)
        most, unknown = values_at(box, others)
        for name in unknown:
            if name != dim:
                raise DimError(f"{self.name}: dim '{name}' has no size and no upper bound",
                               "give its size")  # fmt: skip
        del most[dim]
        within, needed = box.enclosure.ranges[dim], self.bytes.substitute(most)
        known = {dim, *others}  # a missing dim has no size that totals could contradict
        totals = (guard for guard in self.totals if guard.symbols <= known)
        every = (*self.guards, *_not_negative(box), *totals)
        guards = [guard.substitute(most) for guard in every]
        guards = [guard for guard in guards if dim in guard.symbols]
        everywhere = Box.of(Dim(dim, self.box.dim(dim).lo))
        if within.hi is None and not guards and bounds(needed, everywhere).high <= limit:
            return None
        low = max(within.lo or 0, 0)
        found = largest_value(needed, dim, low, within.hi, limit, guards)
        if found is None:
            at = "".join(f" at {name} = {value}" for name, value in most.items())
            raise MemoryLimitError(
                f"{self.name}: no size of '{dim}' fits in {exact_bytes_text(limit)}{at}",
                f"{dim} = {low} takes {exact_bytes_text(needed.evaluate({dim: low}))}",
            )
        return found

    def _sheet(self) -> Sheet:
        """The formulas, and what they come to at most."""
        parts = (("values", self.values), ("arena", self.arena), ("kept", self.kept))
        taken = [(name, size) for name, size in parts if size != 0]
        shown = [self.bytes, self.inputs, self.outputs]
        names = _names(*shown, *(size for _, size in taken if len(taken) > 1))
        return Sheet(
            f"memory of a call of {self.name}, in bytes",
            (
                ("bytes", names.text(self.bytes)),
                *(("where", line) for line in names.lines()),
                ("bound", "none" if self.bound is None else exact_bytes_text(self.bound)),
                ("dims", str(self.box) or "none"),
                *((f"of these, {name}", names.text(s)) for name, s in taken if len(taken) > 1),
                *((f"on '{name}'", names.text(s)) for name, s in self.elsewhere.items()),
                ("inputs", names.text(self.inputs)),
                ("outputs", names.text(self.outputs)),
                ("constants", exact_bytes_text(self.constants)),
                *(
                    (f"copied to '{name}'", exact_bytes_text(bytes))
                    for name, bytes in self.constants_on.items()
                ),
            ),
        )

    def __str__(self) -> str:
        lines = enumerate(self.lines())
        return "\n".join(hanging(line, "  " if at else "", "    ") for at, line in lines)

    def lines(self) -> Iterator[str]:
        """Yield its text: the formula and its bound, then the names of sizes in a long formula."""
        limit = "without bound" if self.bound is None else f"at most {exact_bytes_text(self.bound)}"
        names, box = _names(self.bytes), str(self.box) or "its only size"
        yield f"{names.text(self.bytes)} bytes, {limit} for {box}"
        yield from (f"where {line}" for line in names.lines())

    __repr__ = Shown.__repr__


def _names(*sizes: Size) -> SizeNames:
    """Return names of the parts of sizes, none unless one is longer than a line."""
    return SizeNames(sizes if max(len(str(size)) for size in sizes) > COLUMNS else ())


def _fix_dim(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    """Return the dim fixed to its size; raises DimError outside its bounds."""
    if dim.name not in sizes:
        return dim
    if sizes[dim.name] not in dim:
        raise DimError(f"dim '{dim.name}' is {sizes[dim.name]}, outside its bounds {dim.range}")
    return Dim(dim.name, sizes[dim.name], sizes[dim.name])


def _not_negative(box: Box) -> list[Guard]:
    return [Guard(as_size(0), "<=", constraint, "") for constraint in box.constraints]


def memory(program: Program) -> Memory:
    """Return the memory of a call of a program."""
    known, signature = needs(program), program.signature
    return Memory(
        signature.name, known.values, known.arena, _total(signature.inputs),
        _total(signature.outputs), sum(constant.bytes for constant in program.constants),
        known.box, signature.guards, known.kept,
        elsewhere={name: known.devices[name] for name in program.devices},
        constants_on={name: _constants_on(program, name) for name in program.devices},
    )  # fmt: skip


def _constants_on(program: Program, device: str) -> int:
    """Return the bytes of constants in the memory of a device, each aligned; at least 64, which
    values without bytes share."""
    names = {name for each in program.segments if each.device == device for name in each.constants}
    for region in program.regions:
        held = region.constants.items()
        names |= {name for value, name in held if region.devices.get(value) == device}
    bytes = {constant.name: constant.bytes for constant in program.constants}
    return max(ALIGNMENT, sum(-(-bytes[name] // ALIGNMENT) * ALIGNMENT for name in names))


def _total(specs: tuple[TensorSpec, ...]) -> Size:
    return sum((spec.bytes for spec in specs), as_size(0))
