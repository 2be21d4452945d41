"""The template of 3 x 3 convolutions by Winograd's algorithm: a quarter of the products.

16 results of a 3 x 3 window take 36 products instead of 144, and additions before and after; the
weights are transformed when they are loaded and take four times the memory. Sums are of larger
terms than those of a plain convolution: errors are about ten times as large, some 1e-6 of the
largest result. `settings.winograd` turns it off.
"""

from __future__ import annotations

from functools import lru_cache

from anydim.base import settings
from anydim.base.dtypes import float32
from anydim.base.errors import InternalError
from anydim.kernels.launch import (
    Argument,
    Launch,
    Machine,
    ProductPanels,
    known_number,
    known_parts,
    moved_bytes,
)
from anydim.kernels.naming import named_kernel
from anydim.kernels.product.convolution.ending import Ending, ending_of
from anydim.kernels.product.convolution.form import Windows, windows_of
from anydim.kernels.product.convolution.places import Bound
from anydim.kernels.product.micro import Tile, tile_of
from anydim.kernels.product.sharing import GRAIN
from anydim.kernels.product.winograd.loops import WinogradWriter
from anydim.kernels.product.winograd.schedule import Winograd
from anydim.kernels.product.winograd.transforms import WEIGHTS
from anydim.kernels.schedule import print_schedule
from anydim.kernels.template import Template
from anydim.lang.tree import Group
from anydim.sizes import Box, product

_LEAST_CHANNELS = 16  # in and out: with fewer the transforms cost more than they save
_LEAST_SIDE = 10  # places: smaller images leave lanes empty and read larger weights


def match_winograd(
    group: Group, box: Box, machine: Machine, constants: frozenset[str]
) -> Winograd | None:
    """The schedule for a group; None when it is no fitting convolution, or it would not pay."""
    if not settings.winograd or _form(group, box, constants) is None:
        return None
    tile = tile_of(machine, float32)
    return Winograd(tile.rows, tile.vectors, tile.lanes, tile.unroll, 64 // tile.rows)


def lower_winograd(
    group: Group, schedule: Winograd, box: Box, machine: Machine, constants: frozenset[str]
) -> Launch:
    """The launch of a group by a schedule."""
    found = _form(group, box, constants)
    if found is None:
        raise InternalError("a group that is no convolution reached its lowering")
    form, ending = found
    writer = WinogradWriter(form, ending, schedule)
    functions = writer.functions()
    kernel = named_kernel(
        "winograd", writer.operands, writer.sizes.names, functions, writer.libraries
    )
    packing = _panels(form, schedule.tile)
    loops = product(walk.extent for walk in form.loops)
    return Launch(
        kernel=kernel,
        arguments=tuple(
            Argument(tensor, packing if role == "w" else None) for tensor, role in writer.roles
        ),
        sizes=writer.sizes.sizes,
        parallel=writer.sharing.steps,
        grain=GRAIN,
        scratch=writer.scratch,
        flops=2 * loops * form.rows * form.columns * form.k,
        moved=moved_bytes(group),
        schedule=print_schedule(schedule),
        reason="a 3 x 3 convolution in 36 products for 16 results (Winograd)",
        in_place=writer.in_place,
    )


TEMPLATE = Template("winograd", Winograd, match_winograd, lower_winograd, keeps=True)


@lru_cache(maxsize=512)
def _form(group: Group, box: Box, constants: frozenset[str]) -> tuple[Windows, Ending] | None:
    form = windows_of(group, box, constants)
    if form is None or form.w not in constants or form.dtype != float32:
        return None
    if len(form.places) != 2 or [tap.extent.constant for tap in form.taps] != [3, 3]:
        return None
    if any(place.x != tap.x for place, tap in zip(form.places, form.taps)):
        return None
    if form.places[1].x != 1 or not all(_is_plain(form, bound) for bound in form.bounds):
        return None
    if len({bound.place for bound in form.bounds}) != len(form.bounds):
        return None
    if not _pays(form):
        return None
    ending = ending_of(form, group)
    return None if ending is None else (form, ending)


def _is_plain(form: Windows, bound: Bound) -> bool:
    """Whether a bound is that of a place and its own tap, each stepping by one."""
    pairs = [(place.name, tap.name) for place, tap in zip(form.places, form.taps)]
    return (bound.place, bound.tap) in pairs and bound.stride == 1 and bound.spread == 1


def _pays(form: Windows) -> bool:
    counts = (form.channels.extent.constant or 0, form.rows.constant or 0)
    sides = [place.extent.constant for place in form.places]
    return min(counts) >= _LEAST_CHANNELS and all(s is None or s >= _LEAST_SIDE for s in sides)


def _panels(form: Windows, tile: Tile) -> ProductPanels:
    batch, k, rows = (known_parts(part) for part in form.w_parts)
    start = known_number(form.w_start)
    return ProductPanels(tile.rows, batch, k[:1], rows, start, taps=k[1:], matrix=WEIGHTS)
