"""Costs of products and windows with channels first or last, in multiply-adds, at some sizes.

Vectors run along pixels with channels first, along channels with channels last; partially filled
vectors waste lanes. The constants were measured on a Xeon with AVX-512, those of pointwise (1x1)
layers on a Zen 4, one thread (kernels/matmul/convolution/notes.md).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy

from anydim.base.dtypes import float32
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.passes.image_channels import factors, slides
from anydim.lang.tree import Axis, Index, Read, Statement
from anydim.lang.tree.affine import affine, reads
from anydim.sizes import Size, product

MOVED = 150  # per element transposed between producer and reader
COPIED = 30  # per element of a plain copy
_LANES, _PANEL, _ROWS = 16, 48, 8
_PACK = 20  # per window element packed into a panel
_STORED_FIRST, _LOADED_LAST, _STORED_LAST = 17, 3, 9  # per element of a pointwise layer
_OWN_FIRST, _OWN_LAST = 3, 2  # per tap of a depthwise window
_MIN_CHANNELS = 16  # channels for Winograd's algorithm
UNFIT = numpy.array(numpy.inf)

At = Callable[[Size], numpy.ndarray]  # evaluates a size at the points


@dataclass(frozen=True)
class Times:
    """Times of a statement in both layouts [points]; `last` is infinite without a kernel for it.

    `source` is the operand; with `follows` its layout is arbitrary for a result that is stored
    channels last.
    """

    first: numpy.ndarray
    last: numpy.ndarray
    source: str
    follows: bool


@dataclass(frozen=True)
class _Form:
    """Work counts: batches, output pixels, channels of result and input, taps.

    Windows are `near` if their stride and dilation are 1.
    """

    batch: numpy.ndarray
    pixels: list[numpy.ndarray]
    made: numpy.ndarray
    read: numpy.ndarray
    taps: numpy.ndarray
    near: bool

    @property
    def is_transformed(self) -> bool:
        """Whether Winograd's algorithm applies."""
        least = min(self.read.min(initial=_MIN_CHANNELS), self.made.min(initial=_MIN_CHANNELS))
        plain = self.near and len(self.pixels) == 2 and bool((self.taps == 9).all())
        return plain and least >= _MIN_CHANNELS


def times_of(statement: Statement, channel: int, graph: Graph, at: At) -> Times | None:
    """Times of a reduction with channels at dimension `channel` of its result; else None."""
    found = [read for read in reads(statement.body) if read.tensor not in graph.constants]
    if not statement.combine or not found or channel + 1 >= len(statement.axes):
        return None
    name = statement.axes[channel].name
    read, weights = factors(statement, graph)
    slid = any(slides(index, statement) for r in found if not r.flat for index in r.indices)
    if read is None or weights is None or read.flat:
        if not slid:
            return None
        held = [r for r in found if name in free_axes(r)]  # the rest: Resize weights
        read, fits = (held or found)[0], len(held) == 1
    else:
        fits = graph.types[read.tensor].dtype == graph.types[weights.tensor].dtype == float32
    own = name in free_axes(read)
    for index in read.indices:
        form = affine(index)
        if form is None:
            fits = fits and name not in free_axes(
                index
            )  # groups of channels; other indices are table indices
        elif len(form.indices) > 1 and form.stride(name) == 1:
            fits = False  # overlapping windows of channels
    first, last = (_own_first, _own_last) if own else (_first, _last)
    work = _form(statement, channel, read, at)
    return Times(first(work), last(work) if fits else UNFIT, read.tensor, follows=not own)


def _form(statement: Statement, channel: int, read: Read, at: At) -> _Form:
    whole = {index.name for index in read.indices if isinstance(index, Index)}
    channels = [axis for axis in statement.reduced if axis.name in whole]
    taps = [axis for axis in statement.reduced if axis not in channels]

    def count(axes: list[Axis] | tuple[Axis, ...]) -> numpy.ndarray:
        return at(product(axis.extent for axis in axes))

    forms = [affine(index) for index in read.indices]
    inner = statement.axes[channel + 1 :]
    return _Form(
        count(statement.axes[:channel]), [at(axis.extent) for axis in inner],
        at(statement.axes[channel].extent), count(channels), count(taps),
        near=all(
            f is not None and f.stride(a.name) in (0, 1) for f in forms for a in (*inner, *taps)
        ),
    )  # fmt: skip


def _first(form: _Form) -> numpy.ndarray:
    """Dense convolution, channels first: the faster of direct and Winograd."""
    columns = _round_up(numpy.prod(form.pixels, axis=0), _LANES)
    taps = form.taps * columns
    if (form.taps == 1).all():
        return form.batch * columns * (form.read + _STORED_FIRST) * form.made
    plain = taps * form.read * form.made * 1.4 + _PACK * taps * form.read
    return form.batch * (
        numpy.minimum(plain, _winograd_cost(form)) if form.is_transformed else plain
    )


def _winograd_cost(form: _Form) -> numpy.ndarray:
    """Winograd's algorithm, channels first, as its template counts."""
    down, along = (numpy.ceil(extent / 4) for extent in form.pixels)
    windows = down * along
    products = 36 * (_round_up(windows, _LANES) + 24 * numpy.ceil(windows / _PANEL))
    transforms = 12_000 * down * numpy.ceil(along / _LANES) * (form.read + form.made)
    return products * form.read * form.made + transforms


def _last(form: _Form) -> numpy.ndarray:
    """Dense convolution, channels last: pixels of all images are rows."""
    rows, made = _round_up(form.batch * numpy.prod(form.pixels, axis=0), _ROWS), form.made
    if (form.taps == 1).all():
        each = form.read * (_round_up(made, _LANES) + _LOADED_LAST) + _STORED_LAST * made
        return rows * each
    plain = rows * form.taps * form.read * (_round_up(made, _LANES) * 1.2 + _ROWS)
    if not form.is_transformed:
        return plain
    windows = form.batch * numpy.prod([numpy.ceil(extent / 4) for extent in form.pixels], axis=0)
    vectors = numpy.ceil(form.read / _LANES) + numpy.ceil(form.made / _LANES)
    return numpy.minimum(plain, windows * (36 * form.read * form.made + 8_000 * vectors))


def _own_first(form: _Form) -> numpy.ndarray:
    """Depthwise windows, channels first."""
    *rest, along = form.pixels
    rows = form.batch * form.made * numpy.prod([numpy.ones_like(along), *rest], axis=0)
    return _OWN_FIRST * rows * form.taps * _round_up(along, _LANES)


def _own_last(form: _Form) -> numpy.ndarray:
    pixels = form.batch * numpy.prod(form.pixels, axis=0)
    return _OWN_LAST * pixels * form.taps * _round_up(form.made, _LANES)


def _round_up(count: numpy.ndarray, whole: int) -> numpy.ndarray:
    return numpy.ceil(count / whole) * whole
