"""Matrix products by the library of a device, as a version of the device's own kernel.

    C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n],  Y = activation(C + R + bias[n])

Every axis has one stride in A, B, R and Y, so numbers describe the product: the kernel's name holds
its types and activation, and its last sizes are `WORDS` (`runtime/devices/cublaslt.py`). The kernel
itself is one of tiles, which runs where the library does not support the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from anydim.base.dtypes import DType, bfloat16, float16, float32, float64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.gpu import tensor_core_matmul, tiled_matmul
from anydim.compiler.kernels.gpu.gpu_matmul import ProductForm, product_form
from anydim.compiler.kernels.launch import TF32, Launch
from anydim.compiler.kernels.matmul.epilogue import PRODUCT
from anydim.compiler.kernels.matmul.product_axes import is_one_axis, merged_extent, merged_stride
from anydim.compiler.kernels.naming import named_kernel
from anydim.compiler.kernels.schedule import print_schedule
from anydim.compiler.kernels.template import Task, first_match, form_template
from anydim.lang.tree import Apply, Axis, Cast, Expr, Group, Literal, Read
from anydim.lang.tree.affine import Affine, address
from anydim.runtime.devices.cublaslt import LARGEST, PREFIX, WORDS
from anydim.sizes import ALWAYS, Condition, Size, as_size, at_least, at_most, exactly, settle

_OWN = (tensor_core_matmul.TEMPLATE, tiled_matmul.TEMPLATE)
_WORKSPACE = 1 << 16  # bytes per worker of the device, which may have 512 of them
_NARROW = (float16, bfloat16)
_RESULTS = {
    float32: (float32,), float64: (float64,), float16: (float16, float32),
    bfloat16: (bfloat16, float32),
}  # by factors  # fmt: skip


@dataclass(frozen=True)
class ByLibrary:
    """The schedule of a library call; it has no options: the library is tuned for its device."""


@dataclass(frozen=True)
class _Epilogue:
    """An activation, and the reads of a bias and of a residual that are added before it."""

    activation: str
    bias: Read | None
    residual: Read | None


@dataclass(frozen=True)
class _Form:
    """Tensors by their names in `WORDS`, the types of factors and result, the activation, and the
    sizes of `WORDS` that describe matrices."""

    tensors: tuple[tuple[str, str], ...]
    factors: DType
    results: DType
    activation: str
    numbers: tuple[tuple[str, Size], ...]


def _lower(form: _Form, schedule: ByLibrary, task: Task) -> Launch:
    given = task.group, task.box, task.machine, task.constants
    found = first_match(_OWN, *given)
    assert found is not None  # the form is one of a product
    template, chosen = found
    launch = template.lower(task.group, chosen, *given[1:])
    places = {argument.tensor: number for number, argument in enumerate(launch.arguments)}
    numbers = dict(form.numbers)
    numbers |= {name: as_size(-1) for name in ("a", "b", "c", "r", "bias")}
    numbers |= {name: as_size(places[tensor]) for name, tensor in form.tensors}
    usable = settle(_usable(numbers), task.box)
    numbers["usable"] = usable.flag
    factors = TF32 if task.machine.tf32 and form.factors == float32 else form.factors.name
    prefix = f"{PREFIX}_{factors}_{form.results}_{form.activation}"
    own = launch.versions or ((print_schedule(chosen), ALWAYS),)
    return replace(
        launch,
        kernel=_with_words(prefix, launch.kernel),
        sizes=(*launch.sizes, *(numbers.get(name, as_size(0)) for name in WORDS)),
        scratch=as_size(_WORKSPACE),
        schedule=print_schedule(schedule),
        reason=f"a matrix product of {factors}, by the library of the device",
        versions=(("library", usable), *own),
    )


def _with_words(prefix: str, kernel: ir.Kernel) -> ir.Kernel:
    """Return a kernel that takes `WORDS`, which it ignores, after its own sizes."""
    names = [f"library_{name}" for name in WORDS]
    main, count = kernel.main, len(kernel.operands) + len(kernel.sizes)
    parameters = (
        *main.parameters[:count], *(ir.Scalar(name) for name in names), *main.parameters[count:]
    )  # fmt: skip
    functions = (*kernel.functions[:-1], replace(main, parameters=parameters))
    return named_kernel(
        prefix, kernel.operands, (*kernel.sizes, *names), functions, kernel.libraries,
        kernel.group, kernel.locals,
    )  # fmt: skip


def _usable(of: dict[str, Size]) -> Condition:
    """Return where the library supports the sizes: a sum that is not empty, regular layouts."""
    found = at_least(of["k"], 1)
    for extent in ("m", "n", "k", "batch"):
        found &= at_most(of[extent], LARGEST)
    found &= _regular(of["m"], of["k"], of["a_m"], of["a_k"])
    return found & _regular(of["k"], of["n"], of["b_k"], of["b_n"])


def _regular(rows: Size, columns: Size, row: Size, column: Size) -> Condition:
    """Return where a matrix has unit stride along one axis, and rows that do not overlap."""
    plain = (exactly(column, 1) | at_most(columns, 1)) & (at_least(row, columns) | at_most(rows, 1))
    across = (exactly(row, 1) | at_most(rows, 1)) & (at_least(column, rows) | at_most(columns, 1))
    return plain | across


# ---- form ----------------------------------------------------------------------------------------


def _form(group: Group) -> _Form | None:
    form = product_form(group)
    if form is None or form.a.dtype != form.b.dtype or form.a.dtype not in _RESULTS:
        return None
    results = group.type_of(form.outputs[0].tensor).dtype
    if len(form.outputs) != 1 or results not in _RESULTS[form.a.dtype]:
        return None
    epilogue = _epilogue(form.outputs[0].value, form, group)
    if epilogue is None:
        return None
    reads = {"a": form.a.value, "b": form.b.value, "r": epilogue.residual, "bias": epilogue.bias}
    tensors = {"c": form.outputs[0].tensor}
    forms = {"c": form.offset}
    for name, value in reads.items():
        if value is None:
            continue
        found = _operand(value, group)
        if found is None or (name in ("r", "bias") and group.type_of(found[0]).dtype != results):
            return None
        tensors[name], forms[name] = found
    if epilogue != _Epilogue("none", None, None) and results == float64:
        return None
    numbers = _numbers(form, forms)
    if numbers is None:
        return None
    named = tuple(tensors.items())
    return _Form(named, form.a.dtype, results, epilogue.activation, tuple(numbers.items()))


def _operand(value: Expr, group: Group) -> tuple[str, Affine] | None:
    """Return the tensor and the address of a plain read, or None."""
    if not isinstance(value, Read) or value.default is not None:
        return None
    form = address(value, group.type_of(value.tensor).shape)
    return None if form is None else (value.tensor, form)


def _epilogue(value: Expr, form: ProductForm, group: Group) -> _Epilogue | None:
    """Return the epilogue that computes an output, None if the library has none like it."""
    value = _exact(value)
    activation, inner = "none", value
    gelu = _gelu_argument(value)
    if gelu is not None:
        activation, inner = "gelu", gelu
    elif isinstance(value, Apply) and value.function == "max" and _is(value.arguments[1], 0):
        activation, inner = "relu", value.arguments[0]
    columns = {axis.name for axis in form.b.axes}
    parts: dict[str, Read] = {}
    for term in _terms(inner):
        if not isinstance(term, Read):
            return None
        if term.tensor == PRODUCT:
            name = PRODUCT
        else:
            found = _operand(term, group)
            if found is None:
                return None
            name = "bias" if set(found[1].indices) <= columns else "residual"
        if name in parts:
            return None
        parts[name] = term
    if PRODUCT not in parts:
        return None
    return _Epilogue(activation, parts.get("bias"), parts.get("residual"))


def _exact(value: Expr) -> Expr:
    """Return a value without conversions between floats: the library rounds results only."""
    if isinstance(value, Cast) and value.dtype in (float32, *_NARROW):
        return _exact(value.argument)
    if isinstance(value, Apply):
        return replace(value, arguments=tuple(map(_exact, value.arguments)))
    return value


def _terms(value: Expr) -> Iterator[Expr]:
    if isinstance(value, Apply) and value.function == "add":
        for argument in value.arguments:
            yield from _terms(argument)
    else:
        yield value


def _is(value: Expr, number: float) -> bool:
    return isinstance(value, Literal) and value.value == number


def _gelu_argument(value: Expr) -> Expr | None:
    """Return the argument of GELU by the tanh approximation (`ops/elementwise.tc`), or None."""
    if not isinstance(value, Apply) or value.function != "mul":
        return None
    half = value.arguments[0]
    if not isinstance(half, Apply) or half.function != "mul":
        return None
    x = half.arguments[1]
    return x if _same(value, _gelu(x)) else None


def _gelu(x: Expr) -> Expr:
    def literal(number: float) -> Expr:
        return Literal(number, float32)

    cube = Apply("mul", (Apply("mul", (Apply("mul", (literal(0.044715), x)), x)), x))
    inner = Apply("mul", (literal(0.7978845608028654), Apply("add", (x, cube))))
    wave = Apply("add", (literal(1), Apply("tanh", (inner,))))
    return Apply("mul", (Apply("mul", (literal(0.5), x)), wave))


def _same(value: Expr, other: Expr) -> bool:
    """Whether two expressions are equal but for the types of literals."""
    if isinstance(value, Literal) and isinstance(other, Literal):
        return value.value == other.value
    if isinstance(value, Apply) and isinstance(other, Apply):
        same = value.function == other.function and len(value.arguments) == len(other.arguments)
        return same and all(map(_same, value.arguments, other.arguments))
    return value == other


def _numbers(form: ProductForm, of: dict[str, Affine]) -> dict[str, Size] | None:
    """Return the sizes of `WORDS` that describe matrices; None if axes cannot be merged."""
    a, b, c = of["a"], of["b"], of["c"]
    r, bias = of.get("r", c), of.get("bias")
    batch = [axis for axis in form.batch if axis.extent.constant != 1]
    columns = list(form.b.axes)
    along = (b, c, r) if bias is None else (b, c, r, bias)
    if not is_one_axis(columns, *along):  # products that share a factor, with columns per image
        batch, columns = [*batch, *columns[:-1]], columns[-1:]
    m, n = _walk(form.a.axes, a, c, r), _walk(columns, *along)
    k, many = _walk(form.depth, a, b), _walk(batch, a, b, c, r)
    if m is None or n is None or k is None or many is None:
        return None
    if any(stride.constant != 1 for stride in n[2:]):
        return None
    if bias is not None and not set(bias.indices) <= {axis.name for axis in columns}:
        return None
    return {
        "m": m[0], "n": n[0], "k": k[0], "batch": many[0],
        "a_start": a.constant, "a_m": m[1], "a_k": k[1], "a_batch": many[1],
        "b_start": b.constant, "b_k": k[2], "b_n": n[1], "b_batch": many[2],
        "c_m": m[2], "c_batch": many[3],
        "r_start": r.constant, "r_m": m[3], "r_batch": many[4],
        "bias_start": as_size(0) if bias is None else bias.constant,
    }  # fmt: skip


def _walk(axes: Sequence[Axis], *forms: Affine) -> tuple[Size, ...] | None:
    """Return the extent of axes as one, and its stride in each of the forms."""
    if not is_one_axis(axes, *forms):
        return None
    return (merged_extent(axes), *(merged_stride(axes, form) for form in forms))


TEMPLATE = form_template(
    "library", ByLibrary,
    lambda task: _form(task.group) if task.machine.library else None,
    lambda *_: ByLibrary(), _lower, keeps=True, widens=True,
)  # fmt: skip
