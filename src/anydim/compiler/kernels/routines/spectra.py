"""Fourier transforms along an axis (DFT) and of frames of a signal (STFT).

A complex number is a last axis of size 2: its real and its imaginary part.
"""

from __future__ import annotations

import numpy

from anydim.base.dtypes import convert_array
from anydim.base.errors import GraphError
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.routines.arguments import at_most, axis_of
from anydim.compiler.kernels.routines.fourier import Transform
from anydim.compiler.kernels.routines.fourier_plan import MOST
from anydim.compiler.kernels.routines.fourier_signals import Geometry, Lines
from anydim.compiler.kernels.routines.routine import (
    Arrays,
    Attributes,
    Dims,
    Results,
    Routine,
    Steps,
    Types,
)
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Guard, Size, as_size, maximum, minimum, product, simplify


def _parts(name: str, kind: TensorType) -> int:
    """The parts of the numbers, 1 or 2; GraphError if the last axis has another size."""
    if not kind.dtype.is_float or kind.dtype.stored:
        raise GraphError(f"operator '{name}': {kind}, expected floats")
    parts = kind.shape[-1].constant if kind.rank else None
    if kind.rank < 2 or parts not in (1, 2):
        raise GraphError(f"operator '{name}': {kind}, expected a last axis of size 1 or 2")
    return parts


def _length(attributes: Attributes, box: Box) -> Size:
    """The length of a transform, at least 0."""
    return simplify(maximum(0, as_size(attributes["length"])), box)


def _numbers(x: numpy.ndarray) -> numpy.ndarray:
    """Complex numbers in double precision, from parts along the last axis."""
    wide = convert_array(x, numpy.dtype(numpy.float64))
    return wide[..., 0] + 1j * wide[..., 1] if x.shape[-1] == 2 else wide[..., 0] + 0j


def _stack_parts(found: numpy.ndarray, dtype: numpy.dtype, real: bool = False) -> numpy.ndarray:
    parts = [found.real] if real else [found.real, found.imag]
    return convert_array(numpy.stack(parts, -1), dtype)


# ---- along an axis -------------------------------------------------------------------------------


def _axis(types: Types, attributes: Attributes) -> int:
    axis = axis_of("dft", attributes["axis"], types[0].rank)
    if axis == types[0].rank - 1:
        raise GraphError(f"operator 'dft': axis {axis} holds real and imaginary parts")
    return axis


def _counts(attributes: Attributes, box: Box) -> tuple[Size, Size]:
    """The maximum number of input elements, and the number of output elements."""
    length, onesided = _length(attributes, box), attributes["onesided"]
    half = length // 2 + 1
    given = half if attributes["inverse"] and onesided else length
    return given, half if onesided and not attributes["inverse"] else length


def _infer_transform(types: Types, attributes: Attributes, box: Box) -> tuple[TensorType, ...]:
    _parts("dft", types[0])
    axis = _axis(types, attributes)
    shape = list(types[0].shape)
    shape[axis] = simplify(_counts(attributes, box)[1], box)
    shape[-1] = as_size(1 if attributes["inverse"] and attributes["onesided"] else 2)
    return (TensorType(types[0].dtype, tuple(shape)),)


def _guard_transform(types: Types, attributes: Attributes, box: Box) -> tuple[Guard, ...]:
    return at_most(_length(attributes, box), MOST, "dft: at most 2^30 elements", box)


def _evaluate_transform(arrays: Arrays, attributes: Attributes, sizes: Dims) -> Results:
    (x,) = arrays
    axis = attributes["axis"] % x.ndim
    given, made = (size.evaluate(sizes) for size in _counts(attributes, Box()))
    length = _length(attributes, Box()).evaluate(sizes)
    inverse, onesided = attributes["inverse"], attributes["onesided"]
    if not length:
        shape = [*x.shape[:-1], 1 if inverse and onesided else 2]
        shape[axis] = made
        return (numpy.zeros(shape, x.dtype),)
    found = _numbers(x).take(range(min(given, x.shape[axis])), axis)
    missing = [(0, 0)] * found.ndim
    missing[axis] = (0, given - found.shape[axis])
    found = numpy.pad(found, missing)
    if inverse and onesided:
        return (_stack_parts(numpy.fft.irfft(found, length, axis), x.dtype, real=True),)
    transformed = (numpy.fft.ifft if inverse else numpy.fft.fft)(found, length, axis)
    return (_stack_parts(transformed.take(range(made), axis), x.dtype),)


