"""The template of 3 x 3 convolutions by Winograd's algorithm: a quarter of the products.

16 results of a 3 x 3 window take 36 products instead of 144, and additions before and after; the
weights are transformed when they are loaded and take four times the memory. Sums are of larger
terms than those of a plain convolution: errors are about ten times as large, some 1e-6 of the
largest result. `settings.winograd` turns it off.

Small images, and rows of few windows, take a plain convolution less time. Where sizes are open, the
kernel has both, and the weights are there for both.
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
from anydim.kernels.product.convolution.template import lower_convolution, match_convolution
from anydim.kernels.product.either import either_launch
from anydim.kernels.product.micro import Tile, tile_of
from anydim.kernels.product.places import Bound
from anydim.kernels.product.sharing import GRAIN, from_on
from anydim.kernels.product.winograd.loops import WinogradWriter
from anydim.kernels.product.winograd.schedule import Winograd
from anydim.kernels.product.winograd.transforms import PRODUCTS, WEIGHTS, windows_across
from anydim.kernels.schedule import print_schedule
from anydim.kernels.template import Template
from anydim.lang.tree import Group
from anydim.sizes import Box, Size, align_up, ceil_div, product

_LEAST_CHANNELS = 16  # in and out: with fewer the transforms cost more than they save
_READ, _TRANSFORM, _PACK = 24, 12_000, 20  # multiply-adds that a number, a vector, a window takes
_VECTOR, _PANEL = 16, 48  # windows


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
    transformed = _transformed(group, *found, schedule)
    choice, proposed = _pays(found[0]), match_convolution(group, box, machine, constants)
    if choice.constant is not None or proposed is None:
        return transformed
    plain = lower_convolution(group, proposed, box, machine, constants)
    reason = f"{transformed.reason}; small images: {plain.reason}"
    return either_launch(choice, transformed, plain, reason)


def _transformed(group: Group, form: Windows, ending: Ending, schedule: Winograd) -> Launch:
    """The launch that transforms every window."""
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
    if min(form.channels.extent.constant or 0, form.rows.constant or 0) < _LEAST_CHANNELS:
        return None
    if _pays(form).constant == 0:
        return None
    ending = ending_of(form, group)
    return None if ending is None else (form, ending)


def _is_plain(form: Windows, bound: Bound) -> bool:
    """Whether a bound is that of a place and its own tap, each stepping by one."""
    pairs = [(place.name, tap.name) for place, tap in zip(form.places, form.taps)]
    return (bound.place, bound.tap) in pairs and bound.stride == 1 and bound.spread == 1


def _pays(form: Windows) -> Size:
    """1 where it takes less time than a plain convolution, else 0.

    In multiply-adds: products of whole vectors; weights, for each panel of windows, from memory;
    both transforms, a row of a vector's windows at a time. Measured on a Xeon with AVX-512 (16 to
    512 channels, 1 x 1 to 56 x 56, 1000 x 3): the slower way is taken where it is 1.16 at most.
    """
    down, along = windows_across(form)
    channels, rows, windows = form.channels.extent, form.rows, down * along
    weights = channels * rows
    products = PRODUCTS * align_up(windows, _VECTOR) + PRODUCTS * _READ * ceil_div(windows, _PANEL)
    transforms = _TRANSFORM * down * ceil_div(along, _VECTOR) * (channels + rows)
    taps = 9 * align_up(form.columns, _VECTOR)
    plain = taps * weights * 7 // 5 + _PACK * taps * channels
    return from_on(plain - products * weights - transforms, 0)


def _panels(form: Windows, tile: Tile) -> ProductPanels:
    batch, k, rows = (known_parts(part) for part in form.w_parts)
    start = known_number(form.w_start)
    return ProductPanels(tile.rows, batch, k[:1], rows, start, taps=k[1:], matrix=WEIGHTS)
