"""TC texts of the operators that slide a window along the spatial axes: convolution and pooling.

Output position o along an axis reads the elements o * stride - before + k * dilation, for k in the
window. Elements outside of x are padding: a read with a default.
"""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.dtypes import DType
from anydim.base.errors import GraphError
from anydim.base.records import dataclass
from anydim.compiler.graph.operator import Attributes, Types, Written
from anydim.compiler.ops.writing import (
    declared,
    definition,
    expect_inputs,
    expect_rank,
    numbered,
    pads_of,
    parameter,
    ranges,
    read,
    steps_of,
    target,
)
from anydim.sizes import (
    Box,
    Guard,
    Size,
    Truth,
    as_size,
    ceil_div,
    maximum,
    minimum,
    prove,
    simplify,
)

PADDINGS = ("same_upper", "same_lower", "valid")


@dataclass(frozen=True)
class Window:
    """A window along one axis: its extent, strides, padding and the number of results."""

    extent: Size  # of x along the axis
    kernel: Size
    stride: int
    dilation: int
    before: Size
    after: Size
    count: Size  # of the result along the axis
    padded: bool  # whether it may read outside
    cut: bool  # whether the last one may end behind the padding

    def position(self, result: str, kernel: str, before: str) -> str:
        """Index in x of a result index and a tap of the window."""
        text = result if self.stride == 1 else f"{result} * {self.stride}"
        text += f" + {kernel}" if self.dilation == 1 else f" + {kernel} * {self.dilation}"
        return text if self.before.constant == 0 else f"{text} - {before}"


def windows(
    name: str, shape: Sequence[Size], kernel: Sequence[Size], attributes: Attributes, box: Box,
    pooled: bool = False,
) -> list[Window]:  # fmt: skip
    """Return the windows along the axes of a shape; raise GraphError where attributes misfit.

    A window that is longer than its padded axis has no result. One of a pool, longer by less than
    its stride, is cut and has one: quotients of C, which onnxruntime and onnx's inference of shapes
    take, are rounded towards 0.
    """
    rank = len(shape)
    if rank != len(kernel):
        raise GraphError(f"operator '{name}': a window of {len(kernel)} axes over {rank} axes")
    strides = steps_of(name, attributes, "strides", rank)
    dilations = steps_of(name, attributes, "dilations", rank)
    pads = attributes["pads"]
    if isinstance(pads, str):
        if pads not in PADDINGS:
            raise GraphError(
                f"operator '{name}': pads '{pads}' is not one of {', '.join(PADDINGS)}"
            )
    counts = pads_of(name, None if isinstance(pads, str) else pads, rank)
    made = []
    for axis in range(rank):
        before, after = as_size(counts[axis]), as_size(counts[rank + axis])
        made.append(_window(
            shape[axis], kernel[axis], strides[axis], dilations[axis], before, after,
            pads if isinstance(pads, str) else "", bool(attributes.get("ceil")), pooled, box,
        ))  # fmt: skip
    return made


def _window(
    extent: Size, kernel: Size, stride: int, dilation: int, before: Size, after: Size,
    padding: str, ceil: bool, pooled: bool, box: Box,
) -> Window:  # fmt: skip
    cut = ceil
    reach = simplify((kernel - 1) * dilation + 1, box)
    if padding.startswith("same"):
        count = ceil_div(extent, stride)
        total = simplify(maximum((count - 1) * stride + reach - extent, 0), box)
        before = total // 2 if padding == "same_upper" else total - total // 2
        after = total - before
    else:
        slack = extent + before + after - reach
        count = slack // stride + 1
        if ceil:  # the last window starts inside x or the padding before it
            count = minimum(ceil_div(slack, stride) + 1, ceil_div(extent + before, stride))
        elif pooled and stride > 1 and _may_be_short(extent, before + after, reach, box):
            cut = True
            count = maximum(count, minimum(1, minimum(extent, slack + stride)))
        count = maximum(count, 0)
    before, count = simplify(before, box), simplify(count, box)
    inside = before.constant == 0 and not ceil and (
        after.constant == 0 and prove(extent, ">=", reach, box) is Truth.PROVED
    )  # fmt: skip
    return Window(extent, kernel, stride, dilation, before, after, count, not inside, cut)


