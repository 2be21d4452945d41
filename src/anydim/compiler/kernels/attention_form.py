"""Recognises attention in a group of statements by its computation, not by its statements.

    s(b, q, k) +=! Q(b, q, d) * K(b, k, d)
    top(b, q) max=! f(s);  e = exp(f(s) - top);  total(b, q) +=! e;  p = e / total
    o(b, q, v) +=! p(b, q, k) * V(b, k, v)

`f` is any sequence of pointwise statements on the scores. Pointwise statements may be merged,
split, or inlined into the reductions; there may be any number of batch axes, in any order.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from anydim.base.dtypes import bfloat16, float16, float32
from anydim.base.records import dataclass
from anydim.compiler.kernels.flatten import own_address
from anydim.compiler.kernels.inference import dtype_of, free_axes
from anydim.compiler.kernels.matmul.product_axes import Factor
from anydim.lang.tree import Apply, Axis, Cast, Expr, Group, Index, Literal, Read, Statement
from anydim.lang.tree.affine import address, reads, rewrite, substitute
from anydim.sizes import as_size

MAX_READS = 32  # maximum reads of an expression after inlining of pointwise statements
_NARROW = (float16, bfloat16)
PRODUCT = 1e30  # assumed upper bound of the products of queries and keys
MAX_DEPTH = 4096  # maximum elements of a head: code is unrolled over its vectors


@dataclass(frozen=True)
class AttentionForm:
    """An attention: `score` is the argument of softmax, an expression over the product `raw`.

    `nan_is_zero`: shares that are NaN, as in a row without a score above -inf, count as 0.
    `masked_is_zero`: the shares of such a row count as 0; other shares that are NaN stay NaN.
    `widens`: some of queries, keys and values have 16 bits. `rounds`: the factors of both products
    are rounded to bfloat16; `narrow` are those tensors, and the result, that are stored so.
    """

    batch: tuple[Axis, ...]
    query: Axis
    key: Axis
    depth: Axis
    width: Axis
    queries: Factor
    keys: Factor
    values: Factor
    output: Factor
    raw: str
    score: Expr
    nan_is_zero: bool = False
    masked_is_zero: bool = False
    widens: bool = False
    rounds: bool = False
    narrow: frozenset[str] = frozenset()

    @cached_property
    def bound(self) -> Expr | None:
        """An upper bound of the scores, if there may be a mask."""
        found = _upper_bound(self.score, self.raw)
        return found if found is not None and self.key.name in free_axes(found) else None


def _small(axis: Axis) -> bool:
    """Whether an axis of a head has a constant extent that is small enough to unroll."""
    extent = axis.extent.constant
    return extent is not None and extent <= MAX_DEPTH


def attention_form(group: Group) -> AttentionForm | None:
    """Return the attention that a group computes; None if it computes something else."""
    return _Matcher(group).form() if len(group.outputs) == 1 else None


class _Matcher:
    def __init__(self, group: Group) -> None:
        tensors = (*group.inputs, *group.outputs, *group.temporaries)
        self.types = {t.name: t.type for t in tensors}
        self.inputs = {t.name for t in group.inputs}
        self.statements = group.statements
        self.reductions = {s.target: s for s in group.statements if s.combine}
        self.bodies: dict[str, Expr] = {}

    def form(self) -> AttentionForm | None:
        """Match the group backwards from its last product."""
        last, stored = self._last_product()
        if len(self.reductions) != 4 or not self._is_product(last):
            return None
        if any(self.types[name].dtype != float32 for name in self.reductions):
            return None
        if not self._resolve_all():
            return None
        for shares, values in _both_orders(last.body):
            if shares.tensor in self.bodies and values.tensor in self.inputs:
                share, safe = _without_nan(self._inline(shares))
                share, masked = self._without_masked_rows(share, last.reduced[0])
                found = self._score(share, last.reduced[0])
                form = None if found is None else self._make_form(*found, last, values, stored)
                if form is not None and (form.rounds or stored is last):
                    return replace(form, nan_is_zero=safe, masked_is_zero=masked and not safe)
        return None

    def _last_product(self) -> tuple[Statement, Statement]:
        """Return the last product, and the statement that stores it: itself, or its rounding."""
        stored = self.statements[-1]
        body = stored.body
        if isinstance(body, Cast) and body.dtype == bfloat16 and isinstance(body.argument, Read):
            made = self.reductions.get(body.argument.tensor)
            if made is not None and self._is_own(body.argument) and made.axes == stored.axes:
                return made, stored
        return stored, stored

    # ---- pointwise statements ------------------------------------------------------------------

    def _resolve_all(self) -> bool:
        """Inline pointwise statements to inputs and reductions; False if they grow too large."""
        for statement in self.statements:
            if not statement.combine:
                body = self._inline(statement.body)
                if len(reads(body)) > MAX_READS:
                    return False
                dtype = self.types[statement.target].dtype
                if dtype_of(body, self.types) != dtype:
                    body = Cast(dtype, body)
                self.bodies[statement.target] = body
        return True

    def _inline(self, expr: Expr) -> Expr:
        """Return an expression with pointwise values inlined."""
        axes = {s.target: [a.name for a in s.axes] for s in self.statements}

        def change(e: Expr) -> Expr | None:
            if not isinstance(e, Read) or e.tensor not in self.bodies:
                return None
            if e.flat or e.default is not None:
                return None
            return substitute(self.bodies[e.tensor], dict(zip(axes[e.tensor], e.indices)))

        return rewrite(expr, change)

    # ---- softmax -------------------------------------------------------------------------------

    def _score(self, shares: Expr, key: Axis) -> tuple[Statement, Expr] | None:
        """Return (product of queries and keys, argument of the softmax over `key`)."""
        quotient = _quotient(shares)
        if quotient is None:
            return None
        powers, total = quotient
        if self._reduction_argument(total, "add", key) != powers:
            return None
        if not (isinstance(powers, Apply) and powers.function == "exp"):
            return None
        (difference,) = powers.arguments
        if not (isinstance(difference, Apply) and difference.function == "sub"):
            return None
        score, top = difference.arguments
        if self._reduction_argument(top, "max", key) != score:
            return None
        products = [r for r in reads(score) if r.tensor in self.reductions]
        if not products or any(not self._is_own(r) for r in products):
            return None
        names = {r.tensor for r in products}
        others = {r.tensor for r in reads(score)} - names
        if len(names) != 1 or not others <= self.inputs:
            return None
        scores = self.reductions[names.pop()]
        if not free_axes(score) <= {axis.name for axis in scores.axes}:
            return None
        return (scores, score) if self._is_product(scores) else None

    def _without_masked_rows(self, share: Expr, key: Axis) -> tuple[Expr, bool]:
        """Return (a, True) for top == -inf ? 0 : a, for the top score; else (share, False)."""
        if isinstance(share, Apply) and share.function == "select":
            condition, zero, value = share.arguments
            is_zero = isinstance(zero, Literal) and zero.value == 0
            if is_zero and isinstance(condition, Apply) and condition.function == "equal":
                top, lowest = condition.arguments
                if self._reduction_argument(top, "max", key) is not None and _is_lowest(lowest):
                    return value, True
        return share, False

    def _reduction_argument(self, read: Expr, combine: str, key: Axis) -> Expr | None:
        """Return the argument of a reduction over `key`, if `read` reads its result unchanged."""
        if not isinstance(read, Read) or read.tensor not in self.reductions:
            return None
        statement = self.reductions[read.tensor]
        if statement.combine != combine or statement.reduced != (key,) or not self._is_own(read):
            return None
        return self._inline(statement.body)

    def _is_own(self, read: Read) -> bool:
        """Whether a read uses the same axes as the statement that wrote the element."""
        axes = self.reductions[read.tensor].axes
        own = tuple(Index(axis.name) for axis in axes)
        return not read.flat and read.default is None and read.indices == own

    # ---- products ------------------------------------------------------------------------------

    def _is_product(self, statement: Statement) -> bool:
        body = statement.body
        return (
            statement.combine == "add"
            and len(statement.reduced) == 1
            and isinstance(body, Apply)
            and body.function == "mul"
            and all(self._is_factor(a) for a in body.arguments)
        )

    def _is_factor(self, expr: Expr) -> bool:
        """Whether an expression is a read of float32, maybe rounded, or a wider 16-bit read."""
        read = _plain(expr)
        if not isinstance(read, Read) or read.default is not None:
            return False
        dtype = self.types[read.tensor].dtype
        if _is_rounded(expr):
            return dtype in (float32, bfloat16)
        return dtype in ((float32,) if read is expr else _NARROW)

    def _factor(self, read: Read) -> Factor | None:
        form = address(read, self.types[read.tensor].shape)
        return None if form is None else Factor(read.tensor, form)

    def _make_form(
        self, scores: Statement, score: Expr, last: Statement, values: Read, stored: Statement
    ) -> AttentionForm | None:
        key, depth = last.reduced[0], scores.reduced[0]
        if key not in scores.axes or not _small(depth) or not last.axes:
            return None
        width = last.axes[-1]
        if width in scores.axes or {*last.axes} - {width} != {*scores.axes} - {key}:
            return None
        if not _small(width):
            return None
        of_values = self._factor(values)
        for left, right in _both_orders(scores.body):
            of_queries, of_keys = self._factor(left), self._factor(right)
            if of_queries is None or of_keys is None or of_values is None:
                return None
            if key.name in of_keys.address.indices and key.name not in of_queries.address.indices:
                break
        else:
            return None
        if left.tensor not in self.inputs or right.tensor not in self.inputs:
            return None
        factors = of_queries, of_keys, of_values
        rounds = {_is_rounded(factor) for each in (scores, last) for factor in _factors(each.body)}
        query = _query_axis(scores.axes, key, of_queries, factors[1:])
        form = AttentionForm(
            batch=tuple(axis for axis in scores.axes if axis not in (query, key)),
            query=query, key=key, depth=depth, width=width,
            queries=of_queries, keys=of_keys, values=of_values,
            output=Factor(stored.target, own_address(stored)),
            raw=scores.target, score=score,
            widens=any(self.types[each.tensor].dtype != float32 for each in factors),
            rounds=True in rounds,
            narrow=frozenset(t for t in (*(each.tensor for each in factors), stored.target)
                             if self.types[t].dtype == bfloat16),
        )  # fmt: skip
        return form if len(rounds) == 1 and _has_fast_addresses(form) else None


def _upper_bound(score: Expr, raw: str) -> Expr | None:
    """Return an upper bound of the scores without the product `raw`; None without a mask."""
    if all(read.tensor != raw for read in reads(score)):
        indices = [index for read in reads(score) for index in read.indices]
        return None if any(reads(index) for index in indices) else score
    if not isinstance(score, Apply):
        return None
    bounds = [_upper_bound(argument, raw) for argument in score.arguments]
    large = Literal(PRODUCT, float32)
    if score.function == "add" and bounds.count(None) == 1:
        (bound,) = (b for b in bounds if b is not None)
        return Apply("add", (bound, large))
    if score.function == "select" and bounds[0] is not None and bounds[1:] != [None, None]:
        return Apply("select", (bounds[0], bounds[1] or large, bounds[2] or large))
    if score.function in ("mul", "div") and bounds[0] is not None:
        by = score.arguments[1]
        if isinstance(by, Literal) and by.value > 0:
            return Apply(score.function, (bounds[0], by))
    return None


def _factors(body: Expr) -> tuple[Expr, ...]:
    assert isinstance(body, Apply)
    return body.arguments


def _both_orders(body: Expr) -> tuple[tuple[Read, Read], ...]:
    left, right = map(_plain, _factors(body))
    assert isinstance(left, Read) and isinstance(right, Read)
    return (left, right), (right, left)


def _plain(factor: Expr) -> Expr:
    """Return a factor without its conversion to float32, its rounding before, and its widening."""
    for dtype in (float32, bfloat16, float32):
        if isinstance(factor, Cast) and factor.dtype == dtype:
            factor = factor.argument
    return factor


def _is_rounded(factor: Expr) -> bool:
    """Whether a factor is rounded to bfloat16 before its conversion to float32."""
    return isinstance(factor, Cast) and isinstance(factor.argument, Cast)


def _without_nan(share: Expr) -> tuple[Expr, bool]:
    """Return (a, True) for isnan(a) ? 0 : a, else (share, False)."""
    if isinstance(share, Apply) and share.function == "select":
        condition, zero, value = share.arguments
        is_zero = isinstance(zero, Literal) and zero.value == 0
        if is_zero and condition == Apply("isnan", (value,)):
            return value, True
    return share, False


def _is_lowest(expr: Expr) -> bool:
    """Whether an expression is the literal -inf."""
    return isinstance(expr, Literal) and expr.value == float("-inf")


def _quotient(expr: Expr) -> tuple[Expr, Expr] | None:
    """Return (a, b) for a / b, a * (1 / b) and (1 / b) * a."""
    if not isinstance(expr, Apply) or expr.function not in ("div", "mul"):
        return None
    left, right = expr.arguments
    if expr.function == "div":
        return left, right
    for factor, inverse in ((left, right), (right, left)):
        if isinstance(inverse, Apply) and inverse.function == "div":
            one, divisor = inverse.arguments
            if isinstance(one, Literal) and one.value == 1:
                return factor, divisor
    return None


def _query_axis(
    axes: tuple[Axis, ...], key: Axis, queries: Factor, others: tuple[Factor, ...]
) -> Axis:
    """Return the innermost axis that only the queries depend on, or a loop of one iteration."""
    for axis in reversed(axes):
        alone = not any(axis.name in other.address.indices for other in others)
        if axis != key and alone and axis.name in queries.address.indices:
            return axis
    return Axis(f"{key.name}/query", as_size(1))


def _has_fast_addresses(form: AttentionForm) -> bool:
    """Whether the operands are contiguous along the axes of vectors."""
    along_depth = form.keys.address.stride(form.depth.name).constant == 1
    along_keys = form.keys.address.stride(form.key.name).constant == 1
    return (
        form.queries.address.stride(form.depth.name).constant == 1
        and (along_depth or along_keys)
        and form.values.address.stride(form.width.name).constant == 1
        and form.output.address.stride(form.width.name).constant == 1
    )
