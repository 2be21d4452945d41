"""Taps of bfloat16 convolutions that are out of bounds at every position: most of a window, where
images are tiny.

Of 3 x 3 taps with padding, an image of one position has one in bounds. Formulas of sizes give the
first kept tap and their count along the outermost and the innermost axis of a window; those between
are kept. The factor that is packed on use holds kept taps only, one after another. In the constant
weights, the kept taps of a run along the innermost axis are contiguous, and runs have one distance.
Skipped taps only add zeros to sums.
"""

from __future__ import annotations

from anydim.base.records import dataclass
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.matmul.int8.int8_form import Int8Form
from anydim.compiler.kernels.matmul.int8.word_types import PAIRS
from anydim.lang.tree import Literal, Read
from anydim.lang.tree.affine import affine, row_major_strides
from anydim.sizes import Size, as_size, ceil_div, maximum, minimum, product


@dataclass(frozen=True)
class KeptAxis:
    """The taps `first` to `first + count` of `extent` along an axis of a window."""

    first: Size
    count: Size
    extent: Size


@dataclass(frozen=True)
class KeptTaps:
    """The kept taps of every axis of a window; a tap has `words` words."""

    axes: tuple[KeptAxis, ...]
    words: Size

    @property
    def runs(self) -> Size:
        """Runs of contiguous kept taps."""
        return product(axis.count for axis in self.axes[:-1])

    @property
    def run(self) -> Size:
        """Words of a run."""
        return (self.axes[-1].count if self.axes else as_size(1)) * self.words

    @property
    def weights_run(self) -> Size:
        """Words between runs of the weights."""
        return (self.axes[-1].extent if self.axes else as_size(1)) * self.words

    @property
    def start(self) -> Size:
        """The first word of the weights."""
        strides = row_major_strides(tuple(axis.extent for axis in self.axes))
        at = (axis.first * step for axis, step in zip(self.axes, strides))
        return sum(at, as_size(0)) * self.words


def kept_taps_of(form: Int8Form, read: Read, shape: tuple[Size, ...], whole: bool) -> KeptTaps:
    """Return the taps that a read of an image has in bounds; `whole`: all of them."""
    axes = [KeptAxis(as_size(0), extent, extent) for _, extent in form.taps]
    if axes and not whole and form.word == PAIRS and _is_padded(read):
        for at in sorted({0, len(axes) - 1}):
            axes[at] = _kept_axis(form, read, shape, form.taps[at][0], axes[at])
    return KeptTaps(tuple(axes), form.tap_words)


def _is_padded(read: Read) -> bool:
    """Whether elements out of bounds are zeros."""
    return not read.flat and isinstance(read.default, Literal) and read.default.value == 0


def _kept_axis(
    form: Int8Form, read: Read, shape: tuple[Size, ...], tap: str, every: KeptAxis
) -> KeptAxis:
    """The kept taps of the axis `tap`; every one where the read has no plain window along it."""
    found = [(index, size) for index, size in zip(read.indices, shape) if tap in free_axes(index)]
    line = affine(found[0][0]) if len(found) == 1 else None
    if line is None or len(line.indices) > 2:
        return every
    spread, size = line.stride(tap).constant, found[0][1]
    positions = [name for name in line.indices if name != tap]
    steps = [line.stride(name).constant for name in positions]
    if spread is None or spread < 1 or any(step is None or step < 0 for step in steps):
        return every
    last = line.constant
    for name in positions:
        last = last + (form.every_extent[name] - 1) * line.stride(name)
    first = minimum(maximum(ceil_div(0 - last, spread), 0), every.extent)
    stop = minimum(maximum(ceil_div(size - line.constant, spread), 0), every.extent)
    return KeptAxis(first, maximum(stop - first, 0), every.extent)
