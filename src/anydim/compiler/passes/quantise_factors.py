"""Products with factors of 8 bits, with `precision="int8"`.

    y(m,n) +=! a(m,k) * w(k,n)                                      becomes
    top(m) max=! abs(a(m,k))
    steps(m)   = 127 / top(m)
    q(m,k)     = int8(round(a(m,k) * steps(m)))
    t(m,n) +=! int(q(m,k)) * int(w'(k,n))
    y(m,n)     = float(t(m,n)) * (top(m) * scale(n))

with constant weights w' = round(w(k,n) * 127 / max over k of abs(w)) and scale of their columns.
Sums are exact integers, so a row has its bits in any company. Of a convolution, an image is the
row: its windows overlap. Products of two values of the call stay as they are, and convolutions of
channel groups, of images that may be small, and by Winograd's algorithm of few channels. Weights
that are codes of 4 bits times scales of blocks are left as they are where a kernel adds their
products with bytes exactly, block by block:

    t(m,n) +=! float(q(m,k)) * (float(code(k,n)) * scale(k // block, n))
    y(m,n)     = t(m,n) * (top(m) / 127)

After: products with constant weights are products of bytes, by the rules of sizes below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import takewhile

from anydim.base.dtypes import float32, int4, int8, int32
from anydim.base.records import dataclass
from anydim.base.text import count_of
from anydim.compiler.graph.derivations import (
    MOST_STEP,
    SMALLEST_TOP,
    Evaluated,
    Quantised,
    SharedTops,
)
from anydim.compiler.graph.nodes import Constant, Graph
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.template import Template, first_match
from anydim.compiler.passes.flow import (
    Line,
    group_of,
    live,
    pack,
    unique_name,
    unpack,
)
from anydim.compiler.passes.options import INT8
from anydim.lang.tree import (
    Apply,
    Axis,
    Cast,
    Expr,
    Index,
    Literal,
    Read,
    Statement,
    TensorType,
)
from anydim.lang.tree.affine import affine, reads, substitute
from anydim.lang.tree.typing import dtype_of
from anydim.sizes import Size, Truth, product, prove

MIN_TERMS, MIN_COLUMNS = 64, 32
# 3 x 3 beside Winograd's algorithm in float32: 64 channels 0.64 to 0.96 of its time, 128 0.93 to
# 0.99, 256 0.71 to 0.75, channels last 32 1.18.
MIN_TRANSFORMED = 9 * 256
# Channels last, fewer than 8 are gathered tap by tap: 3 of 5 x 5 to 32 channels 2.37, 4 1.75, 3 of
# 7 x 7 to 64 0.65, 7 of 5 x 5 to 64 0.85.
MIN_LAST, MIN_GATHERED = 8, (128, 64)
MIN_PIXELS = 49  # results of an image: of tiny ones, float32 kernels skip the taps out of bounds
MAX_TERMS = (2**31 - 1) // MOST_STEP**2  # sums fit int32
ERROR = "factors have 8 bits: of a row of values, of a column of weights"


@dataclass(frozen=True)
class QuantiseFactors:
    """Quantise the factors of products with constant weights; `notes` report how many.

    `nodes` are the precisions of some sources of lines, `precision` that of the others.
    """

    precision: str
    machine: Machine
    templates: tuple[Template, ...]
    nodes: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def run(self, graph: Graph) -> Graph:
        if INT8 not in (self.precision, *self.nodes.values()):
            return graph
        work = _Work(graph, self.machine, self.templates)
        lines, found = [], 0
        for line in unpack(graph):
            found += is_sum_of_products(line.statement)
            own = self.nodes.get(line.source, self.precision) == INT8
            lines += work.quantise_product(line) if own else [line]
        if found:
            counted = f"precision int8: {work.made} of {count_of(found, 'product')}"
            rest = (
                f", {ERROR}" if work.made else "; the others have no constant factor, or few terms"
            )
            self.notes.append(counted + rest)
        graph = graph.replace(constants=work.constants)
        return pack(graph, live(lines, graph.outputs), work.types)


class _Work:
    """State of the rewrite: types and constants of the new graph, and rows quantised so far."""

    def __init__(self, graph: Graph, machine: Machine, templates: Sequence[Template]) -> None:
        self.graph, self.machine, self.templates = graph, machine, tuple(templates)
        self.types, self.constants = dict(graph.types), dict(graph.constants)
        self.made = 0
        self._rows: dict[tuple[Read, tuple[Axis, ...], int], tuple[str, str]] = {}
        self._weights: dict[tuple[Expr, tuple[Axis, ...], tuple[int, ...]], tuple[str, str]] = {}

    def quantise_product(self, line: Line) -> list[Line]:
        """The line, or lines that quantise, multiply and scale."""
        statement, body = line.statement, line.statement.body
        if not is_sum_of_products(statement) or self.types[line.target].dtype != float32:
            return [line]
        assert isinstance(body, Apply)
        for values, weights in (body.arguments, body.arguments[::-1]):
            if not isinstance(values, Read) or self.types[values.tensor].dtype != float32:
                continue
            shape = self.types[values.tensor].shape
            if self._is_worthwhile(weights, statement) and _has_rows(values, shape, statement):
                return self._split(line, values, weights)
            if self._is_convolution(values, weights, line):
                return self._split(line, values, weights)
        return [line]

    def _is_convolution(self, values: Read, weights: Expr, line: Line) -> bool:
        """Whether a line is a convolution of images that are not small, by constant weights."""
        statement, used = line.statement, free_axes(weights)
        own = [axis.extent.constant or 0 for axis in statement.axes if axis.name in used]
        pixels = (a for a in statement.axes if a.name in free_axes(values))
        images = len(_images(values, statement))
        few = product(axis.extent for axis in list(pixels)[images:])
        return (
            _is_window(values, statement)
            and not used & free_axes(values) & {axis.name for axis in statement.axes}
            and self._is_constant(weights, statement)
            and max(own, default=0) >= MIN_COLUMNS
            and prove(few, ">=", MIN_PIXELS, self.graph.box) is Truth.PROVED
            and not self._is_transformed(line)
            and not _is_gathered(values, statement, max(own))
        )

    def _is_transformed(self, line: Line) -> bool:
        """Whether float32 takes so few products that bytes gain little (Winograd's algorithm)."""
        match = self._template_of(line)
        terms = product(axis.extent for axis in line.statement.reduced).constant or 0
        return match is not None and match.transforms and terms < MIN_TRANSFORMED

    def _template_of(self, line: Line) -> Template | None:
        group = group_of([line.statement], self.types, [line.target])
        known = frozenset(self.constants)
        match = first_match(self.templates, group, self.graph.box, self.machine, known)
        return match[0] if match else None

    def _is_supported(self, line: Line) -> bool:
        """Whether this machine has kernels of products of bytes."""
        match = self._template_of(line)
        return match is not None and match.name == "int8"

    def _is_worthwhile(self, weights: Expr, statement: Statement) -> bool:
        """Whether a factor is constant weights of columns, of enough terms and columns.

        They may be codes of 4 or 8 bits times scales.
        """
        columns = next((a for a in reversed(statement.axes) if a.extent.constant != 1), None)
        return (
            columns is not None
            and columns.name in free_axes(weights)
            and (columns.extent.constant or 0) >= MIN_COLUMNS
            and self._is_constant(weights, statement)
        )

    def _is_constant(self, weights: Expr, statement: Statement) -> bool:
        """Whether a factor is constant weights, of a known number of terms that pays."""
        known = all(r.tensor in self.constants and r.default is None for r in reads(weights))
        terms = product(axis.extent for axis in statement.reduced).constant or 0
        return (
            bool(reads(weights))
            and known
            and dtype_of(weights, self.types) == float32
            and all(axis.extent.constant is not None for axis in _axes_of(weights, statement))
            and MIN_TERMS <= terms <= MAX_TERMS
        )

    def _split(self, line: Line, values: Read, weights: Expr) -> list[Line]:
        statement = line.statement
        if _is_window(values, statement):
            across: list[Index] = _images(values, statement)
            before, (top, rows) = self._quantise_images(line, values, len(across))
            zero = None if values.default is None else Literal(0, int8)
            q = Read(rows, values.indices, default=zero)
        else:
            own = [axis for axis in statement.axes if axis.name in free_axes(values)]
            before, (top, rows) = self._quantise_rows(line, values, own)
            of_codes = self._keep_codes(line, weights, own, top, rows)
            if of_codes is not None:
                self.made += 1
                return [*before, *of_codes]
            across = [Index(axis.name) for axis in own]
            q = Read(rows, (*across, *(Index(axis.name) for axis in statement.reduced)))
        axes = _axes_of(weights, statement)
        narrow, scale = self._quantise_weights(weights, axes, statement)
        places = tuple(Index(axis.name) for axis in axes)
        factors = Cast(int32, q), Cast(int32, Read(narrow, places))
        total = unique_name(f"{line.target}/sums", self.types)
        self.types[total] = TensorType(int32, self.types[line.target].shape)
        sums = Statement(
            total, statement.axes, Apply("mul", factors), statement.combine, statement.reduced
        )
        if not self._is_supported(Line(sums, line.source)):
            return [*before, line]
        self.made += 1
        reduced = {axis.name for axis in statement.reduced}
        kept = [index for index in places if index.name not in reduced]
        each = Apply("mul", (Read(top, tuple(across)), Read(scale, tuple(kept))))
        made = Read(total, tuple(Index(axis.name) for axis in statement.axes))
        scaled = Statement(line.target, statement.axes, Apply("mul", (Cast(float32, made), each)))
        return [*before, Line(sums, line.source), Line(scaled, line.source)]

    def _keep_codes(
        self, line: Line, weights: Expr, own: Sequence[Axis], top: str, rows: str
    ) -> list[Line] | None:
        """The lines of a product of bytes with codes of 4 bits, if there is a kernel for it.

        Tile registers multiply bytes ten times as fast: machines with them have weights in bytes.
        """
        held = {self.types[read.tensor].dtype for read in reads(weights)}
        if int4 not in held or self.machine.tiles:
            return None
        statement = line.statement
        across = tuple(Index(axis.name) for axis in own)
        q = Read(rows, (*across, *(Index(axis.name) for axis in statement.reduced)))
        total = unique_name(f"{line.target}/sums", self.types)
        self.types[total] = self.types[line.target]
        factors = Apply("mul", (Cast(float32, q), weights))
        sums = Line(replace(statement, target=total, body=factors), line.source)
        group = group_of([sums.statement], self.types, [total])
        known = frozenset(self.constants)
        match = first_match(self.templates, group, self.graph.box, self.machine, known)
        if match is None or not match[0].reads_codes:
            return None
        made = Read(total, tuple(Index(axis.name) for axis in statement.axes))
        unit = Apply("mul", (Read(top, across), Literal(1 / MOST_STEP, float32)))
        scaled = Statement(line.target, statement.axes, Apply("mul", (made, unit)))
        return [sums, Line(scaled, line.source)]

    def _quantise_rows(
        self, line: Line, values: Read, own: Sequence[Axis]
    ) -> tuple[list[Line], tuple[str, str]]:
        """The lines that quantise rows, and the names of their tops and bytes."""
        reduced = line.statement.reduced
        named = [Axis(f"r{number}", axis.extent) for number, axis in enumerate((*own, *reduced))]
        places = dict(zip((a.name for a in (*own, *reduced)), (Index(a.name) for a in named)))
        read = substitute(values, places)
        assert isinstance(read, Read)
        return self._quantise(line, read, named, len(own))

    def _quantise_images(
        self, line: Line, values: Read, count: int
    ) -> tuple[list[Line], tuple[str, str]]:
        """The lines that quantise images, along the first `count` dimensions of their tensor."""
        shape = self.types[values.tensor].shape
        named = [Axis(f"r{number}", size) for number, size in enumerate(shape)]
        read = Read(values.tensor, tuple(Index(axis.name) for axis in named))
        return self._quantise(line, read, named, count)

    def _quantise(
        self, line: Line, read: Read, named: Sequence[Axis], count: int
    ) -> tuple[list[Line], tuple[str, str]]:
        """The lines that quantise a read over axes, of which the first `count` are rows."""
        key = read, tuple(named), count
        if key in self._rows:
            return [], self._rows[key]
        rows, along = tuple(named[:count]), tuple(named[count:])

        def declare(kind: str, dtype: object, axes: Sequence[Axis]) -> str:
            name = unique_name(f"{line.target}/{kind}", self.types)
            shape = tuple(axis.extent for axis in axes)
            self.types[name] = TensorType(int8 if dtype == int8 else float32, shape)
            return name

        top, steps = (declare(kind, float32, rows) for kind in ("top", "steps"))
        bytes_ = declare("bytes", int8, named)
        at = tuple(Index(axis.name) for axis in rows)
        rounded = Apply("round", (Apply("mul", (read, Read(steps, at))),))
        statements = (
            Statement(top, rows, Apply("abs", (read,)), "max", along),
            Statement(steps, rows, _steps(Read(top, at))),
            Statement(bytes_, tuple(named), Cast(int8, Cast(int32, rounded))),
        )
        self._rows[key] = top, bytes_
        return [Line(each, line.source) for each in statements], self._rows[key]

    def _quantise_weights(
        self, weights: Expr, axes: Sequence[Axis], statement: Statement
    ) -> tuple[str, str]:
        """Names of the weights in bytes and of their scales, which include that of rows."""
        reduced = {axis.name for axis in statement.reduced}
        along = tuple(n for n, axis in enumerate(axes) if axis.name in reduced)
        named = tuple(Axis(f"w{number}", axis.extent) for number, axis in enumerate(axes))
        places = {axis.name: Index(own.name) for axis, own in zip(axes, named)}
        key = substitute(weights, places), named, along
        if key not in self._weights:
            held, order = self._values_of(*key[:2])
            stem = reads(weights)[0].tensor
            names = [unique_name(f"{stem}/{kind}", self.types) for kind in ("int8", "scale")]
            kept = tuple(axis.extent for n, axis in enumerate(axes) if n not in along)
            self.types[names[0]] = TensorType(int8, tuple(axis.extent for axis in axes))
            self.types[names[1]] = TensorType(float32, kept)
            shared = SharedTops(held)
            for name, scales in zip(names, (False, True)):
                kind = self.types[name]
                shape = [size.constant or 0 for size in kind.shape]
                step = Quantised(order, along, scales)
                self.constants[name] = Constant.later(
                    step, kind.dtype.numpy, shape, held, run=partial(shared.run, step)
                )
            self._weights[key] = names[0], names[1]
        return self._weights[key]

    def _values_of(
        self, weights: Expr, axes: tuple[Axis, ...]
    ) -> tuple[Constant, tuple[int, ...]]:  # fmt: skip
        """The constant that has the weights, and its dimensions in the order of these axes."""
        order = [axis.name for axis in axes]
        if isinstance(weights, Read) and not weights.flat:
            names = [index.name for index in weights.indices if isinstance(index, Index)]
            extents = {axis.name: axis.extent for axis in axes}
            whole = tuple(extents[name] for name in names) == self.types[weights.tensor].shape
            if whole and sorted(names) == sorted(order) and len(names) == len(weights.indices):
                return self.constants[weights.tensor], tuple(names.index(name) for name in order)
        kind = TensorType(float32, tuple(axis.extent for axis in axes))
        group = group_of([Statement("w", axes, weights)], {**self.types, "w": kind}, ["w"])
        inputs = [self.constants[tensor.name] for tensor in group.inputs]
        shape = [size.constant or 0 for size in kind.shape]
        made = Constant.later(Evaluated(group, float32), float32.numpy, shape, *inputs)
        return made, tuple(range(len(axes)))


def is_sum_of_products(statement: Statement) -> bool:
    """Whether a statement sums products of two factors, of which one is read."""
    body = statement.body
    product_ = statement.combine == "add" and isinstance(body, Apply) and body.function == "mul"
    return product_ and any(isinstance(part, Read) for part in getattr(body, "arguments", ()))


def _axes_of(weights: Expr, statement: Statement) -> tuple[Axis, ...]:
    """The axes of a statement that weights depend on."""
    used = free_axes(weights)
    return tuple(axis for axis in (*statement.axes, *statement.reduced) if axis.name in used)


def _steps(top: Expr) -> Expr:
    """Steps of a row per unit: 0 for rows of zeros, and where a number is not finite."""
    large = Apply("greater", (top, Literal(SMALLEST_TOP, float32)))
    return Apply("select", (large, Apply("div", (Literal(float(MOST_STEP), float32), top)),
                            Literal(0.0, float32)))  # fmt: skip


def _images(read: Read, statement: Statement) -> list[Index]:
    """The first indices of a read that are axes of the result: those of images."""
    axes = {axis.name for axis in statement.axes}
    own = (i if isinstance(i, Index) and i.name in axes else None for i in read.indices)
    return [index for index in takewhile(bool, own) if index is not None]


def _is_gathered(read: Read, statement: Statement, results: int) -> bool:
    """Whether few channels are the last axis of an image, with too few products for each."""
    last = [a for a in statement.reduced if read.indices[-1] == Index(a.name)]
    if not last or (last[0].extent.constant or 0) >= MIN_LAST:
        return False
    terms = product(axis.extent for axis in statement.reduced).constant or 0
    return terms < MIN_GATHERED[0] or results < MIN_GATHERED[1]


def _is_window(read: Read, statement: Statement) -> bool:
    """Whether a read is that of overlapping windows, with zeros around or nothing."""
    sums, rows = ({axis.name for axis in axes} for axes in (statement.reduced, statement.axes))
    if read.flat or any(affine(index) is None for index in read.indices):
        return False
    if read.default is not None and read.default != Literal(0.0, float32):
        return False
    return any(free_axes(i) & rows and free_axes(i) & sums for i in read.indices)


def _has_rows(read: Read, shape: Sequence[Size], statement: Statement) -> bool:
    """Whether rows of a read do not overlap, as windows do: no index steps along both a row and a
    sum, or a flat offset reaches each element of the tensor once."""
    sums, rows = ({axis.name for axis in axes} for axes in (statement.reduced, statement.axes))
    if read.default is not None:
        return False
    if not read.flat:
        return not any(free_axes(i) & rows and free_axes(i) & sums for i in read.indices)
    used = free_axes(read)
    axes = (axis for axis in (*statement.axes, *statement.reduced) if axis.name in used)
    return affine(read.indices[0]) is not None and product(a.extent for a in axes) == product(shape)
