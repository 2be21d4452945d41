"""The template of plain matrix products that a BLAS library computes (docs/strategies.md).

A kernel calls `gemm` once for each index of the loops around a product, on one thread of ours: the
library has threads of its own. It finds the function's address in an operand, so that its text is
the same in every process. What follows a product is in other kernels.

The interface is that of the C functions of the Reference BLAS, cblas.h (netlib.org/blas):
`cblas_sgemm(order, transA, transB, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc)`. All integers
are handed over as 64 bits, of which a library of 32 bits reads the lower half, in registers and on
the stack: so both are called alike, with numbers below 2^31.
"""

from __future__ import annotations

from functools import lru_cache, partial

from anydim.base.dtypes import float32, float64, int64, uint8
from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.launch import Argument, Launch, Machine, moved_bytes
from anydim.kernels.naming import named_kernel
from anydim.kernels.product.contraction.form import ContractionForm, Walk, form_of
from anydim.kernels.product.contraction.places import Operands, operands_of
from anydim.kernels.schedule import print_schedule, register
from anydim.kernels.template import Template
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    greatest,
    least,
    loop,
    minus,
    minus_one,
    plus,
    times,
    variable,
)
from anydim.kernels.write.elements import SizeParameters
from anydim.lang.tree import Group
from anydim.sizes import Box, Size, Truth, as_size, product, prove

FUNCTIONS = {float32: "cblas_sgemm", float64: "cblas_dgemm"}  # in the order of the operand's words
WORDS = "$library"  # what the operand of addresses is called
_ROWS, _PLAIN, _TRANSPOSED = 101, 111, 112  # CBLAS_ORDER, CBLAS_TRANSPOSE
_LARGEST = (1 << 31) - 1  # of an integer that a library takes


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
    operands, sizes = operands_of(group, form, packed=False), SizeParameters()
    body = _body(form, operands, sizes)
    words = ir.Operand("library", int64)
    main = ir.Function(
        "product",
        (
            *(ir.Pointer(o.name, o.dtype, alias=o.written) for o in operands.operands),
            ir.Pointer(words.name, words.dtype),
            *(ir.Scalar(name) for name in sizes.names),
            ir.Scalar("start"), ir.Scalar("stop"), ir.Pointer("scratch", uint8),
        ),
        body,
    )  # fmt: skip
    kernel = named_kernel("blas", (*operands.operands, words), sizes.names, (main,))
    work = form.m.extent * form.n.extent * form.k.extent * product(w.extent for w in form.loops)
    return Launch(
        kernel=kernel,
        arguments=(
            *(Argument(tensor) for tensor, _ in operands.arguments),
            Argument(WORDS, words=addresses),
        ),
        sizes=sizes.sizes,
        parallel=as_size(1),
        grain=1,
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
    if form is None or form.dtype not in FUNCTIONS or form.start is not None:
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


def _body(form: ContractionForm, operands: Operands, sizes: SizeParameters) -> tuple[ir.Step, ...]:
    """Every product of the loops: by the library, or plainly where it cannot take the numbers."""
    value = sizes.value
    m, n, k = (value(walk.extent) for walk in (form.m, form.n, form.k))
    matrices = _matrices(form)
    strides = [value(matrix.stride) for matrix in matrices]
    widths = [value(matrix.width) for matrix in matrices]
    most = m
    for number in (n, k, *strides):
        most = greatest(most, number)
    room = least(minus(constant(_LARGEST), most), minus_one(least(k, least(m, n))))
    for stride, width in zip(strides, widths):
        room = least(room, minus(stride, width))
    c = operands.buffers[form.outputs[0].tensor]
    one, zero = (ir.Const(ir.Type(form.dtype), number) for number in (1.0, 0.0))
    turned = [constant(_TRANSPOSED if x.transposed else _PLAIN) for x in matrices[:2]]
    places = [
        ir.Address(name, variable(at)) for name, at in ((operands.a, "a_at"), (operands.b, "b_at"))
    ]
    call = ir.Call(
        variable("gemm"),
        (
            constant(_ROWS), *turned, m, n, k, one, places[0], strides[0], places[1], strides[1],
            zero, ir.Address(c, variable("c_at")), strides[2],
        ),
    )  # fmt: skip
    fits = compare("greater_equal", variable("room"), 0)
    steps: tuple[ir.Step, ...] = (
        ir.Let("a_at", _start(form, form.a_start, {w.name: w.a for w in form.loops}, sizes)),
        ir.Let("b_at", _start(form, form.b_start, {w.name: w.b for w in form.loops}, sizes)),
        ir.Let("c_at", _start(form, as_size(0), {w.name: w.c for w in form.loops}, sizes)),
        ir.If(fits, (call,), (_plain(form, operands, c, sizes),)),
    )
    for walk in reversed(form.loops):
        steps = (loop(walk.name, 0, value(walk.extent), 1, *steps),)
    index = list(FUNCTIONS).index(form.dtype)
    return (
        ir.Let("gemm", ir.Load(ir.INDEX, "library", constant(index))),
        ir.Let("room", room),
        loop("part", variable("start"), variable("stop"), 1, *steps),
    )


def _start(
    form: ContractionForm, first: Size, strides: dict[str, Size], sizes: SizeParameters
) -> ir.Value:
    """Where a matrix begins, in elements of its tensor."""
    terms = (times(variable(name), sizes.value(stride)) for name, stride in strides.items())
    return plus(sizes.value(first), *terms)


def _plain(form: ContractionForm, operands: Operands, c: str, sizes: SizeParameters) -> ir.Step:
    """The product as it is defined: of no elements, or of more than a library can count."""
    value, kind = sizes.value, ir.Type(form.dtype)

    def element(buffer: str, at: str, row: tuple[str, Size], column: tuple[str, Size]) -> ir.Load:
        return ir.Load(kind, buffer, _at(at, row, column, sizes))

    a = element(operands.a, "a_at", ("row", form.m.a), ("step", form.k.a))
    b = element(operands.b, "b_at", ("step", form.k.b), ("column", form.n.b))
    more = ir.Op(kind, "add", (ir.Get(kind, "sum"), ir.Op(kind, "mul", (a, b))))
    target = _at("c_at", ("row", form.m.c), ("column", form.n.c), sizes)
    return loop(
        "row", 0, value(form.m.extent), 1,
        loop(
            "column", 0, value(form.n.extent), 1,
            ir.Declare("sum", ir.Const(kind, 0.0)),
            loop("step", 0, value(form.k.extent), 1, ir.Assign("sum", more)),
            ir.Store(c, target, ir.Get(kind, "sum")),
        ),
    )  # fmt: skip


def _at(
    start: str, row: tuple[str, Size], column: tuple[str, Size], sizes: SizeParameters
) -> ir.Value:
    parts = (times(variable(name), sizes.value(stride)) for name, stride in (row, column))
    return plus(variable(start), *parts)
