"""TC texts of transposed convolution, decomposed into plain convolutions of its stride phases.

Along an axis of stride s, the result elements with the same remainder, a phase, have the same
taps: with o = q * s + phase,

    y[o] = sum of w[k] * x[i]  over  k * dilation + i * stride = o + before
         = sum over u of w[first + step * u] * x[q + shift - spread * u]

Neighbouring phases with the same tap count and shift are one convolution with more output channels;
no product with a zero is computed. The result interleaves the phases. Where the products get too
small - one channel, or few results - taps are unrolled: as products with one weight, or as elements
of a matrix product of all taps with all of x.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from anydim.base.errors import GraphError
from anydim.base.records import dataclass
from anydim.compiler.graph.operator import Attributes, Types, Written
from anydim.compiler.ops.writing import (
    declared,
    definition,
    expect_inputs,
    expect_rank,
    numbered,
    parameter,
    ranges,
    read,
    steps_of,
    target,
)
from anydim.sizes import Box, Guard, Size, as_size, ceil_div, product

NAME = "conv_transpose"
_MAX_PARTS = 32  # with more convolutions than this, one sum over all taps
_MAX_STRIDE = 4096  # at most this many phases are decomposed
_MAX_TERMS = 16  # at most this many taps are unrolled
_FEW = 8  # fewer output channels do not fill a register tile


@dataclass(frozen=True)
class Phases:
    """Phases start..start+count-1 of an axis, with `taps` taps each; `first` is that of `start`.

    Tap u of a phase is k = its first + step * u, and reads x at q + shift - spread * u.
    """

    start: int
    count: int
    taps: str
    first: int
    step: int
    shift: str
    spread: int

    def within(self, axis: int, stride: int) -> str:
        """Index among these phases of a result element; clamped for elements of other phases."""
        phase = f"o{axis} % {stride}"
        if self.start + self.count < stride:
            phase = f"min({phase}, {self.start + self.count - 1})"
        return f"(max({phase}, {self.start}) - {self.start})" if self.start else phase

    def position(self, axis: int, u: int | str) -> str:
        """Index in x that tap u reads."""
        return f"o{axis} + {self.shift} - ({u}) * {self.spread}"

    def tap(self, u: int | str, phase: str) -> str:
        """The k of tap u."""
        return f"{self.first} + {phase} + {self.step} * ({u})"

    def backward(self, axis: int) -> str:
        """Taps in reverse order, so that windows read x forward."""
        return f"{self.taps} - 1 - u{axis}"


@dataclass(frozen=True)
class Geometry:
    """A transposed convolution: its attributes, and sizes as the text names them."""

    rank: int
    groups: int
    biased: bool
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[Size, ...]
    kernel: tuple[Size, ...]
    sizes: tuple[Size, ...]
    inner: Size
    share: Size

    @property
    def alone(self) -> bool:
        """Whether each sum is over the taps of a single channel."""
        return self.inner.constant == 1

    @property
    def few(self) -> bool:
        """Whether a pixel has fewer products than channels that each product sums."""
        share, made = self.share.constant, self.share * product(self.kernel)
        small = share is not None and share < _FEW and self.groups == 1
        return small and (made.constant or 1) <= (self.inner.constant or 0)

    @property
    def sums(self) -> str:
        """Name of the tensor of sums without bias."""
        return "t" if self.biased else "y"

    @property
    def spans(self) -> list[tuple[str, str]]:
        """Ranges of the result."""
        outer = zip(numbered("o", self.rank), numbered("S", self.rank))
        return [("n", "N"), ("m", f"M * {self.groups}"), *outer]

    @property
    def result(self) -> list[str]:
        return [index for index, _ in self.spans]

    def weight(self, m: str) -> list[str]:
        """The first two indices of w for output channel m and channel c of its group."""
        return ["c", m] if self.groups == 1 else [f"({m}) // M * D + c", f"({m}) % M"]

    def channel(self, m: str) -> str:
        """The channel of x for output channel m and channel c of its group."""
        return "c" if self.groups == 1 else f"({m}) * D + c"


def transposed_convolution(types: Types, attributes: Attributes, box: Box) -> Written:
    """Transposed convolution of x[n, c, ...] with w[c, m/groups, ...], plus a bias.

    `before` is the number of elements cropped at the start of each axis, `sizes` the result's.
    """
    geometry = _geometry(types, attributes)
    values = {f"S{axis}": size for axis, size in enumerate(geometry.sizes)}
    values |= {f"B{axis}": size for axis, size in enumerate(geometry.before)}
    values["D"] = geometry.inner
    parts = _parts(geometry)
    if parts is None:
        statements = [_whole(geometry)]
    else:
        values |= {
            f"Q{axis}": ceil_div(size, stride)
            for axis, (size, stride) in enumerate(zip(geometry.sizes, geometry.strides))
        }
        statements = _interleaved(geometry, parts)
    parameters = [
        parameter("x", ["N", "C", *numbered("H", geometry.rank)]),
        parameter("w", ["C", "M", *numbered("W", geometry.rank)]),
    ]
    if geometry.biased:
        parameters.append("T(O) b")
        sums = read(geometry.sums, geometry.result)
        statements.append(f"{target('y', geometry.result)} = {sums} + b(m)")
    groups = geometry.groups
    message = f"channels in {groups} groups"
    guards = [Guard(types[0].shape[1], "==", geometry.inner * groups, message)]
    guards += [
        Guard(kind.shape[0], "==", geometry.share * groups, "a bias per channel")
        for kind in types[2:]
    ]
    text = definition(NAME, parameters, statements, declared(values))
    return Written(text, values, tuple(guards))


def _geometry(types: Types, attributes: Attributes) -> Geometry:
    """Collect the operands and attributes; raise GraphError where they do not fit."""
    expect_inputs(NAME, types, 2, 3)
    rank = types[0].rank - 2
    if rank < 1:
        raise GraphError(f"operator '{NAME}': x is {types[0]}, expected at least 3 axes")
    expect_rank(NAME, types[1], rank + 2, "w")
    strides, dilations = (steps_of(NAME, attributes, key, rank) for key in ("strides", "dilations"))
    before, sizes = (tuple(map(as_size, attributes[key])) for key in ("before", "sizes"))
    if not all(len(row) == rank for row in (strides, dilations, before, sizes)):
        raise GraphError(
            f"operator '{NAME}': strides, dilations, before and sizes must have {rank} entries each"
        )
    channels, groups = types[0].shape[1], attributes["groups"]
    inner = channels.divide_exactly(groups)
    if inner is None:  # the guard rejects incomplete groups
        inner = channels // groups
    return Geometry(
        rank, groups, len(types) == 3, strides, dilations, before, types[1].shape[2:], sizes,
        inner, types[1].shape[1],
    )  # fmt: skip


# ---- as convolutions of phases -----------------------------------------------------------------


def _parts(geometry: Geometry) -> list[list[Phases]] | None:
    """Phases of each axis; None where they depend on sizes, or exceed `_MOST_PARTS`."""
    if geometry.groups > 1 and geometry.share.constant is None:
        return None
    found = []
    for axis in range(geometry.rank):
        phases = _phases(geometry, axis)
        if phases is None:
            return None
        found.append(phases)
    return found if math.prod(map(len, found)) <= _MAX_PARTS else None


def _phases(geometry: Geometry, axis: int) -> list[Phases] | None:
    """Phases of an axis, merging neighbours with the same taps and shift."""
    stride, dilation = geometry.strides[axis], geometry.dilations[axis]
    if stride == 1:
        return [Phases(0, 1, f"W{axis}", 0, 1, f"B{axis}", dilation)]
    before, kernel = geometry.before[axis].constant, geometry.kernel[axis].constant
    if before is None or kernel is None or stride > _MAX_STRIDE:
        return None
    common = math.gcd(stride, dilation)
    step, far = stride // common, dilation // common
    found: list[Phases] = []
    for phase in range(stride):
        position = phase + before
        taps_of = (k for k in range(min(step, kernel)) if (position - k * dilation) % stride == 0)
        first = next(taps_of, None)
        if first is None:
            made = Phases(phase, 1, "0", 0, step, "0", far)
        else:
            taps, shift = -(-(kernel - first) // step), (position - first * dilation) // stride
            made = Phases(phase, 1, str(taps), first, step, str(shift), far)
        last = found[-1] if found else None
        if last is not None and (last.taps, last.shift) == (made.taps, made.shift) and (
            first is None or made.first == last.first + last.count
        ):  # fmt: skip
            found[-1] = Phases(
                last.start, last.count + 1, last.taps, last.first, step, last.shift, far
            )
        else:
            found.append(made)
    return found


def _interleaved(geometry: Geometry, parts: Sequence[Sequence[Phases]]) -> list[str]:
    """One convolution per combination of phases, and the result that interleaves them."""
    if all(stride == 1 for stride in geometry.strides):
        return _convolution(geometry, [row[0] for row in parts], geometry.sums)
    statements = [_products(geometry)] if geometry.few else []
    names: dict[tuple[int, ...], str] = {}
    for chosen in itertools.product(*(range(len(row)) for row in parts)):
        phases = [row[number] for row, number in zip(parts, chosen)]
        if all(part.taps != "0" for part in phases):
            names[chosen] = f"z{len(names)}"
            out = (geometry.few or geometry.alone) and _terms(phases) <= _MAX_TERMS
            make = _unrolled if out else _convolution
            statements += make(geometry, phases, names[chosen])
    body = _select_phase(geometry, parts, names, ())
    return [
        *statements,
        f"{target(geometry.sums, geometry.result)} = {body}{ranges(geometry.spans)}",
    ]


def _channels(phases: Sequence[Phases]) -> tuple[str, list[str]]:
    """The output channel of channel `a` of a group of phases, and its phase along each axis."""
    rest = each = math.prod(part.count for part in phases)
    within = []
    for part in phases:
        rest //= part.count
        within.append("0" if part.count == 1 else f"a // {rest} % {part.count}")
    return "a" if each == 1 else f"a // {each}", within


def _convolution(geometry: Geometry, phases: Sequence[Phases], name: str) -> list[str]:
    """Sums of a group of phases; each output channel has one channel per phase."""
    each = math.prod(part.count for part in phases)
    m, within = _channels(phases)
    outer, steps = numbered("o", geometry.rank), numbered("u", geometry.rank)
    window = zip(steps, [part.taps for part in phases])
    extents = numbered("S" if name == geometry.sums else "Q", geometry.rank)
    weights = [("a", f"M * {geometry.groups * each}"), ("c", "D"), *window]
    taps = [part.backward(axis) for axis, part in enumerate(phases)]
    positions = [part.position(axis, tap) for axis, (part, tap) in enumerate(zip(phases, taps))]
    value = read("x", ["n", geometry.channel(f"a // (M * {each})"), *positions])
    flipped = ["a", "c", *steps]
    kernel = [part.tap(tap, phase) for part, tap, phase in zip(phases, taps, within)]
    weight = read("w", [*geometry.weight(m), *kernel])
    sums = ranges([("n", "N"), *zip(outer, extents), *weights])
    return [
        f"{target(f'v_{name}', flipped)} = {weight}{ranges(weights)}",
        f"{target(name, ['n', 'a', *outer])} +=! ({value} else 0) * {read(f'v_{name}', flipped)}"
        f"{sums}",
    ]


def _terms(phases: Sequence[Phases]) -> int:
    return math.prod(int(part.taps) if part.taps.isdigit() else _MAX_TERMS + 1 for part in phases)


def _products(geometry: Geometry) -> str:
    """Products of every tap with every element of x."""
    steps, positions = numbered("k", geometry.rank), numbered("i", geometry.rank)
    result = target("p", ["n", "m", *steps, *positions])
    return f"{result} +=! {read('w', ['c', 'm', *steps])} * {read('x', ['n', 'c', *positions])}"


def _unrolled(geometry: Geometry, phases: Sequence[Phases], name: str) -> list[str]:
    """As `_convolution`, with the sums over taps unrolled."""
    m, within = _channels(phases)
    each = math.prod(part.count for part in phases)
    outer = numbered("o", geometry.rank)
    terms = []
    for taps in itertools.product(*(range(int(part.taps)) for part in phases)):
        positions = [part.position(axis, tap) for axis, (part, tap) in enumerate(zip(phases, taps))]
        kernel = [part.tap(tap, phase) for part, tap, phase in zip(phases, taps, within)]
        if geometry.few:
            terms.append(f"({read('p', ['n', m, *kernel, *positions])} else 0)")
        else:
            weight = read("w", [f"({m}) // M", f"({m}) % M", *kernel])
            terms.append(f"({read('x', ['n', f'({m}) // M', *positions])} else 0) * {weight}")
    where = [("n", "N"), ("a", f"M * {geometry.groups * each}"),
             *zip(outer, numbered("Q", geometry.rank))]  # fmt: skip
    return [f"{target(name, ['n', 'a', *outer])} = {' + '.join(terms)}{ranges(where)}"]


def _select_phase(
    geometry: Geometry, parts: Sequence[Sequence[Phases]], names: dict[tuple[int, ...], str],
    chosen: tuple[int, ...],
) -> str:  # fmt: skip
    """A result element, read from the sums of its phase."""
    axis = len(chosen)
    if axis == geometry.rank:
        if chosen not in names:
            return "cast<T>(0)"
        channel, positions = "m", []
        for number, (row, stride) in enumerate(zip(parts, geometry.strides)):
            phases = row[chosen[number]]
            positions.append(f"o{number}" if stride == 1 else f"o{number} // {stride}")
            if phases.count > 1:
                channel = f"({channel}) * {phases.count} + {phases.within(number, stride)}"
        return read(names[chosen], ["n", channel, *positions])
    inner = [_select_phase(geometry, parts, names, (*chosen, n)) for n in range(len(parts[axis]))]
    text = inner[-1]
    for phases, other in zip(reversed(parts[axis][:-1]), reversed(inner[:-1])):
        end = phases.start + phases.count
        text = f"(o{axis} % {geometry.strides[axis]} < {end} ? {other} : {text})"
    return text


# ---- as one sum --------------------------------------------------------------------------------


def _whole(geometry: Geometry) -> str:
    """One sum over all taps; where strides are large, most taps miss every element of x."""
    steps, positions, conditions = numbered("k", geometry.rank), [], []
    for axis, (stride, dilation) in enumerate(zip(geometry.strides, geometry.dilations)):
        position = f"(o{axis} + B{axis} - k{axis} * {dilation})"
        conditions += [] if stride == 1 else [f"{position} % {stride} == 0"]
        positions.append(position if stride == 1 else f"{position} // {stride}")
    value = f"({read('x', ['n', geometry.channel('m // M'), *positions])} else 0)"
    if conditions:
        value = f"({' && '.join(conditions)} ? {value} : 0)"
    where = ranges([*geometry.spans, ("c", "D"), *zip(steps, numbered("W", geometry.rank))])
    weight = read("w", [*geometry.weight("m"), *steps])
    return f"{target(geometry.sums, geometry.result)} +=! {value} * {weight}{where}"
