"""Inline pointwise values into their readers.

Inlined are: values that a reduction reads element for element (a mean of squares stores no
squares), except into products of two tensors, since a contraction reads its operands from memory;
values that pointwise statements read in parts, each element at most once (gates need not be
stored before they are used); and values of constants that are looked up (a table of int8 is
not dequantised as a whole for the rows that a call needs).

After: no reduction but a contraction reads a pointwise value without other readers, and no table
is computed before a lookup.
"""

from __future__ import annotations

from dataclasses import replace

from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.passes.flow import Line, inputs_of, is_product, pack, unpack
from anydim.compiler.passes.view_forms import is_view
from anydim.lang.tree import Expr, Index, Read, Statement
from anydim.lang.tree.affine import body_at, reads, rewrite
from anydim.lang.tree.bounds_checks import checks
from anydim.sizes import Truth, as_size, product, prove


@dataclass(frozen=True)
class Inline:
    """Replace reads of such values by their bodies."""

    def run(self, graph: Graph) -> Graph:
        lines = _looked_up(unpack(graph), graph)
        return pack(graph, _in_parts(_inline_lines(lines, graph), graph), graph.types)


def _inline_lines(lines: list[Line], graph: Graph) -> list[Line]:
    users: dict[str, int] = {}
    for line in lines:
        for name in inputs_of(line.statement):
            users[name] = users.get(name, 0) + 1
    bodies: dict[str, Statement] = {}
    result: dict[str, Line] = {}
    for line in lines:
        statement = line.statement
        if statement.combine and not is_product(statement):
            for name in inputs_of(statement):
                producer = bodies.get(name)
                if producer is None or users[name] != 1 or name in graph.outputs:
                    continue
                inlined = _inline(statement, producer)
                if inlined is not None:
                    statement = inlined
                    del result[name]
            line = replace(line, statement=statement)
        elif not statement.combine and not is_view(statement, graph.types):
            bodies[line.target] = statement
        result[line.target] = line
    return list(result.values())


def _inline(statement: Statement, producer: Statement) -> Statement | None:
    """`statement` with the producer inlined if it reads each element once; else None."""
    names = {axis.name for axis in (*statement.axes, *statement.reduced)}
    found: list[Read] = []

    def collect(expr: Expr) -> Expr | None:
        if isinstance(expr, Read) and expr.tensor == producer.target:
            found.append(expr)
        return None

    rewrite(statement.body, collect)
    for read in found:
        indices = [index.name for index in read.indices if isinstance(index, Index)]
        if read.flat or read.default is not None or sorted(indices) != sorted(names):
            return None
    if len(found) != 1:
        return None

    return _inline_producer(statement, producer)


def _inline_producer(statement: Statement, producer: Statement) -> Statement:
    """`statement` with the producer inlined at every read of its value."""

    def replace_read(expr: Expr) -> Expr | None:
        if not (isinstance(expr, Read) and expr.tensor == producer.target):
            return None
        return body_at(producer, expr.indices)

    return statement.with_body(rewrite(statement.body, replace_read))


# ---- lookups -----------------------------------------------------------------------------------


def _looked_up(lines: list[Line], graph: Graph) -> list[Line]:
    """Inline pointwise values of constants whose readers all use data-dependent indices.

    They were too large for constant folding.
    """
    users = _users(lines)
    made = _of_constants(lines, graph)
    gone: set[int] = set()
    for number in reversed(range(len(lines))):  # a table's operands become lookups in turn
        producer = lines[number].statement
        if producer.target not in made or producer.target in graph.outputs:
            continue
        found = users.get(producer.target, set())
        readers = [lines[user].statement for user in found]
        if not readers or not all(_looks_up(reader, producer.target) for reader in readers):
            continue
        for user in found:
            statement = _inline_producer(lines[user].statement, producer)
            lines[user] = replace(lines[user], statement=statement)
        for name in inputs_of(producer):
            users[name] = (users[name] | found) - {number}
        gone.add(number)
    return [line for number, line in enumerate(lines) if number not in gone]


def _of_constants(lines: list[Line], graph: Graph) -> set[str]:
    """The pointwise values that depend on no input."""
    made: set[str] = set()
    for statement in (line.statement for line in lines):
        if statement.combine or is_view(statement, graph.types):
            continue
        if all(name in graph.constants or name in made for name in inputs_of(statement)):
            made.add(statement.target)
    return made


def _looks_up(reader: Statement, table: str) -> bool:
    """Whether a pointwise statement reads a table only at data-dependent indices."""
    found = [read for read in reads(reader.body) if read.tensor == table]
    return not reader.combine and all(
        read.default is None and not read.flat and any(reads(index) for index in read.indices)
        for read in found
    )


# ---- read in parts -----------------------------------------------------------------------------


def _in_parts(lines: list[Line], graph: Graph) -> list[Line]:
    """Inline pointwise values that pointwise statements read in parts."""
    users = _users(lines)
    reductions = {line.target for line in lines if line.statement.combine}
    gone: set[int] = set()
    for number in reversed(range(len(lines))):  # a producer may be such a value, too
        producer = lines[number].statement
        if producer.combine or producer.target in graph.outputs or is_view(producer, graph.types):
            continue
        if any(True for _ in checks(producer.body)):
            continue  # a check applies even to elements that are not read
        found = users.get(producer.target, set())
        readers = [lines[user].statement for user in found]
        if not readers or not _only_parts(producer, readers, graph):
            continue
        if any(_like(read, producer) for read in reads(producer.body) if read.tensor in reductions):
            continue  # it will be fused into the reduction's epilogue
        for user in found:
            statement = _inline_producer(lines[user].statement, producer)
            lines[user] = replace(lines[user], statement=statement)
        for name in inputs_of(producer):
            users[name] = (users[name] | found) - {number}
        gone.add(number)
    return [line for number, line in enumerate(lines) if number not in gone]


def _users(lines: list[Line]) -> dict[str, set[int]]:
    """The numbers of the lines that read a value."""
    users: dict[str, set[int]] = {}
    for number, line in enumerate(lines):
        for name in inputs_of(line.statement):
            users.setdefault(name, set()).add(number)
    return users


def _only_parts(producer: Statement, readers: list[Statement], graph: Graph) -> bool:
    """Whether pointwise statements read parts of a value, in total no more than its elements."""
    all_read = as_size(0)
    for reader in readers:
        found = [read for read in reads(reader.body) if read.tensor == producer.target]
        if reader.combine or is_view(reader, graph.types) or reader.shape == producer.shape:
            return False
        if any(read.flat or read.default is not None for read in found):
            return False
        all_read += len(found) * product(axis.extent for axis in reader.axes)
    whole = product(axis.extent for axis in producer.axes)
    return prove(all_read, "<=", whole, graph.box) is Truth.PROVED


def _like(read: Read, statement: Statement) -> bool:
    """Whether a statement reads a tensor element for element."""
    return not read.flat and read.indices == tuple(Index(axis.name) for axis in statement.axes)
