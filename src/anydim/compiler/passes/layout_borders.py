"""Copies of graph inputs and results, so that values between them can be stored channels last.

Inputs and results keep their declared layout. A single convolution would have both channels first
and lose more time than the copies of x and y take. So dense windows over an input of many channels
read a copy of it, and their result is copied to the output; copies that would not be stored
channels last are removed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.passes.flow import Line, unique_name
from anydim.compiler.passes.image_channels import ChannelDims, factors, slides
from anydim.compiler.passes.view_forms import is_reshape
from anydim.lang.tree import Axis, Expr, Index, Read, Statement, TensorType
from anydim.lang.tree.affine import reads, rewrite

_MIN_CHANNELS = 16  # channels


@dataclass(frozen=True)
class Borders:
    """Statements and types with copies of inputs and results; `copies` maps names to copies."""

    lines: tuple[Line, ...]
    types: Mapping[str, TensorType]
    copies: Mapping[str, str]

    def channels(self, found: ChannelDims) -> ChannelDims:
        """Channel dimensions, extended to the copied inputs."""
        inside = {name: found[copy] for name, copy in self.copies.items() if copy in found}
        return inside | found


def with_copies(lines: Sequence[Line], graph: Graph, only: frozenset[str] | None = None) -> Borders:
    """The statements with copies of graph inputs and results; with `only`, of these."""
    types, copies = dict(graph.types), {}
    for border in _borders(lines, graph):
        if only is None or border in only:
            copies[border] = unique_name(border, types)
            types[copies[border]] = types[border]
    made: list[Line] = []
    for line in lines:
        read = _windows(line.statement, graph)
        source = None if read is None else copies.get(read.tensor)
        if read is not None and source is not None:
            if all(other.target != source for other in made):
                made.append(_copy(read.tensor, source, line, types))
        if line.target in copies:
            inner = copies[line.target]
            statement = replace(_reading(line.statement, copies), target=inner)
            made += (replace(line, statement=statement), _copy(inner, line.target, line, types))
        elif source is not None:
            made.append(replace(line, statement=_reading(line.statement, copies)))
        else:
            made.append(line)
    return Borders(tuple(made), types, copies)


def _borders(lines: Sequence[Line], graph: Graph) -> list[str]:
    """Inputs read by one windowed statement only, and results of windowed statements."""
    sliding: dict[str, list[Statement]] = {}
    made: dict[str, int] = {}  # channels of windowed results and of elementwise statements on them
    for line in lines:
        statement, read = line.statement, _windows(line.statement, graph)
        if read is not None:
            sliding.setdefault(read.tensor, []).append(statement)
            made[line.target] = _channels(statement, graph)[1]
        elif not statement.combine:
            made[line.target] = max(
                (made.get(each.tensor, 0) for each in reads(statement.body)
                 if each.indices == tuple(Index(axis.name) for axis in statement.axes)),
                default=0,
            )  # fmt: skip
    outputs = [name for name in graph.outputs if made.get(name, 0) >= _MIN_CHANNELS]
    inputs = [
        name for name, by in sliding.items()
        if name in graph.inputs and len(by) == 1 and _channels(by[0], graph)[0] >= _MIN_CHANNELS
    ]  # fmt: skip
    # unit dimensions of a result are dropped from the value that it is a view of
    views = (line.statement for line in lines if line.target in graph.outputs)
    squeezed = any(
        made.get(each.tensor, 0) >= _MIN_CHANNELS
        for view in views if is_reshape(view, graph.types) for each in reads(view.body)
    )  # fmt: skip
    return [*inputs, *outputs] if outputs or squeezed else []


def _windows(statement: Statement, graph: Graph) -> Read | None:
    """The operand of a dense window with constant weights; None for depthwise ones and others."""
    read, weights = factors(statement, graph)
    if read is None or weights is None or read.flat:
        return None
    return read if any(slides(index, statement) for index in read.indices) else None


def _channels(statement: Statement, graph: Graph) -> tuple[int, int]:
    """Channel counts of a window's input and result; 0 if not static."""
    read, weights = factors(statement, graph)
    assert read is not None and weights is not None
    shape = graph.types[read.tensor].shape
    whole = {index.name: size.constant or 0
             for index, size in zip(read.indices, shape) if isinstance(index, Index)}  # fmt: skip
    extents = {axis.name: axis.extent.constant or 0 for axis in statement.axes}
    names = free_axes(weights)
    found = [whole[name] for name in names & whole.keys()]
    made = [extents.get(name, 0) for name in names - free_axes(read)]
    return max(found, default=0), max(made, default=0)


def _reading(statement: Statement, copies: Mapping[str, str]) -> Statement:
    def change(expr: Expr) -> Expr | None:
        if isinstance(expr, Read) and expr.tensor in copies:
            return replace(expr, tensor=copies[expr.tensor])
        return None

    return statement.with_body(rewrite(statement.body, change))


def _copy(source: str, target: str, line: Line, types: Mapping[str, TensorType]) -> Line:
    axes = tuple(Axis(f"i{number}", size) for number, size in enumerate(types[source].shape))
    body = Read(source, tuple(Index(axis.name) for axis in axes))
    return replace(line, statement=Statement(target, axes, body))
