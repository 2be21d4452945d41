"""Classification of views: statements that only map indices to another tensor."""

from __future__ import annotations

from collections.abc import Mapping

from anydim.compiler.kernels.inference import free_axes
from anydim.lang.tree import Index, Read, Statement, TensorType
from anydim.lang.tree.affine import Affine, address, reads, row_major_strides
from anydim.sizes import Size, as_size

_ROW = 64  # elements of a row above which looking it up again is cheap


def is_view(statement: Statement, types: Mapping[str, TensorType]) -> bool:
    """Whether a statement only maps its indices to those of another tensor."""
    body = statement.body
    if statement.combine or not isinstance(body, Read) or body.default is not None:
        return False
    return address(body, types[body.tensor].shape) is not None


def is_lookup(statement: Statement) -> bool:
    """Whether each element is an element of a table, at a data-dependent index.

    With a single reader a lookup there is faster than to write the rows and read them back, except
    in a matrix product, which reads each row many times.
    """
    body = statement.body
    return (
        not statement.combine
        and isinstance(body, Read)
        and body.default is None
        and any(reads(index) for index in body.indices)
    )


def looks_up_rows(lookup: Statement) -> bool:
    """Whether a lookup copies whole rows of a table, not known to be short."""
    body, last = lookup.body, lookup.axes[-1:]
    if not isinstance(body, Read) or not last or body.indices[-1:] != (Index(last[0].name),):
        return False
    alone = not any(last[0].name in free_axes(index) for index in body.indices[:-1])
    length = last[0].extent.constant
    return alone and not body.flat and (length is None or length >= _ROW)


def is_reshape(statement: Statement, types: Mapping[str, TensorType]) -> bool:
    """Whether a view keeps all elements, at their row-major offsets."""
    if not is_view(statement, types):
        return False
    body = statement.body
    assert isinstance(body, Read)
    source = types[body.tensor].shape
    own = Affine.of(
        as_size(0),
        {a.name: s for a, s in zip(statement.axes, row_major_strides(statement.shape))},
    )
    form = address(body, source)
    assert form is not None
    moving = {axis.name for axis in statement.axes if axis.extent.constant != 1}
    left = {n: c for n, c in form.terms if n in moving}
    right = {n: c for n, c in own.terms if n in moving}
    same_count = _count(source) == _count(statement.shape)
    return left == right and form.constant.constant == 0 and same_count


def _count(shape: tuple[Size, ...]) -> Size:
    total = as_size(1)
    for size in shape:
        total = total * size
    return total


def permutation(statement: Statement) -> tuple[int, ...] | None:
    """For y(axes) = x(permuted axes): the axis of x for each axis of y; else None.

    An axis of y may be shorter than the axis of x, for a prefix of x.
    """
    body = statement.body
    if statement.combine or not isinstance(body, Read) or body.flat or body.default is not None:
        return None
    names = [axis.name for axis in statement.axes]
    indices = [index.name if isinstance(index, Index) else None for index in body.indices]
    if not names or len(names) != len(indices) or set(names) != set(indices):
        return None
    return tuple(indices.index(name) for name in names)
