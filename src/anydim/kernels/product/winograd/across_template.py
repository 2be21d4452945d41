"""The template of Winograd's 3 x 3 convolutions of tensors whose channels lie last.

As `template.py`, but for how tensors lie; where sizes are open, a kernel has both ways too.
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
from anydim.kernels.product.contraction.form import COLUMN, ROW, form_of
from anydim.kernels.product.contraction.template import lower_contraction, match_contraction
from anydim.kernels.product.convolution.ending import ending
from anydim.kernels.product.either import either_launch
from anydim.kernels.product.micro import Tile, tile_of
from anydim.kernels.product.sharing import GRAIN, from_on
from anydim.kernels.product.winograd.across import (
    OWN_BIAS,
    AcrossWriter,
    Images,
    WinogradAcross,
)
from anydim.kernels.product.winograd.transforms import PRODUCTS, WEIGHTS
from anydim.kernels.schedule import print_schedule
from anydim.kernels.template import Template
from anydim.lang.tree import Group
from anydim.lang.tree.affine import Affine
from anydim.sizes import Box, Size, as_size, ceil_div, maximum, product

_LEAST_CHANNELS = 16  # in and out: with fewer the transforms cost more than they save
_TRANSFORM, _COPY = 8_000, 10  # multiply-adds that a vector of a window, a copied number take
_VECTOR = 16
_READ, _FROM_MEMORY = ((1 << 19, 0), (1 << 22, 7)), 26  # up to so many weights; see `_read`
_BLOCK, _LARGE_BLOCK = 32, 64  # windows of a block, and where the weights come from memory
_MANY_WEIGHTS = 1 << 22


def match_across(
    group: Group, box: Box, machine: Machine, constants: frozenset[str]
) -> WinogradAcross | None:
    """The schedule for a group; None when it is no fitting convolution, or it would not pay."""
    found = _images(group, box, constants, machine) if settings.winograd else None
    if found is None:
        return None
    tile = tile_of(machine, float32)
    block = _block(found) // tile.rows * tile.rows
    return WinogradAcross(tile.rows, tile.vectors, tile.lanes, tile.unroll, block)


def lower_across(
    group: Group, schedule: WinogradAcross, box: Box, machine: Machine, constants: frozenset[str]
) -> Launch:
    """The launch of a group by a schedule."""
    found = _images(group, box, constants, machine)
    if found is None:
        raise InternalError("a group that is no convolution reached its lowering")
    transformed = _transformed(group, found, schedule)
    choice, proposed = _pays(found), match_contraction(group, box, machine, constants)
    if choice.constant is not None or proposed is None:
        return transformed
    plain = lower_contraction(group, proposed, box, machine, constants)
    reason = f"{transformed.reason}; small images: {plain.reason}"
    return either_launch(choice, transformed, plain, reason)


def _block(images: Images) -> int:
    """Windows that use the weights together."""
    weights = (PRODUCTS * images.channels * images.form.n.extent).constant or 0
    return _LARGE_BLOCK if weights > _MANY_WEIGHTS else _BLOCK


def _transformed(group: Group, images: Images, schedule: WinogradAcross) -> Launch:
    """The launch that transforms every window."""
    writer, form = AcrossWriter(images, schedule), images.form
    functions = writer.functions()
    kernel = named_kernel(
        "winograd_across", writer.operands, writer.sizes.names, functions, writer.libraries
    )
    packing = _panels(images, schedule.tile)
    return Launch(
        kernel=kernel,
        arguments=tuple(
            Argument(tensor, packing if role == "w" else None) for tensor, role in writer.roles
        ),
        sizes=writer.sizes.sizes,
        parallel=writer.sharing.steps,
        grain=GRAIN,
        scratch=writer.scratch,
        flops=2 * form.m.extent * form.n.extent * form.k.extent,
        moved=moved_bytes(group),
        schedule=print_schedule(schedule),
        reason="a 3 x 3 convolution in 36 products for 16 results (Winograd), along channels",
        in_place=writer.in_place,
    )


TEMPLATE = Template("winograd_across", WinogradAcross, match_across, lower_across, keeps=True)


@lru_cache(maxsize=512)
def _images(group: Group, box: Box, constants: frozenset[str], machine: Machine) -> Images | None:
    form = form_of(group, constants, machine, box, starts=False)
    side = None if form is None else form.windows
    if form is None or side is None or form.dtype != float32 or form.loops:
        return None
    sums = [extent.constant for extent, _ in form.b_parts[1]]
    if sums[:2] != [3, 3] or len(sums) != 3 or len(side.taps) != 1:
        return None
    if len(side.places) not in (2, 3):
        return None
    rows, columns = side.places[-2:]
    channels = form.b_parts[1][-1][0]
    if rows.x != side.taps[0].x or columns.x != channels or side.run != 3 * channels:
        return None
    tap = "" if side.tap is None else side.tap.name
    pairs = ((rows.name, side.taps[0].name), (columns.name, tap))
    plain = (b.stride == 1 and b.spread == 1 and (b.place, b.tap) in pairs for b in side.bounds)
    if not all(plain) or len({b.place for b in side.bounds}) != len(side.bounds):
        return None
    if min(channels.constant or 0, form.n.extent.constant or 0) < _LEAST_CHANNELS:
        return None
    own = Affine.of(as_size(0), {ROW: form.m.c, COLUMN: as_size(1)})
    last = ending(form.outputs, form.dtype, group, own, OWN_BIAS)
    found = None if last is None else Images(form, last, side.places, side.bounds)
    return None if found is None or _pays(found).constant == 0 else found


def _pays(images: Images) -> Size:
    """1 where it takes less time than a plain product of windows, else 0.

    As for a single image, so that it has the same bits in every batch. In multiply-adds: products,
    weights that no cache holds, both transforms. Measured on a Xeon with AVX-512 (16 to 512
    channels, 2 x 2 to 28 x 28): the slower way is taken for one image where it is 1.18 at most.
    """
    channels, columns, windows = images.channels, images.form.n.extent, product(images.across)
    places = product(place.extent for place in images.places[-2:])
    weights = channels * columns
    vectors = ceil_div(channels, _VECTOR) + ceil_div(columns, _VECTOR)
    transformed = PRODUCTS * weights
    blocks = ceil_div(windows, _block(images))
    taken = transformed * (maximum(windows, 4) + _read(transformed) * blocks)
    plain = 9 * places * (weights * 9 // 10 + _COPY * channels)
    plain = plain + 9 * weights * _read(9 * weights)
    return from_on(plain - taken - _TRANSFORM * windows * vectors, 0)


def _read(weights: Size) -> int:
    """Multiply-adds in the time that a weight takes to come."""
    return next((each for most, each in _READ if (weights.constant or 0) <= most), _FROM_MEMORY)


def _panels(images: Images, tile: Tile) -> ProductPanels:
    batch, k, n = (known_parts(part) for part in images.form.b_parts)
    start = known_number(images.form.b_start)
    return ProductPanels(tile.width, batch, k[2:], n, start, taps=k[:2], matrix=WEIGHTS)
