"""Products with factors rounded to bfloat16, with `precision="bfloat16"`, or in parts of it.

    y(m,n) +=! a(m,k) * w(k,n)                                      becomes
    y(m,n) +=! float(bfloat16(a(m,k))) * float(w'(k,n))

with constant weights w' of 16 bits. With "bfloat16x3" and "bfloat16x2" w' are three or two parts of
the weights, and kernels split a likewise (`matmul/int8/float_parts.py`):
    y(m,n) +=! a(m,k) * float(w'(j,k,n))

Both products of attention are rounded by "bfloat16" and "int8"; other products of two values of the
call stay float32. So do 3 x 3 convolutions in a quarter of their products (Winograd's algorithm).

After: every product and convolution with constant weights uses the bfloat16 kernel of this machine
if there is one, and it is not slower than the float32 kernel by the rules of sizes below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from anydim.base.dtypes import bfloat16, float32
from anydim.base.records import dataclass
from anydim.base.text import count_of
from anydim.compiler.graph.derivations import Converted
from anydim.compiler.graph.nodes import Constant, Graph
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.template import Template, first_match
from anydim.compiler.passes.clusters import Clusters
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
from anydim.compiler.passes.fuse import attention_candidates
from anydim.compiler.passes.options import BFLOAT16, BFLOAT16_PARTS, INT8
from anydim.lang.tree import Apply, Axis, Cast, Expr, Index, Read, Statement, TensorType
from anydim.lang.tree.affine import address, affine, body_at
from anydim.sizes import as_size, product

# Fewer cost more than in float32: 1000 rows by 3 x 1000 1.41, by 16 x 4096 1.61, by 64 x 16 1.14.
# Rows that are columns in memory are gathered into words: 32 columns 1.09 to 1.46, 48 1.05 to 1.26,
# 64 0.76 to 1.08, 80 0.75 to 0.98.
MIN_TERMS, MIN_COLUMNS, MIN_GATHERED = 32, 32, 80
# Convolutions, channels first: 27 terms 1.05 to 1.17, 72 0.64; 1 x 1 from 256 channels to 48 0.84
# to 1.32, to 64 0.67 to 0.82.
MIN_PIXEL_ROWS = 64
_PART = "part"  # the axis of parts of weights
ERRORS = {
    1: "each factor is off by up to 2^-8 of itself; sums are float32",
    2: "each factor is off by up to 2^-16 of itself; sums are float32",
    3: "each factor is the sum of three bfloat16; sums are float32",
}


@dataclass(frozen=True)
class RoundFactors:
    """Round the factors of products that have a bfloat16 kernel; `notes` report how many.

    `nodes` are the precisions of some sources of lines, `precision` that of the others.
    """

    precision: str
    machine: Machine
    templates: tuple[Template, ...]
    nodes: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def run(self, graph: Graph) -> Graph:
        given = {self.precision, *self.nodes.values()}
        named = {*BFLOAT16_PARTS} & given
        if not named | {INT8} & given:
            return graph
        work = Rounding(graph, self.machine, self.templates)
        lines = [
            work.round_product(line, self.nodes.get(line.source, self.precision))
            for line in unpack(graph)
        ]
        if {BFLOAT16, INT8} & given:
            lines = work.round_attention(lines, self._is_rounded)
        products = [line for line in lines if is_product(line.statement) or line in work.made]
        if products and named:
            name = self.precision if self.precision in named else min(named)
            self.notes.append(_note(name, len(work.made), len(products), self.machine))
        elif work.made:
            count = count_of(len(work.made), "product")
            self.notes.append(f"precision int8: {count} of attention with factors of bfloat16")
        graph = graph.replace(constants=work.constants)
        return pack(graph, live(lines, graph.outputs), work.types)

    def _is_rounded(self, line: Line) -> bool:
        return self.nodes.get(line.source, self.precision) in (BFLOAT16, INT8)


def _note(name: str, rounded: int, products: int, machine: Machine) -> str:
    """What of the products runs in bfloat16, and with what error."""
    counted = f"precision {name}: {rounded} of {count_of(products, 'product')}"
    if rounded:
        return f"{counted}, {ERRORS[BFLOAT16_PARTS[name]]}"
    if machine.pair_tiles or (machine.pairs and BFLOAT16_PARTS[name] == 1):
        return f"{counted}; the others have no constant factor, or no such kernel"
    return f"{counted}; this processor adds no bfloat16 products, all are float32"


class Rounding:
    """State of the rewrite: types and constants of the new graph, and the products that changed."""

    def __init__(self, graph: Graph, machine: Machine, templates: Sequence[Template]) -> None:
        self.graph, self.machine = graph, machine
        self.templates = tuple(templates)
        self.types, self.constants = dict(graph.types), dict(graph.constants)
        self.made: list[Line] = []
        self._narrow: dict[tuple[str, int], str] = {}

    def round_product(self, line: Line, precision: str) -> Line:
        """The line, with rounded factors if a kernel takes them."""
        statement, parts = line.statement, BFLOAT16_PARTS.get(precision, 0)
        if not parts or (parts > 1 and not self.machine.pair_tiles):
            return line
        if not is_product(statement) or self.types[line.target].dtype != float32:
            return line
        assert isinstance(statement.body, Apply)
        found = [read_of(factor) for factor in statement.body.arguments]
        accepted = (float32, bfloat16) if parts == 1 else (float32,)
        if any(self.types[read.tensor].dtype not in accepted for read in found):
            return line
        if not any(self._is_worthwhile(read, statement) for read in found):
            return line
        if _has_groups(found, statement) or self._is_gathered(found, statement):
            return line
        new = self._with_parts(line, found, parts) if parts > 1 else self._round(line)
        if new is None:
            return line
        match = self._template_of(new)
        if match is None or not match.rounds:
            return line
        plain = self._template_of(line) if len(statement.reduced) > 1 else None
        if plain is not None and plain.transforms:
            return line
        self.made.append(new)
        return new

    def round_attention(self, lines: Sequence[Line], wanted: Callable[[Line], bool]) -> list[Line]:
        """The lines, with rounded factors of both products of attention if a kernel takes them.

        Caches of bfloat16 are read as they are, without a copy in float32.
        """
        widened = {line.target: line.statement for line in lines if self._is_widening(line)}
        rounded, made = list(lines), list(lines)
        for n, line in enumerate(lines):
            if self._has_values_of_calls(line) and wanted(line):
                rounded[n] = self._round_values(line, widened)
        clusters = self._clusters(rounded)
        for members in attention_candidates(rounded, clusters):
            match = clusters.template(members)
            if match is not None and match.rounds:
                for n in members:
                    made[n] = rounded[n]
        self.made += [line for line in made if line not in lines]
        return made

    def _is_widening(self, line: Line) -> bool:
        """Whether a line converts elements of bfloat16."""
        body = line.statement.body
        if line.statement.combine or not isinstance(body, Cast) or body.dtype != float32:
            return False
        read = body.argument
        if not isinstance(read, Read) or read.default is not None or read.flat:
            return False
        return self.types[read.tensor].dtype == bfloat16

    def _has_values_of_calls(self, line: Line) -> bool:
        """Whether a line is a product of two values of the call, of float32 or bfloat16."""
        if not is_product(line.statement) or self.types[line.target].dtype != float32:
            return False
        assert isinstance(line.statement.body, Apply)
        names = {read_of(each).tensor for each in line.statement.body.arguments}
        known = all(self.types[name].dtype in (float32, bfloat16) for name in names)
        return known and not names & set(self.constants)

    def _round_values(self, line: Line, widened: Mapping[str, Statement]) -> Line:
        """The product with rounded factors; those that are only widened are read before."""
        assert isinstance(line.statement.body, Apply)
        factors = []
        for read in map(read_of, line.statement.body.arguments):
            value: Expr = read
            if read.tensor in widened and not read.flat and read.default is None:
                value = body_at(widened[read.tensor], read.indices)
            elif self.types[read.tensor].dtype == bfloat16:
                value = Cast(float32, read)
            factors.append(Cast(float32, Cast(bfloat16, value)))
        return Line(line.statement.with_body(Apply("mul", tuple(factors))), line.source)

    def _clusters(self, lines: Sequence[Line]) -> Clusters:
        graph = self.graph.replace(types=self.types, constants=self.constants)
        return Clusters(lines, graph, self.machine, self.templates)

    def _round(self, line: Line) -> Line:
        """The product with rounded factors."""
        assert isinstance(line.statement.body, Apply)
        factors = tuple(self._factor(read_of(each)) for each in line.statement.body.arguments)
        return Line(line.statement.with_body(Apply("mul", factors)), line.source)

    def _template_of(self, line: Line) -> Template | None:
        """The template that takes the line alone."""
        group = group_of([line.statement], self.types, [line.target])
        known = frozenset(self.constants)
        match = first_match(self.templates, group, self.graph.box, self.machine, known)
        return match[0] if match else None

    def _is_worthwhile(self, read: Read, statement: Statement) -> bool:
        """Whether a factor is constant weights, of enough terms and channels.

        Weights are columns, or the rows of convolutions of channels-first images. Other constant
        rows stay float32: a single column of the call would be a vector that is packed for them,
        2.6 times float32's time.
        """
        axes = [axis for axis in statement.axes if axis.extent.constant != 1]
        own = [axis for axis in axes if axis.name in free_axes(read)]
        if not own or read.tensor not in self.constants:
            return False
        after = axes[axes.index(own[-1]) + 1 :]
        sums = [axis.extent for axis in statement.reduced if axis.extent.constant != 1]
        channels = own[-1].extent.constant or 0
        if (product(sums).constant or 0) < MIN_TERMS or channels < MIN_COLUMNS:
            return False
        if not after:
            return True
        return len(sums) > 1 or (len(after) > 1 and channels >= MIN_PIXEL_ROWS)

    def _is_gathered(self, found: Sequence[Read], statement: Statement) -> bool:
        """Whether a matrix of the call is read along its columns, by too few columns of weights."""
        if len(statement.axes) != 2 or len(statement.reduced) != 1:
            return False
        (term,), columns = statement.reduced, statement.axes[-1].extent.constant or 0
        forms = (
            address(read, self.types[read.tensor].shape)
            for read in found if read.tensor not in self.constants and not read.default
        )  # fmt: skip
        strided = any(form and form.stride(term.name).constant != 1 for form in forms)
        return strided and columns < MIN_GATHERED

    def _with_parts(self, line: Line, found: Sequence[Read], parts: int) -> Line | None:
        """The line with the weights in parts, along a new axis of the sum; None where some part
        would not be finite."""
        statement, part = line.statement, Axis(_PART, as_size(parts))
        factors: list[Expr] = []
        for read in found:
            constant = self.constants.get(read.tensor)
            if constant is None:
                factors.append(read)
            elif read.default is not None or read.flat or not constant.are("fits parts"):
                return None
            else:
                name = self._narrow_constant(read.tensor, parts)
                factors.append(Cast(float32, Read(name, (Index(_PART), *read.indices))))
        sums = (part, *statement.reduced)
        body = Apply("mul", tuple(factors))
        return Line(replace(statement, body=body, reduced=sums), line.source)

    def _factor(self, read: Read) -> Expr:
        """A factor as bfloat16: constants are rounded here, other values while they are packed."""
        if self.types[read.tensor].dtype == bfloat16:
            return Cast(float32, read)
        if read.tensor not in self.constants:
            return Cast(float32, Cast(bfloat16, read))
        return Cast(float32, Read(self._narrow_constant(read.tensor), read.indices, flat=read.flat))

    def _narrow_constant(self, name: str, parts: int = 1) -> str:
        """The constant in 16 bits, or in parts of them."""
        if (name, parts) not in self._narrow:
            narrow = self._narrow[name, parts] = unique_name(f"{name}/bfloat16", self.types)
            shape = self.types[name].shape
            whole = shape if parts == 1 else (as_size(parts), *shape)
            self.types[narrow] = TensorType(bfloat16, whole)
            step = Converted(bfloat16, parts)
            self.constants[narrow] = Constant.derive(step, self.constants[name])
        return self._narrow[name, parts]


def _has_groups(factors: Sequence[Read], statement: Statement) -> bool:
    """Whether channels of a result read a group of the channels of an image: `m // share`.

    Such convolutions stay float32: each group is a product of few columns.
    """
    shared = {axis.name for axis in statement.axes}.intersection(*map(free_axes, factors))
    indices = (index for read in factors for index in read.indices)
    return any(free_axes(index) & shared and affine(index) is None for index in indices)
