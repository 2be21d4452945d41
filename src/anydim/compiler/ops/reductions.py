"""TC texts of the operators that combine along axes: reductions, softmax, layer norm."""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.dtypes import float16
from anydim.base.records import dataclass
from anydim.compiler.graph.operator import Attributes, Types, Written
from anydim.compiler.ops.writing import (
    aligned,
    axis_of,
    axis_set,
    definition,
    expect_inputs,
    numbered,
    parameter,
    ranges,
    read,
    target,
)
from anydim.sizes import Box


@dataclass(frozen=True)
class Reduction:
    """Writer of a reduction: maps each element, combines them, maps the total.

    `element` is a text over {x}; `finish` one over {t}, the total, and {count}, the element count.
    """

    name: str
    combine: str
    element: str = "{x}"
    finish: str = "{t}"

    def __call__(self, types: Types, attributes: Attributes, box: Box) -> Written:
        expect_inputs(self.name, types, 1, 1)
        layout = Layout.of(self.name, types, attributes)
        element = self.element.format(x=layout.element)
        if not layout.axes:
            total, statements = f"({element})", []
        elif self.finish == "{t}":
            head = f"{target('y', layout.result)} {self.combine}=! {element}{layout.ones}"
            return Written(definition(self.name, [layout.parameter], [head]))
        else:
            total = read("t", layout.kept)
            statements = [f"{target('t', layout.kept)} {self.combine}=! {element}"]
        value = self.finish.format(t=total, count=layout.count)
        statements.append(f"{target('y', layout.result)} = {value}{layout.ones}")
        return Written(definition(self.name, [layout.parameter], statements))


@dataclass(frozen=True)
class Layout:
    """Indices of a reduction of x: `kept` indices, and the `result` indices.

    `result` has an index of extent 1 for each reduced axis that is kept as size 1.
    """

    axes: tuple[int, ...]
    element: str
    parameter: str
    kept: Sequence[str]
    result: Sequence[str]
    ones: str
    count: str

    @staticmethod
    def of(name: str, types: Types, attributes: Attributes) -> Layout:
        rank = types[0].rank
        axes = axis_set(name, attributes["axes"], rank)
        indices, sizes = numbered("i", rank), numbered("N", rank)
        keep = attributes["keepdims"]
        stays = [axis for axis in range(rank) if keep or axis not in axes]
        result = [f"k{axis}" if axis in axes else indices[axis] for axis in stays]
        return Layout(
            axes,
            read("x", indices),
            parameter("x", sizes),
            [indices[a] for a in range(rank) if a not in axes],
            result,
            ranges((f"k{a}", "1") for a in axes) if keep else "",
            "*".join(sizes[a] for a in axes) or "1",
        )


def log_sum_exp(types: Types, attributes: Attributes, box: Box) -> Written:
    """log(sum(exp(x))) without overflow: the largest element is subtracted first."""
    expect_inputs("reduce_log_sum_exp", types, 1, 1)
    layout = Layout.of("reduce_log_sum_exp", types, attributes)
    result = target("y", layout.result)
    if not layout.axes:
        statements = [f"{result} = {layout.element}"]
    else:
        top, total = read("top", layout.kept), read("total", layout.kept)
        safe = f"(isinf({top}) ? 0 : {top})"
        statements = [
            f"{target('top', layout.kept)} max=! {layout.element}",
            f"{target('total', layout.kept)} +=! exp({layout.element} - {safe})",
            f"{result} = log({total}) + {safe}{layout.ones}",
        ]
    return Written(definition("reduce_log_sum_exp", [layout.parameter], statements))


@dataclass(frozen=True)
class Softmax:
    """Writer of softmax or its logarithm over one or several axes."""

    name: str
    logarithm: bool

    def __call__(self, types: Types, attributes: Attributes, box: Box) -> Written:
        expect_inputs(self.name, types, 1, 1)
        rank = types[0].rank
        axes = axis_set(self.name, attributes["axis"], rank)
        indices, sizes = numbered("i", rank), numbered("N", rank)
        kept = [indices[a] for a in range(rank) if a not in axes]
        x, e = read("x", indices), read("e", indices)
        top, total = read("top", kept), read("total", kept)
        statements = [f"{target('top', kept)} max=! {x}"] if axes else [f"top = {x}"]
        combine = "+=!" if axes else "="
        if self.logarithm:
            statements += [
                f"{target('total', kept)} {combine} exp({x} - {top})",
                f"{target('y', indices)} = {x} - {top} - log({total})",
            ]
        else:
            statements += [
                f"{target('e', indices)} = exp({x} - {top})",
                f"{target('total', kept)} {combine} {e}",
                f"{target('y', indices)} = {e} / {total}",
            ]
        return Written(definition(self.name, [parameter("x", sizes)], statements))


def layer_norm(types: Types, attributes: Attributes, box: Box) -> Written:
    """x normalised to mean 0 and variance 1 over its last axes, times scale plus bias.

    float16 is computed in float32. With `statistics`, the mean and 1 / deviation are results too.
    """
    name = "layer_norm"
    expect_inputs(name, types, 1, 3)
    rank = types[0].rank
    first = axis_of(name, attributes["axis"], rank)
    indices, sizes = numbered("i", rank), numbered("N", rank)
    kept, count = indices[:first], "*".join(sizes[first:])
    half = types[0].dtype == float16
    work = "float" if half else "T"
    x = f"cast<float>({read('x', indices)})" if half else read("x", indices)
    mean, deviation = read("mean", kept), read("inverse", kept)
    scaled = f"({x} - {mean}) * {deviation}"
    y = f"cast<T>({scaled})" if half else scaled
    parameters = [parameter("x", sizes)]
    for word, operation, kind in zip(("scale", "bias"), ("*", "+"), types[1:]):
        own = aligned(kind, types[0].shape, indices)
        offset = rank - kind.rank
        own_sizes = [
            "1" if size.constant == 1 else sizes[offset + axis]
            for axis, size in enumerate(kind.shape)
        ]
        parameters.append(parameter(word, own_sizes))
        y += f" {operation} {read(word, own)}"
    epsilon = f"cast<{work}>(epsilon)"
    statements = [
        f"{target('total', kept)} +=! {x}",
        f"{target('mean', kept)} = {read('total', kept)} / cast<{work}>({count})",
        f"{target('square', kept)} +=! ({x} - {mean}) * ({x} - {mean})",
        f"{target('inverse', kept)} = rsqrt({read('square', kept)} / cast<{work}>({count})"
        f" + {epsilon})",
        f"{target('y', indices)} = {y}",
    ]
    results = ["y"]
    if attributes["statistics"]:
        ones = numbered("k", rank)[first:]
        for word, source in (("mean_result", mean), ("inverse_result", deviation)):
            results.append(word)
            where = ranges((one, "1") for one in ones)
            statements.append(f"{target(word, [*kept, *ones])} = {source}{where}")
    text = definition(name, parameters, statements, ["float epsilon"], results)
    return Written(text, {"epsilon": attributes["epsilon"]})