def _may_be_short(extent: Size, padding: Size, reach: Size, box: Box) -> bool:
    """Whether an axis that is not empty may be shorter, with its padding, than a window."""
    return not any(
        prove(size + padding, ">=", reach, box) is Truth.PROVED for size in (extent, as_size(1))
    )


def _values(made: Sequence[Window]) -> dict[str, Size]:
    """The sizes that the text names: of the result, and of the padding before x."""
    values = {f"S{axis}": window.count for axis, window in enumerate(made)}
    values |= {
        f"B{axis}": window.before for axis, window in enumerate(made) if window.before.constant != 0
    }
    return values


def _positions(made: Sequence[Window]) -> list[str]:
    return [w.position(f"o{axis}", f"k{axis}", f"B{axis}") for axis, w in enumerate(made)]


def _padded(text: str, made: Sequence[Window], value: str) -> str:
    return f"({text} else {value})" if any(window.padded for window in made) else text


@dataclass(frozen=True)
class Slide:
    """Pieces of a convolution's text: reads of x and w, sizes, result indices, ranges, guards.

    `padded`: reads of x need a default. `values`: the sizes that the text names.
    """

    x: str
    w: str
    x_sizes: Sequence[str]
    w_sizes: Sequence[str]
    result: Sequence[str]
    where: str
    padded: bool
    values: dict[str, Size]
    guards: tuple[Guard, ...]


def slide(name: str, types: Types, attributes: Attributes, box: Box) -> Slide:
    """Convolve the first of `types` with the second; raise GraphError where they do not fit."""
    rank = types[0].rank - 2
    if rank < 1:
        raise GraphError(f"operator '{name}': x is {types[0]}, expected at least 3 axes")
    expect_rank(name, types[1], rank + 2, "w")
    made = windows(name, types[0].shape[2:], types[1].shape[2:], attributes, box)
    group = attributes["groups"]
    channels, inner = types[0].shape[1], types[1].shape[1]
    guard = Guard(channels, "==", inner * group, "x has the channels of w times the groups")
    channel = _channel(name, types, group)
    outer, steps = numbered("o", rank), numbered("k", rank)
    where = ranges([*zip(outer, numbered("S", rank)), *zip(["c", *steps], _weight_sizes(rank))])
    return Slide(
        x=read("x", ["n", channel, *_positions(made)]),
        w=read("w", ["m", "c", *steps]),
        x_sizes=["N", "K" if group == 1 else "C", *numbered("H", rank)],
        w_sizes=["M", *_weight_sizes(rank)],
        result=["n", "m", *outer],
        where=f"{where}, n in 0:N, m in 0:M",
        padded=any(window.padded for window in made),
        values=_values(made),
        guards=(guard,),
    )


def convolution(types: Types, attributes: Attributes, box: Box) -> Written:
    """Convolution of x[n, c, ...] with w[m, c/groups, ...], plus a bias per channel m.

    `pads` are the counts before all axes, then after them, or 'same_upper', 'same_lower', 'valid'.
    """
    expect_inputs("conv", types, 2, 3)
    moved = slide("conv", types, attributes, box)
    parameters = [parameter("x", moved.x_sizes), parameter("w", moved.w_sizes)]
    value = f"({moved.x} else 0)" if moved.padded else moved.x
    statement = f"+=! {value} * {moved.w}{moved.where}"
    result = moved.result
    if len(types) == 3:
        expect_rank("conv", types[2], 1, "the bias")
        parameters.append("T(M) b")
        statements = [
            f"{target('t', result)} {statement}",
            f"{target('y', result)} = {read('t', result)} + b(m)",
        ]
    else:
        statements = [f"{target('y', result)} {statement}"]
    text = definition("conv", parameters, statements, declared(moved.values))
    return Written(text, moved.values, moved.guards)


def _weight_sizes(rank: int) -> list[str]:
    return ["K", *numbered("W", rank)]


