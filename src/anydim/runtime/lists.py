"""Inputs and outputs that users see as lists, ragged batches or structures, and their values.

A list is two values of the program: concatenated elements, and the shape of each array. Ragged
batches (`ragged.py`) are such lists, too, with the sizes of all rows in one array.
"""

from __future__ import annotations

from collections.abc import Mapping

from anydim.base.records import dataclass
from anydim.sizes import Dim, Size


@dataclass(frozen=True)
class Listed:
    """A list of arrays as two values: elements [total] and shapes [count, rank].

    The elements of all arrays are concatenated, each array in row-major order. With `optional`, the
    list has at most one array: the user sees it, or None. With `single` it has exactly one, and
    `shapes` is its shape [rank], whose length may differ between calls.
    """

    elements: str
    shapes: str
    optional: bool = False
    single: bool = False

    @property
    def hidden(self) -> tuple[str, ...]:
        """The inputs or results of the program that users do not see."""
        return (self.shapes,)


@dataclass(frozen=True)
class RowTable:
    """The inputs of a program that describe the rows of a ragged batch.

    `rows` is int64 [rows, units + dims]: the first index of a row in each unit, then its size of
    each ragged dim. `sums` is int64: the total of each unit of `summed`, which no input determines,
    then the largest size of each ragged dim. `totals` and `longest` are the names of these dims.
    """

    rows: str
    sums: str
    dims: tuple[Dim, ...]
    longest: tuple[str, ...]
    units: tuple[Size, ...]
    totals: tuple[str, ...]
    summed: tuple[str, ...]


@dataclass(frozen=True)
class RaggedPort:
    """An input or output that users see as a ragged batch.

    The program has the value `values` for it: all rows along axis 0, or, when `flat`, all elements
    in one axis. `shape` is the shape of a row, over the ragged dims and others. `counted` is the
    size of a row's part of `values`. An input that is `ones` is not in the program: it marks
    padding, of which there is none.
    """

    values: str
    table: RowTable
    shape: tuple[Size, ...]
    counted: Size
    flat: bool = False
    ones: bool = False

    @property
    def elements(self) -> str:
        """The value of the program with the elements, as of a list."""
        return self.values

    @property
    def hidden(self) -> tuple[str, ...]:
        """The inputs of the program that users do not see."""
        return self.table.rows, self.table.sums


@dataclass(frozen=True)
class FieldPort:
    """A field of a constructor: the program has an input `values` for it.

    A tensor field has `values` [nodes, shape...]. A field of structure type `type` has int64
    [nodes]: the nodes of this type that it refers to. If it has any number of structures, `values`
    has those of all nodes one after another, and `offsets` names the input int64 [nodes + 1] with
    the first one of each node.
    """

    name: str
    values: str
    type: str = ""
    shape: tuple[Size, ...] = ()
    offsets: str = ""


@dataclass(frozen=True)
class ConstructorPort:
    """A constructor of a structure type; without fields it has exactly one node."""

    name: str
    fields: tuple[FieldPort, ...]


@dataclass(frozen=True)
class TypePort:
    """A structure type. Its nodes are numbered constructor after constructor."""

    name: str
    constructors: tuple[ConstructorPort, ...]


@dataclass(frozen=True)
class StructurePort:
    """An input that users see as structures, a forest: `roots`, int64 [trees], are nodes of `type`.

    Results of the program have an axis of trees in front.
    """

    type: str
    types: tuple[TypePort, ...]
    roots: str

    @property
    def elements(self) -> str:
        """The input of the program that tells the number of trees."""
        return self.roots

    @property
    def hidden(self) -> tuple[str, ...]:
        """The other inputs of the program, which users do not see."""
        fields = (f for t in self.types for c in t.constructors for f in c.fields)
        return tuple(name for f in fields for name in (f.values, f.offsets) if name)


Lists = Mapping[str, Listed | RaggedPort | StructurePort]