def _lower_transform(types: Types, attributes: Attributes, box: Box, machine: Machine) -> Steps:
    kind, axis = types[0], _axis(types, attributes)
    length, (most, made) = _length(attributes, box), _counts(attributes, box)
    outer, inner = product(kind.shape[:axis]), product(kind.shape[axis + 1 : -1])
    mirrored = bool(attributes["inverse"] and attributes["onesided"])

    def lines(count: Size, parts: int) -> Lines:
        step = inner * parts
        return Lines(inner, count * step, as_size(parts), step, parts)

    geometry = Geometry(
        length=length, given=simplify(minimum(kind.shape[axis], most), box), made=made,
        x=lines(kind.shape[axis], _parts("dft", kind)), y=lines(made, 1 if mirrored else 2),
        inverse=bool(attributes["inverse"]), mirrored=mirrored,
    )  # fmt: skip
    return Transform("dft", kind.dtype, outer * inner, geometry, box, machine).steps()


# ---- of frames -----------------------------------------------------------------------------------


def _frames(types: Types, attributes: Attributes, box: Box) -> tuple[Size, Size]:
    """The number of frames, and the number of frequencies of each."""
    length = as_size(attributes["length"])
    count = (types[0].shape[1] - length) // as_size(attributes["step"]) + 1
    made = length // 2 + 1 if attributes["onesided"] else length
    return simplify(count, box), simplify(made, box)


def _infer_frames(types: Types, attributes: Attributes, box: Box) -> tuple[TensorType, ...]:
    _parts("stft", types[0])
    if types[0].rank != 3 or any(kind.rank != 1 for kind in types[1:]):
        given = ", ".join(map(str, types))
        raise GraphError(f"operator 'stft': {given}, expected x[b, n, 1 or 2] and a window [n]")
    if any(kind.dtype != types[0].dtype for kind in types[1:]):
        raise GraphError(f"operator 'stft': {types[0].dtype} and a window of {types[1].dtype}")
    frames, made = _frames(types, attributes, box)
    return (TensorType(types[0].dtype, (types[0].shape[0], frames, made, as_size(2))),)


def _guard_frames(types: Types, attributes: Attributes, box: Box) -> tuple[Guard, ...]:
    length, step = as_size(attributes["length"]), as_size(attributes["step"])
    rest = types[0].shape[1] - length
    guards = (
        Guard(as_size(0), "<=", rest, "a frame fits into the signal"),
        Guard(as_size(1), "<=", step, "frames are 1 or more apart"),
        *at_most(length, MOST, "stft: at most 2^30 elements", box),
    )
    if len(types) == 2:
        message = "a window is as long as a frame"
        guards = (*guards, Guard(types[1].shape[0], "==", length, message))
    return guards


def _evaluate_frames(arrays: Arrays, attributes: Attributes, sizes: Dims) -> Results:
    x = _numbers(arrays[0])
    length, step = (as_size(attributes[name]).evaluate(sizes) for name in ("length", "step"))
    count = (x.shape[1] - length) // step + 1
    made = length // 2 + 1 if attributes["onesided"] else length
    if not length:
        return (numpy.zeros((x.shape[0], count, made, 2), arrays[0].dtype),)
    indices = numpy.arange(count)[:, None] * step + numpy.arange(length)
    frames = x[:, indices]
    if len(arrays) == 2:
        frames = frames * convert_array(arrays[1], numpy.dtype(numpy.float64))
    return (_stack_parts(numpy.fft.fft(frames)[..., :made], arrays[0].dtype),)


def _lower_frames(types: Types, attributes: Attributes, box: Box, machine: Machine) -> Steps:
    kind, parts = types[0], _parts("stft", types[0])
    length, step = as_size(attributes["length"]), as_size(attributes["step"])
    frames, made = _frames(types, attributes, box)
    geometry = Geometry(
        length=length, given=length, made=made,
        x=Lines(frames, kind.shape[1] * parts, step * parts, as_size(parts), parts),
        y=Lines(frames, frames * made * 2, made * 2, as_size(2), 2), window=len(types) == 2,
    )  # fmt: skip
    return Transform("stft", kind.dtype, kind.shape[0] * frames, geometry, box, machine).steps()


DFT = Routine((1, 1), _infer_transform, _evaluate_transform, _lower_transform, _guard_transform)
STFT = Routine((1, 2), _infer_frames, _evaluate_frames, _lower_frames, _guard_frames)