def _channel(name: str, types: Types, group: int) -> str:
    """The channel of x for output channel m and reduction index c."""
    if group == 1:
        return "c"
    outputs = types[1].shape[0]
    share = outputs.divide_exactly(group)
    if not isinstance(group, int) or group < 1 or share is None or share.constant is None:
        raise GraphError(
            f"operator '{name}': {outputs} output channels in {group} groups",
            "the number of output channels must be a constant multiple of groups",
        )
    block = "m" if share.constant == 1 else f"(m // {max(share.constant, 1)})"
    inner = types[1].shape[1].constant
    return block if inner == 1 else f"{block} * K + c"


# ---- pooling -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pool:
    """Pieces of a pool's text: windows, result indices, its read of x, ranges, the parameter x."""

    made: list[Window]
    result: list[str]
    value: str
    where: str
    own: str

    def reduced(self, name: str, combine: str, read_as: str, outside: str) -> list[str]:
        """Statements that reduce every window into `name`; `read_as` wraps each read of x.

        The axes are reduced one after another where that reads fewer elements: a window of 13 by
        13 has 169 taps, or 13 along a column and then 13 along a row of the partial results.
        """
        if not self._apart():
            value = read_as.format(_padded(self.value, self.made, outside))
            return [f"{target(name, self.result)} {combine}=! {value}{self.where}"]
        statements = []
        source, indices = "x", ["n", "c", *numbered("x", len(self.made))]
        for axis, window in enumerate(self.made):
            positions = list(indices)
            positions[2 + axis] = window.position(f"o{axis}", f"k{axis}", f"B{axis}")
            indices[2 + axis] = f"o{axis}"
            last = axis == len(self.made) - 1
            value = _padded(read(source, positions), [window], outside)
            value = read_as.format(value) if axis == 0 else value
            source = name if last else f"{name}{axis}"
            statements.append(f"{target(source, indices)} {combine}=! {value}{self._ranges(axis)}")
        return statements

    def _apart(self) -> bool:
        """Whether reducing axis by axis reads less; a partial result counts as `_KEPT` reads."""
        together, apart, kept = 1, 0, 1
        for window in reversed(self.made):
            size = window.kernel.constant or 1
            together, apart = together * size, apart + size * kept + _KEPT
            kept *= window.stride
        return together > apart

    def _ranges(self, axis: int) -> str:
        """Ranges of the statement that reduces one axis, after the axes before it."""
        positions = [
            (f"o{other}", f"S{other}") if other <= axis else (f"x{other}", f"H{other}")
            for other in range(len(self.made))
        ]
        window = (f"k{axis}", str(self.made[axis].kernel))
        return ranges([("n", "N"), ("c", "C"), *positions, window])


_KEPT = 4  # cost of storing and reloading a value, in reads


def _pool(name: str, types: Types, attributes: Attributes, box: Box) -> Pool:
    """Return the pieces of a pool's text; raise GraphError where the attributes do not fit."""
    expect_inputs(name, types, 1, 1)
    rank = types[0].rank - 2
    if rank < 1:
        raise GraphError(f"operator '{name}': x is {types[0]}, expected at least 3 axes")
    kernel = [as_size(size) for size in attributes["kernel"]]
    if not all((size.constant or 0) > 0 for size in kernel):
        raise GraphError(f"operator '{name}': a window of {attributes['kernel']}, expected sizes")
    made = windows(name, types[0].shape[2:], kernel, attributes, box, pooled=True)
    value = read("x", ["n", "c", *_positions(made)])
    sizes = [str(window.kernel) for window in made]
    where = ranges([
        ("n", "N"), ("c", "C"), *zip(numbered("o", rank), numbered("S", rank)),
        *zip(numbered("k", rank), sizes),
    ])  # fmt: skip
    names = ["N", "C", *numbered("H", rank)]
    return Pool(made, ["n", "c", *numbered("o", rank)], value, where, parameter("x", names))


