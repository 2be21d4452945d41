"""Products with factors rounded to bfloat16, with `precision="bfloat16"`.

    y(m,n) +=! a(m,k) * w(k,n)                                      becomes
    y(m,n) +=! float(bfloat16(a(m,k))) * float(w'(k,n))

with constant weights w' of 16 bits. Products of two values of the call stay float32: attention
multiplies them.

After: every product with a constant factor for which this machine has a bfloat16 kernel uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from anydim.base.dtypes import bfloat16, convert_array, float32
from anydim.base.records import dataclass
from anydim.base.text import count_of
from anydim.compiler.graph.nodes import Constant, Graph
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.template import Template, first_match
from anydim.compiler.passes.flow import (
    Line,
    group_of,
    is_product,
    live,
    pack,
    read_of,
    unique_name,
    unpack,
)
from anydim.compiler.passes.options import BFLOAT16
from anydim.lang.tree import Apply, Cast, Expr, Read, Statement, TensorType
from anydim.sizes import product

# Fewer cost more than in float32: 1000 rows by 3 x 1000 1.41, by 16 x 4096 1.61, by 64 x 16 1.14.
MIN_TERMS, MIN_COLUMNS = 32, 32
ERROR = "each factor is off by up to 2^-9 of itself; sums are float32"


@dataclass(frozen=True)
class RoundFactors:
    """Round the factors of products that have a bfloat16 kernel; `notes` report how many."""

    precision: str
    machine: Machine
    templates: tuple[Template, ...]
    notes: list[str] = field(default_factory=list)

    def run(self, graph: Graph) -> Graph:
        if self.precision != BFLOAT16:
            return graph
        work = _Work(graph, self.machine, self.templates)
        lines = [work.round_product(line) for line in unpack(graph)]
        products = [line for line in lines if is_product(line.statement) or line in work.made]
        if products:
            self.notes.append(_note(len(work.made), len(products), self.machine))
        graph = graph.replace(constants=work.constants)
        return pack(graph, live(lines, graph.outputs), work.types)


def _note(rounded: int, products: int, machine: Machine) -> str:
    """What of the products runs in bfloat16, and with what error."""
    counted = f"precision bfloat16: {rounded} of {count_of(products, 'product')}"
    if rounded:
        return f"{counted}, {ERROR}"
    if machine.pairs or machine.pair_tiles:
        return f"{counted}; the others have no constant factor, or no such kernel"
    return f"{counted}; this processor adds no bfloat16 products, all are float32"


class _Work:
    """State of the rewrite: types and constants of the new graph, and the products that changed."""

    def __init__(self, graph: Graph, machine: Machine, templates: Sequence[Template]) -> None:
        self.graph, self.machine = graph, machine
        self.templates = tuple(templates)
        self.types, self.constants = dict(graph.types), dict(graph.constants)
        self.made: list[Line] = []
        self._narrow: dict[str, str] = {}

    def round_product(self, line: Line) -> Line:
        """The line, with rounded factors if a kernel takes them."""
        statement = line.statement
        if not is_product(statement) or self.types[line.target].dtype != float32:
            return line
        assert isinstance(statement.body, Apply)
        found = [read_of(factor) for factor in statement.body.arguments]
        if any(self.types[read.tensor].dtype not in (float32, bfloat16) for read in found):
            return line
        if not any(self._is_worthwhile(read, statement) for read in found):
            return line
        factors = tuple(self._factor(read) for read in found)
        new = Line(statement.with_body(Apply("mul", factors)), line.source)
        group = group_of([new.statement], self.types, [new.target])
        known = frozenset(self.constants)
        match = first_match(self.templates, group, self.graph.box, self.machine, known)
        if match is None or not match[0].rounds:
            return line
        self.made.append(new)
        return new

    def _is_worthwhile(self, read: Read, statement: Statement) -> bool:
        """Whether a factor is constant weights of columns, of enough terms and columns.

        Weights of rows are packed faster, but a single column of the call would be a vector that is
        packed for them: 2.6 times float32's time.
        """
        columns = next((a for a in reversed(statement.axes) if a.extent.constant != 1), None)
        if columns is None or read.tensor not in self.constants:
            return False
        terms = product(axis.extent for axis in statement.reduced).constant or 0
        wide = (columns.extent.constant or 0) >= MIN_COLUMNS and terms >= MIN_TERMS
        return wide and columns.name in free_axes(read)

    def _factor(self, read: Read) -> Expr:
        """A factor as bfloat16: constants are rounded here, other values while they are packed."""
        if self.types[read.tensor].dtype == bfloat16:
            return Cast(float32, read)
        if read.tensor not in self.constants:
            return Cast(float32, Cast(bfloat16, read))
        return Cast(float32, Read(self._narrow_constant(read.tensor), read.indices, flat=read.flat))

    def _narrow_constant(self, name: str) -> str:
        """The constant in 16 bits."""
        if name not in self._narrow:
            narrow = self._narrow[name] = unique_name(f"{name}/bfloat16", self.types)
            self.types[narrow] = TensorType(bfloat16, self.types[name].shape)
            array = convert_array(self.constants[name].array, bfloat16.numpy)
            self.constants[narrow] = Constant(array)
        return self._narrow[name]
