"""Plain matrix products by the library of a device, through its driver (`devices/cublas.py`).

    C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n]

Every axis has one stride in A, B and C, so numbers describe the product: the kernel's name holds
its types, its sizes are `WORDS`. The kernel's own steps, element by element, run where the library
does not support the numbers. The epilogue of the product runs in other kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.dtypes import DType, bfloat16, float16, float32, float64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import index_sum, loop, quotient
from anydim.compiler.kernels.gpu.gpu_matmul import ProductForm, product_form
from anydim.compiler.kernels.gpu.group_indices import remainder
from anydim.compiler.kernels.ir import START, STOP, convert, number, operate, variable
from anydim.compiler.kernels.launch import TF32, Argument, Launch, moved_bytes
from anydim.compiler.kernels.matmul.epilogue import PRODUCT
from anydim.compiler.kernels.matmul.product_axes import is_one_axis, merged_extent, merged_stride
from anydim.compiler.kernels.operands import assemble
from anydim.compiler.kernels.schedule import print_schedule
from anydim.compiler.kernels.template import Task, form_template
from anydim.lang.tree import Axis, Cast, Expr, Group, Read
from anydim.lang.tree.affine import Affine, address
from anydim.runtime.devices.cublas import PREFIX, WORDS
from anydim.sizes import Size, as_size

_RESULTS = {
    float32: (float32,), float64: (float64,), float16: (float16, float32),
    bfloat16: (bfloat16, float32),
}  # by factors  # fmt: skip


@dataclass(frozen=True)
class Plain:
    """The schedule of a library call; it has no options: the library is tuned for its device."""


@dataclass(frozen=True)
class _Form:
    """Tensors, the types of factors and result, and the sizes of `WORDS`."""

    tensors: tuple[str, str, str]
    factors: DType
    results: DType
    words: tuple[Size, ...]


def _lower(form: _Form, schedule: Plain, task: Task) -> Launch:
    m, n, k, batch = form.words[:4]
    operands = tuple(
        ir.Operand(name, dtype, written)
        for name, dtype, written in (
            ("a", form.factors, False), ("b", form.factors, False), ("c", form.results, True),
        )
    )  # fmt: skip
    factors = TF32 if task.machine.tf32 and form.factors == float32 else form.factors.name
    return Launch(
        kernel=assemble(f"{PREFIX}_{factors}_{form.results}", operands, WORDS, _body(form)),
        arguments=tuple(Argument(tensor) for tensor in form.tensors),
        sizes=form.words,
        parallel=batch * m * n,
        grain=1,
        scratch=as_size(0),
        flops=2 * batch * m * n * k,
        moved=moved_bytes(task.group),
        schedule=print_schedule(schedule),
        reason=f"a plain matrix product of {factors}, by the library of the device",
    )


def _form(group: Group) -> _Form | None:
    form = product_form(group)
    if form is None or form.a.dtype != form.b.dtype or form.a.dtype not in _RESULTS:
        return None
    if len(form.outputs) != 1 or not _is_product(form.outputs[0].value):
        return None
    target = form.outputs[0].tensor
    results = group.type_of(target).dtype
    if results not in _RESULTS[form.a.dtype]:
        return None
    factors = [_operand(factor.value, group) for factor in (form.a, form.b)]
    if factors[0] is None or factors[1] is None:
        return None
    (a, left), (b, right) = factors[0], factors[1]
    words = _words(form, left, right, form.offset)
    return None if words is None else _Form((a, b, target), form.a.dtype, results, words)


def _is_product(value: Expr) -> bool:
    """Whether a result is the sums, or a conversion of them."""
    plain = value.argument if isinstance(value, Cast) else value
    return isinstance(plain, Read) and plain.tensor == PRODUCT


def _operand(value: Expr, group: Group) -> tuple[str, Affine] | None:
    """Return the tensor and the address of a factor that is a plain read, or None."""
    if not isinstance(value, Read) or value.default is not None:
        return None
    form = address(value, group.type_of(value.tensor).shape)
    return None if form is None else (value.tensor, form)


def _words(form: ProductForm, a: Affine, b: Affine, c: Affine) -> tuple[Size, ...] | None:
    """Return the sizes of `WORDS`; None if axes cannot be merged."""
    batch = [axis for axis in form.batch if axis.extent.constant != 1]
    columns = list(form.b.axes)
    if not is_one_axis(
        columns, b, c
    ):  # columns per image, for example: products that share a factor
        batch, columns = [*batch, *columns[:-1]], columns[-1:]
    m, n = _walk(form.a.axes, a, c), _walk(columns, b, c)
    k, many = _walk(form.depth, a, b), _walk(batch, a, b, c)
    if m is None or n is None or k is None or many is None or n[2] != 1:
        return None
    return (
        m[0], n[0], k[0], many[0],
        a.constant, m[1], k[1], many[1],
        b.constant, k[2], n[1], many[2],
        m[2], many[3],
    )  # fmt: skip


def _walk(axes: Sequence[Axis], *forms: Affine) -> tuple[Size, ...] | None:
    """Return the extent of axes as one, and its stride in each of the forms."""
    if not is_one_axis(axes, *forms):
        return None
    return (merged_extent(axes), *(merged_stride(axes, form) for form in forms))


def _body(form: _Form) -> tuple[ir.Step, ...]:
    """Return the product's scalar loops, for a part of the range of all its elements."""
    wide = float64 if form.factors == float64 else float32
    names = {name: variable(name) for name in (*WORDS, "place", "row", "column", "which", "step")}
    kind, total = ir.Type(form.factors), ir.Get(ir.Type(wide), "sum")

    def at(start: ir.Value | int, *steps: tuple[str, str]) -> ir.Value:
        return index_sum(start, *(names[index] * names[stride] for index, stride in steps))

    a = at(names["a_start"], ("row", "a_m"), ("step", "a_k"), ("which", "a_batch"))
    b = at(names["b_start"], ("column", "b_n"), ("step", "b_k"), ("which", "b_batch"))
    c = at(0, ("row", "c_m"), ("which", "c_batch")) + names["column"]
    factors = [convert(ir.Load(kind, name, offset), wide) for name, offset in (("a", a), ("b", b))]
    more = total + operate("mul", *factors)
    split: list[ir.Step] = [
        ir.Let("rest", quotient(names["place"], names["n"])),
        ir.Let("column", remainder(names["place"], names["n"])),
        ir.Let("row", remainder(variable("rest"), names["m"])),
        ir.Let("which", quotient(variable("rest"), names["m"])),
    ]
    steps = loop("step", 0, names["k"], 1, ir.Assign("sum", more))
    store = ir.Store("c", c, convert(total, form.results))
    body = (*split, ir.Declare("sum", number(wide, 0)), steps, store)
    return (loop("place", START, STOP, 1, *body),)


TEMPLATE = form_template(
    "plain", Plain, lambda task: _form(task.group), lambda *_: Plain(), _lower,
    keeps=True, widens=True,
)  # fmt: skip
