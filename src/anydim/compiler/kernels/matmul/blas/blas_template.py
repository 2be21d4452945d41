"""The template of plain matrix products computed by a BLAS library (docs/strategies.md).

A kernel calls `gemm` once per index of the loops around a product and per thread; a thread takes a
part of the rows or of the columns, and the library itself uses one thread. The function's address
is an operand, so that the kernel's code is the same in every process. The epilogue of the product
runs in other kernels.

The interface is that of the C functions of the Reference BLAS, cblas.h (netlib.org/blas):
`cblas_sgemm(order, transA, transB, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc)`. All integers
are passed as 64 bits; a library of 32 bits reads the lower half, in registers and on the stack.
Both are therefore called alike, with numbers below 2^31.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from anydim.base.dtypes import float32, float64, int64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import quotient, quotient_up, split_index
from anydim.compiler.kernels.codegen.scalar_lowering import SizeParameters
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import START, STOP, constant, greatest, least, select
from anydim.compiler.kernels.launch import Argument, Launch
from anydim.compiler.kernels.matmul.contraction_form import (
    ContractionForm,
    MatrixWalk,
    contraction_form_of,
)
from anydim.compiler.kernels.matmul.matmul_kernel import ProductKernel, roles_of_form
from anydim.compiler.kernels.schedule import register
from anydim.compiler.kernels.template import Task, Template, form_template
from anydim.lang.tree import Group
from anydim.sizes import Size, Truth, as_size, ceil_div, maximum, prove

FUNCTIONS = {float32: "cblas_sgemm", float64: "cblas_dgemm"}  # in the order of the operand's slots
WORDS = "$library"  # name of the operand that holds the addresses
_ROWS, _PLAIN, _TRANSPOSED = 101, 111, 112  # CBLAS_ORDER, CBLAS_TRANSPOSE
_LARGEST = (1 << 31) - 1  # maximum of a library's integers
_BLOCK = 64  # rows or columns
_WORTH = 200_000  # operations that pay for another thread


@dataclass(frozen=True)
class Blas:
    """The schedule of a BLAS call; it has no options: the library is tuned for its machine."""


register("blas", Blas)


@dataclass(frozen=True)
class _Matrix:
    """A matrix in row-major or transposed order; `width` contiguous elements every `stride`."""

    transposed: bool
    stride: Size
    width: Size


def blas_template(addresses: tuple[int, ...]) -> Template:
    """Return the template of a library; `addresses` are in the order of `FUNCTIONS`."""
    lower = partial(_lower, addresses)
    return form_template("blas", Blas, _form, lambda *_: Blas(), lower, keeps=True)


def _lower(addresses: tuple[int, ...], form: ContractionForm, schedule: Blas, task: Task) -> Launch:
    reason = f"a plain matrix product: {FUNCTIONS[form.dtype]} of the library"
    launch = _Writer(task.group, form).launch(schedule, {}, form.work, reason)
    return replace(launch, arguments=(*launch.arguments, Argument(WORDS, words=addresses)))


def _form(task: Task) -> ContractionForm | None:
    """Return the group as a plain product in layouts that the library accepts, or None."""
    form = contraction_form_of(task.group, frozenset(), task.machine)
    if form is None or form.dtype not in FUNCTIONS or form.start is not None or form.pieces:
        return None
    if form.k.a != 1 and form.m.a != 1:
        return None
    if form.in_panels and len(form.b_parts[-1]) > 1:  # a single panel is a matrix
        return None
    if [output.is_product for output in form.outputs] != [True]:
        return None
    if task.group.type_of(form.outputs[0].tensor).dtype != form.dtype:
        return None
    here = task.box.without_zero()  # size 0 has nothing to multiply or to sum
    fits = all(prove(x.stride, ">=", x.width, here) is Truth.PROVED for x in _matrices(form))
    return form if fits else None


def _matrices(form: ContractionForm) -> tuple[_Matrix, _Matrix, _Matrix]:
    """Return A, B and C; a matrix of one row gets the stride that the library expects."""
    m, n, k = form.m, form.n, form.k
    return (
        _matrix(m, k, m.a, k.a),
        _matrix(k, n, k.b, n.b),
        _Matrix(False, n.extent if m.extent == 1 else m.c, n.extent),
    )


def _matrix(rows: MatrixWalk, columns: MatrixWalk, row: Size, column: Size) -> _Matrix:
    if column == 1:
        return _Matrix(False, columns.extent if rows.extent == 1 else row, columns.extent)
    return _Matrix(True, rows.extent if columns.extent == 1 else column, rows.extent)


@dataclass(frozen=True)
class _ProductPart:
    """Rows and columns of a part of a product, and its offsets in the tensors."""

    rows: ir.Value
    columns: ir.Value
    a: ir.Value
    b: ir.Value
    c: ir.Value


class _Writer(ProductKernel):
    """Writes main: each product of the loops, restricted to a thread's part of the range.

    Where the library cannot take the sizes (0, or above 31 bits), plain loops compute the part.
    """

    name = "blas"
    scratch = as_size(0)

    def __init__(self, group: Group, form: ContractionForm) -> None:
        super().__init__(group, form.outputs, form.dtype, 1, SizeParameters())
        self.form, self.code, sizes = form, Writer(), self.sizes
        self.roles, self.buffers = roles_of_form(form)
        self.a, self.b, self.c = (
            self.buffers[tensor] for tensor in (form.a, form.b, form.outputs[0].tensor)
        )
        # threads share blocks of rows, or of columns where there are more columns
        self.blocks = maximum(ceil_div(maximum(form.m.extent, form.n.extent), _BLOCK), 1)
        self.grain = _grain(form)
        self.m, self.n, self.k = (sizes.value(x.extent) for x in (form.m, form.n, form.k))

    @property
    def operands(self) -> tuple[ir.Operand, ...]:
        return (*super().operands, ir.Operand("library", int64))

    @property
    def parallel(self) -> Size:
        return self.form.around * self.blocks

    def functions(self) -> tuple[ir.Function, ...]:
        """Return main, the only function."""
        form, code, blocks = self.form, self.code, self.sizes.value(self.blocks)
        start, stop = START, STOP
        index = list(FUNCTIONS).index(form.dtype)
        gemm = code.let(ir.Load(ir.INDEX, "library", constant(index)))
        margin = code.let(self._margin())
        with code.range(quotient(start, blocks), quotient_up(stop, blocks)) as group:
            first = group * blocks
            begin = code.let(greatest(start - first, 0))
            end = code.let(least(stop - first, blocks))
            loops = ((walk.name, self.sizes.value(walk.extent)) for walk in reversed(form.loops))
            assert isinstance(group, ir.Var)
            code.take(split_index(group.name, *loops))
            part = self._part(begin * _BLOCK, end * _BLOCK)
            with code.when(margin >= 0):
                self._call(gemm, part)
            with code.otherwise():
                self._plain(part)
        return (self.main(code.written),)

    def _part(self, first: ir.Value, last: ir.Value) -> _ProductPart:
        """Return the rows and columns of a part: blocks along the longer of m and n."""
        form, let, value = self.form, self.code.let, self.sizes.value
        tall, zero = self.m >= self.n, constant(0)
        row, column = let(select(tall, first, zero)), let(select(tall, zero, first))
        rows = let(select(tall, least(last, self.m) - first, self.m))
        columns = let(select(tall, self.n, least(last, self.n) - first))
        moved = {"a": row * value(form.m.a), "b": column * value(form.n.b),
                 "c": row * value(form.m.c) + column * value(form.n.c)}  # fmt: skip
        starts: dict[str, Size | int] = {"a": form.a_start, "b": form.b_start, "c": 0}
        at = (
            self.at(start, ((w.name, getattr(w, name)) for w in form.loops))
            for name, start in starts.items()
        )
        begin = [let(each + moved[name]) for name, each in zip("abc", at)]
        return _ProductPart(rows, columns, *begin)

    def _margin(self) -> ir.Value:
        """Return the margin of all sizes to the library's limits; negative: use plain loops."""
        value, matrices = self.sizes.value, _matrices(self.form)
        largest = greatest(greatest(self.m, self.n), self.k)
        for matrix in matrices:
            largest = greatest(largest, value(matrix.stride))
        smallest = least(self.k, least(self.m, self.n))
        margin = least(_LARGEST - largest, smallest - 1)
        for matrix in matrices:
            margin = least(margin, value(matrix.stride) - value(matrix.width))
        return margin

    def _call(self, gemm: ir.Value, part: _ProductPart) -> None:
        a, b, c = _matrices(self.form)
        transposes = [constant(_TRANSPOSED if x.transposed else _PLAIN) for x in (a, b)]
        lead = [self.sizes.value(matrix.stride) for matrix in (a, b, c)]
        one, zero = (ir.Const(ir.Type(self.form.dtype), number) for number in (1.0, 0.0))
        names = zip((self.a, self.b, self.c), (part.a, part.b, part.c))
        addresses = [ir.Address(name, at) for name, at in names]
        arguments = (
            constant(_ROWS), *transposes, part.rows, part.columns, self.k, one,
            addresses[0], lead[0], addresses[1], lead[1], zero, addresses[2], lead[2],
        )  # fmt: skip
        self.code.emit(ir.Call(gemm, arguments))

    def _plain(self, part: _ProductPart) -> None:
        form, code, kind, value = self.form, self.code, ir.Type(self.form.dtype), self.sizes.value
        total = ir.Get(kind, "sum")
        with code.range(0, part.rows) as row, code.range(0, part.columns) as column:
            code.emit(ir.Declare(total.name, ir.Const(kind, 0.0)))
            with code.range(0, self.k) as step:
                a = part.a + row * value(form.m.a) + step * value(form.k.a)
                b = part.b + step * value(form.k.b) + column * value(form.n.b)
                more = ir.Load(kind, self.a, a) * ir.Load(kind, self.b, b)
                code.emit(ir.Assign(total.name, total + more))
            c = part.c + row * value(form.m.c) + column * value(form.n.c)
            code.emit(ir.Store(self.c, c, total))


def _grain(form: ContractionForm) -> int:
    """Return the blocks that pay for another thread: at least about 2 us of work."""
    short = [w.extent.constant for w in (form.m, form.n, form.k) if w.extent.constant is not None]
    each = 2 * _BLOCK * max(1, min(short, default=1)) * max(1, max(short, default=1))
    return max(1, _WORTH // each)
