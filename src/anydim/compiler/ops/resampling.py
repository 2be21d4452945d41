"""TC text of resize: resampling to other sizes."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from anydim.base.errors import GraphError
from anydim.base.records import dataclass
from anydim.compiler.graph.operator import Attributes, Types, Written
from anydim.compiler.ops.writing import (
    definition,
    expect_inputs,
    numbered,
    parameter,
    ranges,
    read,
    target,
)
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Size, Truth, as_size, ceil_div, maximum, prove

# Coordinate in x of element o of the result: a numerator, a denominator, and the coordinate where
# the denominator is 0. {f} / {g} is the scale, {n} and {s} are the sizes. Sizes and scales of
# float32 are integers and short fractions, so numerator and denominator are exact in float64 while
# products of two sizes stay below 2^51, and one division rounds once: a coordinate on an element
# or halfway between two is exact.
COORDINATES = {
    "asymmetric": ("{o} * {g}", "{f}", ""),
    "half_pixel": ("(2.0 * {o} + 1.0) * {g} - {f}", "2.0 * {f}", ""),
    "half_pixel_symmetric": (
        "({n} - 1.0) * {f} + (2.0 * {o} + 1.0 - {s}) * {g}", "2.0 * {f}", "",
    ),
    "pytorch_half_pixel": (
        "{s} > 1.0 ? (2.0 * {o} + 1.0) * {g} - {f} : 0.0", "2.0 * {f}", "",
    ),
    "align_corners": ("{o} * ({n} - 1.0)", "{s} - 1.0", "0.0"),
    "crop": (
        "({a} * ({s} - 1.0) + {o} * ({b} - {a})) * ({n} - 1.0)", "{s} - 1.0",
        "0.5 * ({a} + {b}) * ({n} - 1.0)",
    ),
}  # fmt: skip
ROUNDINGS = {
    "round_prefer_floor": "ceil({p} - 0.5)",
    "round_prefer_ceil": "floor({p} + 0.5)",
    "floor": "floor({p})",
    "ceil": "ceil({p})",
}
# Neighbours of a coordinate: their count, how many precede it, the weight of one at distance {d}.
_WEIGHTS = {
    "linear": (2, 0, "max(1.0 - {d}, 0.0)"),
    "cubic": (
        4, 1,
        "{d} <= 1.0 ? (({a} + 2.0) * {d} - ({a} + 3.0)) * {d} * {d} + 1.0"
        " : ({d} < 2.0 ? (({a} * {d} - 5.0 * {a}) * {d} + 8.0 * {a}) * {d} - 4.0 * {a} : 0.0)",
    ),
}  # fmt: skip


def interpolation_weights(mode: str) -> tuple[int, int, str]:
    """(number of neighbours, how many of them precede, the weight at distance {d}) of a mode."""
    return _WEIGHTS[mode]


def resize(types: Types, attributes: Attributes, box: Box) -> Written:
    """x resampled to other sizes by the nearest element or by linear or cubic interpolation.

    `scales` are numbers, one per axis; by default they follow from the sizes. With `antialias`, a
    downsampled axis weighs all elements that fall together. Coordinates 'crop' read the region of x
    given by the last input, starts then ends as fractions of each axis; reads outside of x are
    `outside`. With `scaled` the second input holds the scales, one per axis, or their numerators,
    then their denominators.
    """
    _expect_resize(types, attributes)
    rank, crop = types[0].rank, attributes["coordinates"] == "crop"
    axes = [_resized(types, axis, attributes) for axis in range(rank)]
    indices = numbered("i", rank)
    where = [(f"i{axis}", f"N{axis}" if part is None else f"S{axis}")
             for axis, part in enumerate(axes)]  # fmt: skip
    parts = [part for part in axes if part is not None]
    statements = [statement for part in parts for statement in part.statements]
    last = "z" if crop else "y"
    if any(part.factor for part in parts):
        *others, _ = (axis for axis, part in enumerate(axes) if part is not None)
        grow = all(_grows(types[0], axis, attributes, box) for axis in others)
        statements += _weighed(axes, last, grow)
    else:
        positions = [index if part is None else part.position for index, part in zip(indices, axes)]
        statements.append(f"{target(last, indices)} = {read('x', positions)}{ranges(where)}")
    if crop:
        beyond = " || ".join(part.beyond for part in parts)
        value = f"cast<T>({float(attributes['outside'])!r})"
        statements.append(
            f"{target('y', indices)} = {beyond} ? {value} : {read('z', indices)}{ranges(where)}"
        )
    parameters = [parameter("x", numbered("N", rank))]
    if attributes["scaled"]:
        parameters.append(parameter("factors", [str(types[1].shape[0])], "F"))
    parameters += [parameter("part", [str(2 * rank)], "R")] if crop else []
    kinds = [f"{kind} {name}" for part in parts for name, (kind, _) in part.values.items()]
    values = {name: value for part in parts for name, (_, value) in part.values.items()}
    return Written(definition("resize", parameters, statements, kinds), values)


def _grows(kind: TensorType, axis: int, attributes: Attributes, box: Box) -> bool:
    """Whether an axis never gets shorter, at any sizes."""
    if attributes["scales"] is not None:
        return float(attributes["scales"][axis]) >= 1
    size = as_size(attributes["sizes"][axis])
    return prove(size, ">=", kind.shape[axis], box) is Truth.PROVED


def _weighed(axes: list[_Resized | None], last: str, grow: bool) -> list[str]:
    """Interpolate along one axis after the other, which reads fewer neighbours.

    Indices along the last axis are read one by one (a gather). So the last axis comes first where
    the others `grow`, while they are small, and last where they may shrink: few rows remain then.
    """
    numbers = [axis for axis, part in enumerate(axes) if part is not None]
    order = numbers[::-1] if grow else numbers
    statements, source, done = [], "x", set[int]()
    for axis in order:
        part = axes[axis]
        assert part is not None
        done.add(axis)
        name = last if len(done) == len(order) else f"r{axis}"
        indices = numbered("i", len(axes))
        sizes = [f"S{other}" if other in done else f"N{other}" for other in range(len(axes))]
        positions = [
            part.position if other == axis else index for other, index in enumerate(indices)
        ]
        where = ranges([*zip(indices, sizes), *part.taps])
        body = f"{part.factor} * {read(source, positions)}"
        statements.append(f"{target(name, indices)} +=! {body}{where}")
        source = name
    return statements


def _expect_resize(types: Types, attributes: Attributes) -> None:
    """Raise GraphError unless inputs and attributes fit."""
    expect_inputs("resize", types, 1, 3)
    rank, mode, scales = types[0].rank, attributes["mode"], attributes["scales"]
    count = len(attributes["sizes"])
    if count != rank or (scales is not None and len(scales) != rank):
        raise GraphError(f"operator 'resize': {count} sizes for {rank} axes")
    for name, table in (("coordinates", COORDINATES), ("rounding", ROUNDINGS)):
        if attributes[name] not in table:
            raise GraphError(f"operator 'resize': {name} '{attributes[name]}' is not one of "
                             f"{', '.join(table)}")  # fmt: skip
    if mode != "nearest" and mode not in _WEIGHTS:
        raise GraphError(f"operator 'resize': mode '{mode}' is not one of nearest, linear, cubic")
    crop, scaled = attributes["coordinates"] == "crop", bool(attributes["scaled"])
    if len(types) != 1 + crop + scaled or (crop and types[-1].shape != (2 * rank,)):
        raise GraphError(
            "operator 'resize': the crop region must be a vector of 2 numbers per axis"
        )
    if scaled and types[1].shape not in ((rank,), (2 * rank,)):
        raise GraphError(
            "operator 'resize': scales must be a vector of one or two numbers per axis"
        )


@dataclass(frozen=True)
class _Resized:
    """A resized axis: what its text needs, the position read in x, and its weight.

    `values` are attributes of the text with their kinds; `beyond` is the out-of-bounds condition.
    """

    values: dict[str, tuple[str, Any]]
    statements: list[str]
    position: str
    factor: str
    taps: list[tuple[str, str]]
    beyond: str


def _resized(types: Types, axis: int, attributes: Attributes) -> _Resized | None:
    """A resized axis of x; None if it is unchanged."""
    own, size = types[0].shape[axis], as_size(attributes["sizes"][axis])
    scale = None if attributes["scales"] is None else float(attributes["scales"][axis])
    moving = attributes["coordinates"] == "crop" or attributes["scaled"]
    if own == size and (scale is None or scale == 1) and not moving:
        return None
    values: dict[str, tuple[str, Any]] = {f"S{axis}": ("size", size)}
    if scale is not None:
        values[f"F{axis}"] = ("float", scale)
    count = _count(own, size, scale, attributes)
    if count is not None and count.constant is None:
        values[f"C{axis}"] = ("size", count)
    statements, position, factor = _axis(
        axis, _Scale.of(axis, types, attributes), attributes, count
    )
    low, high = f"p{axis}(i{axis}) < 0.0", f"p{axis}(i{axis}) > cast<double>(N{axis} - 1)"
    taps = [(f"k{axis}", _written_count(axis, count))] if factor else []
    return _Resized(values, statements, position, factor, taps, f"{low} || {high}")


def _count(own: Size, size: Size, scale: float | None, attributes: Attributes) -> Size | None:
    """Number of neighbours of a result element along an axis; None: the nearest only."""
    if attributes["mode"] == "nearest":
        return None
    count = as_size(_WEIGHTS[attributes["mode"]][0])
    if not attributes["antialias"]:
        return count
    if scale is not None:
        return count * math.ceil(1 / min(Fraction(scale), Fraction(1)))
    reach = count.constant // 2 if count.constant else 1
    return maximum(ceil_div(own * reach, maximum(size, 1)), reach) * 2


def _written_count(axis: int, count: Size | None) -> str:
    return f"C{axis}" if count is None or count.constant is None else str(count)


@dataclass(frozen=True)
class _Scale:
    """Scale of an axis as float64 texts, `above / below`; `number` if it is constant."""

    above: str
    below: str
    number: float | None = None
    rank: int = 0

    @staticmethod
    def of(axis: int, types: Types, attributes: Attributes) -> _Scale:
        rank = types[0].rank
        if attributes["scales"] is not None:
            number = float(attributes["scales"][axis])
            return _Scale(f"cast<double>(F{axis})", "1.0", number, rank)
        if not attributes["scaled"]:
            return _Scale(f"cast<double>(S{axis})", f"cast<double>(N{axis})", None, rank)
        below = "1.0"
        if types[1].shape != (rank,):
            below = f"cast<double>(factors({rank + axis}))"
        return _Scale(f"cast<double>(factors({axis}))", below, None, rank)

    @property
    def quotient(self) -> str:
        return self.above if self.below == "1.0" else f"({self.above} / {self.below})"

    def position(self, axis: int, coordinates: str) -> str:
        """Coordinate in x of a result element, in float64."""
        above, below, alone = COORDINATES[coordinates]
        terms = {
            "o": f"cast<double>(i{axis})", "f": self.above, "g": self.below,
            "n": f"cast<double>(N{axis})", "s": f"cast<double>(S{axis})",
            "a": f"cast<double>(part({axis}))", "b": f"cast<double>(part({self.rank + axis}))",
        }  # fmt: skip
        over = below.format(**terms)
        quotient = f"({above.format(**terms)}) / ({over})"
        return f"{over} == 0.0 ? {alone.format(**terms)} : {quotient}" if alone else quotient


def _axis(
    axis: int, scale: _Scale, attributes: Attributes, count: Size | None
) -> tuple[list[str], str, str]:
    """(statements, the position to read, its weight) along a resized axis."""
    mode, coordinates, rounding = (attributes[k] for k in ("mode", "coordinates", "rounding"))
    index, size, span = f"i{axis}", f"N{axis}", f" where i{axis} in 0:S{axis}"
    if mode == "nearest" and scale.number is not None and scale.number.is_integer() and (
        (coordinates, rounding) in _REPEATS
    ):  # fmt: skip
        return [], f"{index} // {int(scale.number)}", ""
    position = scale.position(axis, coordinates)
    statements = [f"p{axis}({index}) = {position}{span}"]
    p = f"p{axis}({index})"
    if mode == "nearest":
        rounded = ROUNDINGS[rounding].format(p=p)
        nearest = f"min(max(cast<int64>({rounded}), 0), {size} - 1)"
        return [*statements, f"c{axis}({index}) = {nearest}{span}"], f"c{axis}({index})", ""
    weight, taps = _WEIGHTS[mode][2], _written_count(axis, count)
    before = f"({taps} // 2 - 1)"
    near = f"cast<int64>(floor({p})) + k{axis} - {before}"
    distance = f"abs({p} - floor({p}) - cast<double>(k{axis} - {before}))"
    if attributes["antialias"]:
        distance = f"({distance} * min({scale.quotient}, 1.0))"
    weight = weight.format(d=distance, a=f"({float(attributes['cubic'])!r})")
    name = f"w{axis}({index},k{axis})"
    both = f"{span}, k{axis} in 0:{taps}"
    if attributes["exclude_outside"] or attributes["antialias"]:
        inside = f"({near}) >= 0 && ({near}) < {size}" if attributes["exclude_outside"] else "true"
        statements += [
            f"v{axis}({index},k{axis}) = {inside} ? ({weight}) : 0.0{both}",
            f"t{axis}({index}) +=! v{axis}({index},k{axis})",
            f"{name} = v{axis}({index},k{axis}) / t{axis}({index})",
        ]
    else:
        statements.append(f"{name} = {weight}{both}")
    neighbour = f"(k{axis},{index})"  # contiguous along the vectorised index
    statements += [
        f"c{axis}{neighbour} = min(max({near}, 0), {size} - 1){both}",
        f"f{axis}{neighbour} = cast<T>({name}){both}",
    ]
    return statements, f"c{axis}{neighbour}", f"f{axis}{neighbour}"


# With an integer scale these read x(i // scale).
_REPEATS = {
    ("asymmetric", "floor"),
    ("half_pixel", "round_prefer_floor"),
    ("half_pixel", "round_prefer_ceil"),
}
