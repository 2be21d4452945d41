"""TC texts of argmax, argmin, hardmax and eye."""

from __future__ import annotations

from anydim.base.dtypes import DType, float32
from anydim.base.records import dataclass
from anydim.compiler.graph.operator import Attributes, Types, Written
from anydim.compiler.ops.writing import (
    axis_of,
    definition,
    expect_inputs,
    numbered,
    parameter,
    ranges,
    read,
    target,
)
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Guard, as_size, minimum, product


@dataclass(frozen=True)
class ArgReduction:
    """Writer of the index of the largest or smallest element on an axis; `combine`: max or min.

    NaN counts as the largest and as the smallest. Among equal elements the first is selected, or
    the last with the attribute `last`.
    """

    name: str
    combine: str

    def __call__(self, types: Types, attributes: Attributes, box: Box) -> Written:
        expect_inputs(self.name, types, 1, 1)
        rank = types[0].rank
        axis = axis_of(self.name, attributes["axis"], rank)
        indices, sizes = numbered("i", rank), numbered("N", rank)
        kept = [*indices[:axis], *indices[axis + 1 :]]
        result, ones = list(kept), ""
        if attributes["keepdims"]:
            result = [*indices[:axis], "one", *indices[axis + 1 :]]
            ones = ranges([("one", "1")])
        along, position = indices[axis], read("place", kept)
        best = f"{target('best', kept)} {self.combine}=! {read('x', indices)}"
        statements = [
            best,
            _first(types[0].dtype, indices, kept, along, sizes[axis], attributes["last"]),
            f"{target('y', result)} = {position}{ones}",
        ]
        text = definition(self.name, [parameter("x", sizes)], statements)
        return Written(text, guards=(_nonempty(self.name, types[0], axis),))


def _nonempty(name: str, kind: TensorType, axis: int) -> Guard:
    """Guard: the axis has elements, unless the result is empty."""
    others = product(size for number, size in enumerate(kind.shape) if number != axis)
    message = f"axis {axis} of the input of '{name}' has at least 1 element"
    return Guard(minimum(others, 1), "<=", kind.shape[axis], message)


def _first(
    dtype: DType, indices: list[str], kept: list[str], along: str, extent: str, last: bool
) -> str:
    """place(kept): the first or last index at which x equals `best`."""
    x = read("x", indices)
    same = f"{x} == {read('best', kept)}"
    if dtype.is_float:
        same = f"({same} || isnan({x}))"
    combine, none = ("max", "(-1)") if last else ("min", extent)
    return f"{target('place', kept)} {combine}=! {same} ? {along} : {none}"


def hardmax(types: Types, attributes: Attributes, box: Box) -> Written:
    """1 at the first largest element along an axis, 0 elsewhere."""
    expect_inputs("hardmax", types, 1, 1)
    rank = types[0].rank
    axis = axis_of("hardmax", attributes["axis"], rank)
    indices, sizes = numbered("i", rank), numbered("N", rank)
    kept = [*indices[:axis], *indices[axis + 1 :]]
    statements = [
        f"{target('best', kept)} max=! {read('x', indices)}",
        _first(types[0].dtype, indices, kept, indices[axis], sizes[axis], False),
        f"{target('y', indices)} = cast<T>({indices[axis]} == {read('place', kept)} ? 1 : 0)"
        f" where exists {read('x', indices)}",
    ]
    return Written(definition("hardmax", [parameter("x", sizes)], statements))


def eye(types: Types, attributes: Attributes, box: Box) -> Written:
    """A matrix with 1 on its k-th diagonal, 0 elsewhere."""
    expect_inputs("eye", types, 0, 0)
    body = f"y(i,j) = cast<{attributes['dtype']}>(j - i == K ? 1 : 0) where i in 0:S, j in 0:M"
    text = definition("eye", [], [body], ["size S", "size M", "size K"])
    names = {"S": "rows", "M": "columns", "K": "k"}
    return Written(text, {own: as_size(attributes[long]) for own, long in names.items()})


ARG_REDUCTION: dict[str, object] = {"axis": 0, "keepdims": True, "last": False}
EYE: dict[str, object] = {"k": 0, "dtype": float32}
