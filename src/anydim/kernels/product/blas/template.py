"""The template of plain matrix products that a BLAS library computes (docs/strategies.md).

A kernel calls `gemm` once for each index of the loops around a product and each thread, which takes
a part of the rows or of the columns: the library itself uses one thread. It finds the function's
address in an operand, so that its text is the same in every process. What follows a product is in
other kernels.

The interface is that of the C functions of the Reference BLAS, cblas.h (netlib.org/blas):
`cblas_sgemm(order, transA, transB, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc)`. All integers
are handed over as 64 bits, of which a library of 32 bits reads the lower half, in registers and on
the stack: so both are called alike, with numbers below 2^31.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial

from anydim.base.dtypes import float32, float64, int64, uint8
from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.launch import Argument, Launch, Machine, moved_bytes
from anydim.kernels.naming import named_kernel
from anydim.kernels.product.contraction.form import ContractionForm, Walk, form_of
from anydim.kernels.product.contraction.places import roles_of_form
from anydim.kernels.schedule import print_schedule, register
from anydim.kernels.template import Template
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    either,
    greatest,
    least,
    loop,
    minus,
    minus_one,
    plus,
    quotient,
    quotient_up,
    split_index,
    times,
    variable,
)
from anydim.kernels.write.elements import SizeParameters
from anydim.lang.tree import Group
from anydim.sizes import Box, Size, Truth, as_size, ceil_div, maximum, product, prove

FUNCTIONS = {float32: "cblas_sgemm", float64: "cblas_dgemm"}  # in the order of the operand's words
WORDS = "$library"  # what the operand of addresses is called
_ROWS, _PLAIN, _TRANSPOSED = 101, 111, 112  # CBLAS_ORDER, CBLAS_TRANSPOSE
_LARGEST = (1 << 31) - 1  # of an integer that a library takes
_BLOCK = 64  # rows or columns
_WORTH = 200_000  # operations for which a thread is woken


@dataclass(frozen=True)
class Blas:
    """There is nothing to choose: the library knows its machine."""


register("blas", Blas)


@dataclass(frozen=True)
class _Matrix:
    """A stored row by row, or column by column; `width` elements of `stride` lie side by side."""

    transposed: bool
    stride: Size
    width: Size


def blas_template(addresses: tuple[int, ...]) -> Template:
    """The template for a library whose functions, in the order of `FUNCTIONS`, lie there."""
    lower = partial(lower_blas, addresses)
    return Template("blas", Blas, match_blas, lower, keeps=True)


def match_blas(group: Group, box: Box, machine: Machine, constants: frozenset[str]) -> Blas | None:
    """The schedule for a group, or None where it is no plain product of two matrices."""
    return Blas() if _form(group, box, machine) is not None else None


def lower_blas(
    addresses: tuple[int, ...], group: Group, schedule: Blas, box: Box, machine: Machine,
    constants: frozenset[str],
) -> Launch:  # fmt: skip
    """The launch of a group that `match_blas` takes."""
    form = _form(group, box, machine)
    if form is None:
        raise InternalError("a group that is no plain product reached its lowering")
    roles, buffers = roles_of_form(form)
    operands = tuple(
        ir.Operand(role, form.dtype, tensor == form.outputs[0].tensor) for tensor, role in roles
    )
    sizes = SizeParameters()
    body = _Writer(form, buffers, sizes).body()
    words = ir.Operand("library", int64)
    main = ir.Function(
        "product",
        (
            *(ir.Pointer(o.name, o.dtype, alias=o.written) for o in operands),
            ir.Pointer(words.name, words.dtype),
            *(ir.Scalar(name) for name in sizes.names),
            ir.Scalar("start"), ir.Scalar("stop"), ir.Pointer("scratch", uint8),
        ),
        body,
    )  # fmt: skip
    kernel = named_kernel("blas", (*operands, words), sizes.names, (main,))
    work = form.m.extent * form.n.extent * form.k.extent * product(w.extent for w in form.loops)
    return Launch(
        kernel=kernel,
        arguments=(
            *(Argument(tensor) for tensor, _ in roles),
            Argument(WORDS, words=addresses),
        ),
        sizes=sizes.sizes,
        parallel=product(walk.extent for walk in form.loops) * _blocks(form),
        grain=_grain(form),
        scratch=as_size(0),
        flops=2 * work,
        moved=moved_bytes(group),
        schedule=print_schedule(schedule),
        reason=f"a plain matrix product: {FUNCTIONS[form.dtype]} of the library",
    )


@lru_cache(maxsize=512)
def _form(group: Group, box: Box, machine: Machine) -> ContractionForm | None:
    """The group as a plain product whose matrices lie as a library takes them."""
    form = form_of(group, frozenset(), machine)
    if form is None or form.dtype not in FUNCTIONS or form.start is not None or form.pieces:
        return None
    if form.in_panels and len(form.b_parts[-1]) > 1:  # a single panel is a matrix
        return None
    if [output.is_product for output in form.outputs] != [True]:
        return None
    if group.type_of(form.outputs[0].tensor).dtype != form.dtype:
        return None
    here = box.without_zero()  # elsewhere there is nothing to multiply, or nothing to sum
    fine = all(prove(x.stride, ">=", x.width, here) is Truth.PROVED for x in _matrices(form))
    return form if fine else None


def _matrices(form: ContractionForm) -> tuple[_Matrix, _Matrix, _Matrix]:
    """A, B and C. One of a single row has whatever stride is right."""
    m, n, k = form.m, form.n, form.k
    return (
        _matrix(m, k, m.a, k.a),
        _matrix(k, n, k.b, n.b),
        _Matrix(False, n.extent if m.extent == 1 else m.c, n.extent),
    )


def _matrix(rows: Walk, columns: Walk, row: Size, column: Size) -> _Matrix:
    if column == 1:
        return _Matrix(False, columns.extent if rows.extent == 1 else row, columns.extent)
    return _Matrix(True, rows.extent if columns.extent == 1 else column, rows.extent)


class _Writer:
    """Writes the body: each product of the loops, as far as a thread's part of the range has it.

    Where a library cannot take the numbers (nothing to multiply or to sum, more than 31 bits count)
    the part is computed as the product is defined.
    """

    def __init__(
        self, form: ContractionForm, buffers: Mapping[str, str], sizes: SizeParameters
    ) -> None:
        self.form, self.sizes = form, sizes
        self.a, self.b, self.c = (
            buffers[tensor] for tensor in (form.a, form.b, form.outputs[0].tensor)
        )
        self.m, self.n, self.k = (sizes.value(x.extent) for x in (form.m, form.n, form.k))

    def body(self) -> tuple[ir.Step, ...]:
        """All of it."""
        form, blocks = self.form, self.sizes.value(_blocks(self.form))
        index = list(FUNCTIONS).index(form.dtype)
        group, start, stop = (variable(name) for name in ("group", "start", "stop"))
        first = times(group, blocks)
        loops = [(walk.name, self.sizes.value(walk.extent)) for walk in reversed(form.loops)]
        return (
            ir.Let("gemm", ir.Load(ir.INDEX, "library", constant(index))),
            ir.Let("room", self._room()),
            loop(
                "group", quotient(start, blocks), quotient_up(stop, blocks), 1,
                ir.Let("begin", greatest(minus(start, first), 0)),
                ir.Let("end", least(minus(stop, first), blocks)),
                *split_index("group", *loops),
                *self._cut(),
                *self._starts(),
                ir.If(compare("greater_equal", variable("room"), 0), (self._call(),),
                      (self._plain(),)),
            ),
        )  # fmt: skip

    def _cut(self) -> list[ir.Step]:
        """The rows and columns of the part: blocks of the longer of both."""
        tall = compare("greater_equal", self.m, self.n)
        first, last = (times(variable(name), _BLOCK) for name in ("begin", "end"))
        zero = constant(0)
        return [
            ir.Let("row0", either(tall, first, zero)),
            ir.Let("column0", either(tall, zero, first)),
            ir.Let("rows", either(tall, minus(least(last, self.m), first), self.m)),
            ir.Let("columns", either(tall, self.n, minus(least(last, self.n), first))),
        ]

    def _starts(self) -> list[ir.Step]:
        """Where the matrices of the part begin, in elements of their tensors."""
        form, value = self.form, self.sizes.value
        row, column = variable("row0"), variable("column0")
        loops = {name: [times(variable(w.name), value(getattr(w, name))) for w in form.loops]
                 for name in "abc"}  # fmt: skip
        a = plus(value(form.a_start), *loops["a"], times(row, value(form.m.a)))
        b = plus(value(form.b_start), *loops["b"], times(column, value(form.n.b)))
        c = plus(*loops["c"], times(row, value(form.m.c)), times(column, value(form.n.c)))
        return [ir.Let("a_at", a), ir.Let("b_at", b), ir.Let("c_at", c)]

    def _room(self) -> ir.Value:
        """How far all numbers are from what a library cannot take; below 0: it cannot."""
        value, matrices = self.sizes.value, _matrices(self.form)
        most = greatest(greatest(self.m, self.n), self.k)
        for matrix in matrices:
            most = greatest(most, value(matrix.stride))
        fewest = least(self.k, least(self.m, self.n))
        room = least(minus(constant(_LARGEST), most), minus_one(fewest))
        for matrix in matrices:
            room = least(room, minus(value(matrix.stride), value(matrix.width)))
        return room

    def _call(self) -> ir.Call:
        a, b, c = _matrices(self.form)
        turned = [constant(_TRANSPOSED if x.transposed else _PLAIN) for x in (a, b)]
        lead = [self.sizes.value(matrix.stride) for matrix in (a, b, c)]
        one, zero = (ir.Const(ir.Type(self.form.dtype), number) for number in (1.0, 0.0))
        names = ((self.a, "a_at"), (self.b, "b_at"), (self.c, "c_at"))
        place = [ir.Address(name, variable(at)) for name, at in names]
        sizes = (variable("rows"), variable("columns"), self.k)
        return ir.Call(
            variable("gemm"),
            (
                constant(_ROWS), *turned, *sizes, one, place[0], lead[0], place[1], lead[1],
                zero, place[2], lead[2],
            ),
        )  # fmt: skip

    def _plain(self) -> ir.Step:
        form, kind = self.form, ir.Type(self.form.dtype)
        a = self._at("a_at", ("row", form.m.a), ("step", form.k.a))
        b = self._at("b_at", ("step", form.k.b), ("column", form.n.b))
        c = self._at("c_at", ("row", form.m.c), ("column", form.n.c))
        factors = ir.Load(kind, self.a, a), ir.Load(kind, self.b, b)
        total = ir.Get(kind, "sum")
        more = ir.Op(kind, "add", (total, ir.Op(kind, "mul", factors)))
        return loop(
            "row", 0, variable("rows"), 1,
            loop(
                "column", 0, variable("columns"), 1,
                ir.Declare("sum", ir.Const(kind, 0.0)),
                loop("step", 0, self.k, 1, ir.Assign("sum", more)),
                ir.Store(self.c, c, total),
            ),
        )  # fmt: skip

    def _at(self, start: str, *steps: tuple[str, Size]) -> ir.Value:
        terms = (times(variable(name), self.sizes.value(stride)) for name, stride in steps)
        return plus(variable(start), *terms)


def _blocks(form: ContractionForm) -> Size:
    """The blocks of rows, or of columns where there are more, that threads share."""
    return maximum(ceil_div(maximum(form.m.extent, form.n.extent), _BLOCK), 1)


def _grain(form: ContractionForm) -> int:
    """Blocks that are worth a thread: at least about 2 us of work."""
    short = [w.extent.constant for w in (form.m, form.n, form.k) if w.extent.constant is not None]
    each = 2 * _BLOCK * max(1, min(short, default=1)) * max(1, max(short, default=1))
    return max(1, _WORTH // each)