def max_pool(types: Types, attributes: Attributes, box: Box) -> Written:
    """Maximum of each window; padding never wins.

    With `indices` a second result has the flat index in x of the first maximum, in row-major order,
    or with `columns_first` counted with the first axis of the window moving fastest.
    """
    pool = _pool("max_pool", types, attributes, box)
    made, result, where, own = pool.made, pool.result, pool.where, pool.own
    lowest = _lowest(types[0].dtype)
    if types[0].dtype.is_integer and types[0].dtype.bits <= 16:
        statements = [  # as int32, the width that vectorises
            *pool.reduced("t", "max", "int({})", lowest),
            f"{target('y', result)} = cast<T>({read('t', result)})",
        ]
    else:
        statements = pool.reduced("y", "max", "{}", lowest)
    values = _values(made)
    if not attributes["indices"]:
        return Written(definition("max_pool", [own], statements, declared(values)), values)
    rank = len(made)
    sizes = numbered("H", rank)
    inside = [
        f"({position}) >= 0 && ({position}) < {size}"
        for position, size in zip(_positions(made), sizes)
    ]
    position = "0"
    for index, size in zip(_positions(made), sizes):
        position = f"({position}) * {size} + ({index})"
    none = " * ".join(sizes)
    padded = _padded(pool.value, made, lowest)
    taken = f"{' && '.join(inside)} && {padded} == {read('y', result)}"
    spatial = rest = read("q", result)
    statements.append(f"{target('q', result)} min=! {taken} ? {position} : {none}{where}")
    if attributes["columns_first"]:
        parts: list[str] = []
        for size in reversed(sizes):
            parts.append(f"({rest}) % {size}")
            rest = f"({rest}) // {size}"
        spatial = "0"
        for part, size in zip(parts, reversed(sizes)):
            spatial = f"({spatial}) * {size} + {part}"
    outer = ranges([("n", "N"), ("c", "C"), *zip(result[2:], numbered("S", rank))])
    statements.append(f"{target('places', result)} = (n * C + c) * {none} + {spatial}{outer}")
    text = definition("max_pool", [own], statements, declared(values), ["y", "places"])
    return Written(text, values)


def _lowest(dtype: DType) -> str:
    if dtype.is_float:
        return "(-inf)"
    return "0" if dtype.kind == "uint" else f"(-{(1 << (dtype.bits - 1)) - 1} - 1)"


def average_pool(types: Types, attributes: Attributes, box: Box) -> Written:
    """Mean of each window; padding counts as zeros with `count_padding`, else is left out."""
    pool = _pool("average_pool", types, attributes, box)
    made, result, own = pool.made, pool.result, pool.own
    count_padding = bool(attributes["count_padding"])
    statements = pool.reduced("t", "+", "{}", "0")
    counts = []
    for axis, window in enumerate(made):
        if not window.padded or (count_padding and not window.cut):
            counts.append(str(window.kernel))
            continue
        position = window.position(f"o{axis}", f"k{axis}", f"B{axis}")
        inside = f"{position} < H{axis} + A{axis}" if count_padding else (
            f"{position} >= 0 && {position} < H{axis}"
        )  # fmt: skip
        statements.append(
            f"n{axis}(o{axis}) +=! {inside} ? 1 : 0"
            f" where o{axis} in 0:S{axis}, k{axis} in 0:{window.kernel}"
        )
        counts.append(f"n{axis}(o{axis})")
    statements.append(
        f"{target('y', result)} = {read('t', result)} / cast<T>({' * '.join(counts)})"
    )
    values = _values(made)
    if count_padding:
        values |= {f"A{axis}": window.after for axis, window in enumerate(made) if window.cut}
    return Written(definition("average_pool", [own], statements, declared(values)), values)


def lp_pool(types: Types, attributes: Attributes, box: Box) -> Written:
    """p-norm of each window; padding adds nothing."""
    pool = _pool("lp_pool", types, attributes, box)
    made, result, where, own = pool.made, pool.result, pool.where, pool.own
    p = attributes["p"]
    value = f"abs({_padded(pool.value, made, '0')})"
    total = read("t", result)
    element, root = {1: (value, total), 2: (f"{value} * {value}", f"sqrt({total})")}.get(
        p, (f"pow({value}, cast<T>({p}))", f"pow({total}, 1 / cast<T>({p}))")
    )
    statements = [f"{target('t', result)} +=! {element}{where}", f"{target('y', result)} = {root}"]
    values = _values(made)
    return Written(definition("lp_pool", [own], statements, declared(values)), values)
