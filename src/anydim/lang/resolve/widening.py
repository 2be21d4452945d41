"""Widens 16-bit float arithmetic to float32; results are rounded once.

After: a function that rounds is applied to float16 and bfloat16 only where it is the only one of
its statement, which is equivalent; a temporary holds float32, unless its values are only moved or
selected. A conversion from a float rounds where it is written; conversions from integers, sizes and
indices do not. Results are rounded where they are written, so they do not depend on what the
definition is fused with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from anydim.base.dtypes import DType, bfloat16, float16, float32
from anydim.base.records import dataclass
from anydim.lang.functions import REINTERPRETING
from anydim.lang.tree import (
    Apply,
    Branch,
    Cast,
    Expr,
    Group,
    Index,
    Literal,
    Loop,
    OrderedStep,
    Read,
    Statement,
    Tensor,
    TensorType,
    Write,
)
from anydim.lang.tree.affine import rewrite
from anydim.lang.tree.stepping import writes
from anydim.lang.tree.typing import dtype_of

NARROW = (float16, bfloat16)
_CHOOSING = frozenset(("select", "min", "max", "neg", "abs"))  # return one of their arguments
_ADDING = frozenset(("add", "mul"))  # reductions that round
_SEVERAL = 2  # at this many roundings it is computed in float32


def widen_group(group: Group) -> Group:
    """The group with its 16-bit arithmetic in float32; the same object if it has none."""
    types = {t.name: t.type for t in (*group.inputs, *group.outputs, *group.temporaries)}
    if not any(kind.dtype in NARROW for kind in types.values()):
        return group
    work = _Widening(types, frozenset(tensor.name for tensor in group.temporaries))
    work.settle(group.steps or group.statements)
    statements = tuple(new for old in group.statements for new in work.write(old))
    temporaries = tuple(work.tensor(tensor) for tensor in group.temporaries)
    return replace(
        group, statements=statements, steps=work.block(group.steps),
        temporaries=(*temporaries, *work.more),
    )  # fmt: skip


@dataclass
class _Widening:
    """`types` are the original types; `wide` tensors become float32, `more` are new ones."""

    types: Mapping[str, TensorType]
    hidden: frozenset[str]
    wide: set[str] = field(default_factory=set)
    more: list[Tensor] = field(default_factory=list)

    def settle(self, steps: Sequence[OrderedStep]) -> None:
        """Find the temporaries that hold float32, to a fixed point."""
        hidden = [step for step in writes(steps) if step.target in self.hidden]
        hidden = [step for step in hidden if self.types[step.target].dtype in NARROW]
        before = -1
        while before < len(self.wide):
            before = len(self.wide)
            self.wide.update(
                step.target for step in hidden
                if step.combine in _ADDING or self.roundings(step.body)
            )  # fmt: skip

    def tensor(self, tensor: Tensor) -> Tensor:
        """A temporary with its new type."""
        if tensor.name not in self.wide:
            return tensor
        return Tensor(tensor.name, TensorType(float32, tensor.type.shape))

    # ---- steps ---------------------------------------------------------------------------------

    def block(self, steps: Sequence[OrderedStep]) -> tuple[OrderedStep, ...]:
        return tuple(new for step in steps for new in self.step(step))

    def step(self, step: OrderedStep) -> Sequence[OrderedStep]:
        if isinstance(step, Branch):
            then, otherwise = self.block(step.then), self.block(step.otherwise)
            return [Branch(self.other(step.condition), then, otherwise)]
        if isinstance(step, Loop):
            start, stop = self.other(step.start), self.other(step.stop)
            return [replace(step, start=start, stop=stop, body=self.block(step.body))]
        if isinstance(step, Statement):
            return self.write(step)
        indices = tuple(self.other(index) for index in step.indices)
        return [replace(step, indices=indices, body=self.body(step))]

    def write(self, step: Statement) -> Sequence[Statement]:
        """Widen a statement; a sum that is a result is accumulated in a temporary."""
        body = self.body(step)
        if step.combine not in _ADDING or not isinstance(body, Cast) or body is step.body:
            return [step.with_body(body)]
        if body.dtype not in NARROW:
            return [step.with_body(body)]
        name = f"{step.target}.wide"
        while name in self.types:
            name += "'"
        self.more.append(Tensor(name, TensorType(float32, step.shape)))
        total = Read(name, tuple(Index(axis.name) for axis in step.axes))
        return [
            replace(step, target=name, body=body.argument),
            Statement(step.target, step.axes, Cast(body.dtype, total)),
        ]

    def body(self, step: Statement | Write) -> Expr:
        """The written value, in the target's type."""
        if step.target in self.wide:
            return self.value(step.body)
        dtype = dtype_of(step.body, self.types)
        if dtype not in NARROW:
            return self.other(step.body)
        roundings = self.roundings(step.body)
        if roundings == 0 or (roundings == 1 and _is_last(step)):
            return step.body
        return Cast(dtype, self.value(step.body))

    # ---- expressions ---------------------------------------------------------------------------

    def roundings(self, expr: Expr) -> int:
        """How many operations round to 16 bits; two for a number that 16 bits cannot hold."""
        return sum(self._roundings(part) for part in _everything(expr))

    def _roundings(self, part: Expr) -> int:
        if isinstance(part, Read):
            return _SEVERAL * (part.tensor in self.wide)
        if isinstance(part, Literal):
            return _SEVERAL * (part.dtype in NARROW and not _is_exact(part))
        if isinstance(part, Cast):
            whole = not dtype_of(part.argument, self.types).is_float
            return _SEVERAL * (part.dtype in NARROW and whole)
        computes = isinstance(part, Apply) and part.function not in _CHOOSING | REINTERPRETING
        return computes and dtype_of(part, self.types) in NARROW

    def other(self, expr: Expr) -> Expr:
        """Widen the 16-bit arithmetic within an expression of another type."""
        return self.value(expr) if self.roundings(expr) else expr

    def value(self, expr: Expr) -> Expr:
        """An expression with float32 for 16-bit floats."""
        if isinstance(expr, Literal):
            return Literal(expr.value, float32) if expr.dtype in NARROW else expr
        if isinstance(expr, Read):
            return self._read(expr)
        if isinstance(expr, Cast):
            return self._cast(expr)
        if not isinstance(expr, Apply):
            return expr
        if expr.function in REINTERPRETING:
            made: Expr = Apply(expr.function, tuple(self.same(a) for a in expr.arguments))
            return self._wide(made, dtype_of(expr, self.types))
        return Apply(expr.function, tuple(self.value(a) for a in expr.arguments))

    def same(self, expr: Expr) -> Expr:
        """Widen an expression, converted back to its original type."""
        dtype = dtype_of(expr, self.types)
        made = self.value(expr)
        if dtype not in NARROW:
            return made
        if isinstance(made, Cast) and dtype_of(made.argument, self.types) == dtype:
            return made.argument
        return Cast(dtype, made)

    def _read(self, read: Read) -> Expr:
        indices = tuple(self.other(index) for index in read.indices)
        if read.tensor in self.wide:
            default = None if read.default is None else self.value(read.default)
            return replace(read, indices=indices, default=default)
        default = read.default
        if default is not None and not isinstance(default, Literal):
            default = self.same(default)
        made = replace(read, indices=indices, default=default)
        return self._wide(made, self.types[read.tensor].dtype)

    def _cast(self, cast: Cast) -> Expr:
        have = dtype_of(cast.argument, self.types)
        argument = self.value(cast.argument)
        if cast.dtype in NARROW:
            rounded = Cast(cast.dtype, argument) if have.is_float else argument
            return Cast(float32, rounded)
        if have in NARROW and cast.dtype == float32:
            return argument
        return Cast(cast.dtype, argument)

    def _wide(self, expr: Expr, dtype: DType) -> Expr:
        return Cast(float32, expr) if dtype in NARROW else expr


def _is_last(step: Statement | Write) -> bool:
    """Whether the rounding operation comes last, or is a product that a sum adds exactly."""
    if not isinstance(step.body, Apply) or step.body.function in _CHOOSING:
        return False
    if step.combine not in _ADDING:
        return True
    plain = all(isinstance(part, Read) for part in step.body.arguments)
    return step.combine == "add" and step.body.function == "mul" and plain


def _is_exact(literal: Literal) -> bool:
    assert literal.dtype is not None
    held = float(literal.dtype.numpy.type(literal.value))
    return held == literal.value or literal.value != literal.value


def _everything(expr: Expr) -> Iterator[Expr]:
    """All subexpressions, including the indices of reads."""
    found: list[Expr] = []
    rewrite(expr, found.append)
    return iter(found)
