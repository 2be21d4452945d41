"""Counts of n-grams: how often each of a set of short sequences occurs in a row.

The sequences are stored as a trie in arrays: node s has the keys `first[s] ... first[s + 1]`,
ascending, with the child nodes `following`; `columns[s]` is the result counted by a sequence that
ends there, -1 for none. Elements of a sequence may be 1, 2, ... `skips` + 1 positions apart, all by
the same distance.
"""

from __future__ import annotations

import numpy

from anydim.base.dtypes import float32, int64
from anydim.base.errors import GraphError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer
from anydim.compiler.kernels.ir import constant, greatest, least, select
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.routines.ir_builder import Code
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
from anydim.sizes import Box, as_size

NAME = "ngram_counts"
TABLES = ("first", "keys", "following", "columns")


def infer(types: Types, attributes: Attributes, box: Box) -> tuple[TensorType, ...]:
    """Types: integers [rows, length], then int64 vectors `TABLES`."""
    x, *tables = types
    if x.rank != 2 or not x.dtype.is_integer or x.dtype.stored:
        raise GraphError(f"operator '{NAME}': {x} is not a matrix of integers")
    for name, kind in zip(TABLES, tables):
        if kind.dtype != int64 or kind.rank != 1:
            raise GraphError(f"operator '{NAME}': {name} is {kind}, expected a vector of int64")
    return (TensorType(float32, (x.shape[0], as_size(attributes["count"]))),)


def spacings(attributes: Attributes) -> list[tuple[int, int]]:
    """(distance between elements, shortest sequence); single elements are counted for one distance
    only."""
    shortest, longest = int(attributes["shortest"]), int(attributes["longest"])
    found = []
    for step in range(1, int(attributes["skips"]) + 2):
        if shortest <= longest:
            found.append((step, shortest))
        shortest += shortest == 1
    return found


def evaluate(arrays: Arrays, attributes: Attributes, sizes: Dims) -> Results:
    x, first, keys, following, columns = arrays
    children = {
        node: dict(zip(keys[low:high].tolist(), following[low:high].tolist()))
        for node, (low, high) in enumerate(zip(first[:-1].tolist(), first[1:].tolist()))
    }
    ends = dict(enumerate(columns.tolist()))
    counts = numpy.zeros((len(x), as_size(attributes["count"]).evaluate(sizes)), numpy.float32)
    for row, result in zip(x.tolist(), counts):
        for step, shortest in spacings(attributes):
            for start in range(len(row)):
                node, length = 0, 0
                for value in row[start::step][: int(attributes["longest"])]:
                    if value not in children.get(node, {}):
                        break
                    node, length = children[node][value], length + 1
                    if length >= shortest and 0 <= ends.get(node, -1) < len(result):
                        result[ends[node]] += 1
    return (counts,)


def lower(types: Types, attributes: Attributes, box: Box, machine: Machine) -> Steps:
    code = Code(NAME, machine, box)
    x, y = code.input("x0", types[0].dtype), code.output("y0", float32)
    rows, length = types[0].shape
    count = as_size(attributes["count"])
    trie = _Trie(code, types)
    with code.range(code.start, code.stop) as row:
        own = x.part(code.let(row * code.size(length)))
        result = y.part(code.let(row * code.size(count)))
        with code.range(0, code.size(count)) as i:
            result[i] = 0.0
        for step, shortest in spacings(attributes):
            with code.range(0, code.size(length)) as start:
                trie.count(own, start, code.size(length), step, shortest,
                           int(attributes["longest"]), result, code.size(count))  # fmt: skip
    return Steps((code.launch(rows, rows * length, reason="sequences matched in a trie"),))


class _Trie:
    """The tables; no index is out of bounds, whatever they contain."""

    def __init__(self, code: Code, types: Types) -> None:
        self.code = code
        self.first, self.keys, self.following, self.columns = (
            code.input(f"x{number}", int64) for number in range(1, 5)
        )
        self.links = code.size(types[2].shape[0])
        self.ends = code.size(types[3].shape[0])
        self.nodes = code.size(types[4].shape[0])
        self.bounds = code.size(types[1].shape[0])

    def count(
        self, x: Buffer, start: ir.Value, length: ir.Value, step: int, shortest: int, longest: int,
        result: Buffer, columns: ir.Value,
    ) -> None:  # fmt: skip
        """Count the sequences that start at an element."""
        code = self.code
        node, at, depth = code.variable(0), code.variable(start), code.variable(0)

        def further() -> ir.Value:
            inside = (node() >= 0) & (node() < self.nodes) & (node() + 1 < self.bounds)
            return inside & (at() < length) & (depth() < longest)

        with code.loop(further):
            node.set(self._child(node(), x[at()].as_(int64)))
            depth += 1
            at += step
            there = (node() >= 0) & (node() < self.nodes) & (depth() >= shortest)
            column = self.columns.load(node(), where=there)
            counts = there & (column >= 0) & (column < columns)
            result.store(column, result.load(column, where=counts) + 1.0, counts)

    def _child(self, node: ir.Value, key: ir.Value) -> ir.Value:
        """The child node of a key, -1 for none, by binary search."""
        code = self.code
        most = least(self.links, self.ends)
        low = code.variable(greatest(self.first[node], 0))
        high = code.variable(least(self.first[node + 1], most))
        end = high()
        code.bisect(low, high, lambda index: self.keys[index] < key)
        inside = code.let(low() < end)
        found = inside & self.keys.load(low(), where=inside).equals(key)
        return code.let(select(found, self.following.load(low(), where=inside), constant(-1)))


NGRAM_COUNTS = Routine((5, 5), infer, evaluate, lower)
