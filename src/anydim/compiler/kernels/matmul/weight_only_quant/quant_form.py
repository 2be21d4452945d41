"""The form of weight-only quantised products: a matrix product, weights of few bits, scales.

    y(m,n) +=! a(m,k) * (float(w(n,k)) * s(n, k // block))     w constant, of 4 or 8 bits

There is one row of scales per block of k, or a single one. The epilogue is as in a contraction.
Rows of bytes, float(a(m,k)) of int8, are multiplied by codes of 4 bits.
"""

from __future__ import annotations

from anydim.base.dtypes import float32, int4, int8
from anydim.base.records import dataclass
from anydim.compiler.kernels.inference import Linear, read_address
from anydim.compiler.kernels.launch import are_known, known_number
from anydim.compiler.kernels.matmul.contraction_form import ContractionForm, Reading
from anydim.compiler.kernels.matmul.epilogue import PRODUCT, epilogue_of, product_of
from anydim.compiler.kernels.matmul.product_axes import Factor
from anydim.lang.tree import Apply, Cast, Expr, Group, Index, Literal, Read, SizeTerm, Statement
from anydim.lang.tree.affine import address, reads

_WIDTHS = {int4: 4, int8: 8}
FIELDS = 8  # weights of 4 bits in a word


@dataclass(frozen=True)
class QuantForm:
    """A product as a contraction of `a` and the weights, as if they were float32.

    `scales` has one element per `block` of k, `groups` of them, with the given strides. `a` holds
    float32, or int8 (`has_bytes`).
    """

    product: ContractionForm
    scales: str
    scale_n: int
    scale_k: int
    block: int
    bits: int
    has_bytes: bool

    @property
    def depth(self) -> int:
        return known_number(self.product.k.extent)

    @property
    def columns(self) -> int:
        return known_number(self.product.n.extent)

    @property
    def groups(self) -> int:
        """Number of blocks of k; the last one may be shorter."""
        return -(-self.depth // self.block)


def quant_form_of(group: Group, constants: frozenset[str]) -> QuantForm | None:
    """Return the group as a product with quantised weights; None when it is not one."""
    sums = product_of(group)
    if sums is None or group.type_of(sums[0].target).dtype != float32:
        return None
    statement, factors = sums
    for left, right in (factors, factors[::-1]):
        found, rows = _match_dequantised(right, group, constants), _rows_of(left, group)
        if rows is not None and found is not None:
            return _make_form(group, statement, rows, *found)
    return None


def _rows_of(expr: Expr, group: Group) -> Read | None:
    """Match a read of float32, or float32 of a read of int8."""
    types = {tensor.name: tensor.type for tensor in group.inputs}
    cast = isinstance(expr, Cast) and expr.dtype == float32
    read = expr.argument if isinstance(expr, Cast) and cast else expr
    if not isinstance(read, Read) or read.tensor not in types or read.default is not None:
        return None
    return read if types[read.tensor].dtype == (int8 if cast else float32) else None


def _match_dequantised(
    expr: Expr, group: Group, constants: frozenset[str]
) -> tuple[Read, Read] | None:
    """Match (w, s) in float32(w) * s, both constant."""
    if not (isinstance(expr, Apply) and expr.function == "mul"):
        return None
    types = {tensor.name: tensor.type for tensor in group.inputs}
    for cast, scale in (expr.arguments, expr.arguments[::-1]):
        if not (isinstance(cast, Cast) and cast.dtype == float32 and isinstance(scale, Read)):
            continue
        weights = cast.argument
        if not isinstance(weights, Read) or not {weights.tensor, scale.tensor} <= constants:
            continue
        plain = weights.default is None and scale.default is None
        if not plain or types[weights.tensor].dtype not in _WIDTHS:
            continue
        if types[scale.tensor].dtype == float32:
            return weights, scale
    return None


def _make_form(
    group: Group, statement: Statement, left: Read, weights: Read, scale: Read
) -> QuantForm | None:
    types = {tensor.name: tensor.type for tensor in group.inputs}
    a, w = (address(read, types[read.tensor].shape) for read in (left, weights))
    outputs = epilogue_of(group, statement)
    if a is None or w is None or outputs is None or w.constant != 0:
        return None
    read_later = {r.tensor for o in outputs for r in reads(o.value) if r.tensor != PRODUCT}
    if {weights.tensor, scale.tensor} & read_later:
        return None
    factors = Factor(left.tensor, a), Factor(weights.tensor, w)
    form = Reading(group, statement, *factors, width=0, starts=False).form(outputs)
    sums = [axis for axis in statement.reduced if axis.extent.constant != 1]
    if form is None or len(sums) != 1 or any(walk.b != 0 for walk in form.loops):
        return None
    n, k = form.b_parts[2], form.b_parts[1]
    if len(n) != 1 or not are_known(n, k):
        return None
    columns = [x.name for x in statement.axes if x.extent.constant != 1][-1]
    found = _strides(read_address(scale, types[scale.tensor].shape), columns, sums[0].name)
    if found is None:
        return None
    scale_n, scale_k, block = found
    depth = known_number(k[0][0])
    bits = _WIDTHS[types[weights.tensor].dtype]
    block = min(block or depth, depth)
    if bits == 4 and block % FIELDS and block < depth:
        bits = 8
    has_bytes = types[left.tensor].dtype == int8
    if not depth or (has_bytes and (bits == 8 or form.k.a != 1)):
        return None
    return QuantForm(form, scale.tensor, scale_n, scale_k, block, bits, has_bytes)


def _strides(form: Linear, n: str, k: str) -> tuple[int, int, int] | None:
    """Return the strides of scales along n and between blocks, and k per block (0: all of k)."""
    terms = dict(form.affine.terms)
    along = terms.pop(n, None)
    stride = 0 if along is None else along.constant
    if terms or form.affine.constant != 0 or stride is None or len(form.atoms) > 1:
        return None
    if not form.atoms:
        return stride, 0, 0
    ((atom, step),) = form.atoms
    if not (isinstance(atom, Apply) and atom.function == "floordiv"):
        return None
    index, by = atom.arguments
    block = by.size.constant if isinstance(by, SizeTerm) else None
    if isinstance(by, Literal):
        block = int(by.value)
    if index != Index(k) or block is None or block < 1 or step.constant is None:
        return None
    return stride, step.constant, block
