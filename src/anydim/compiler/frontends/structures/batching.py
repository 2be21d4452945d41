"""Batches comprehensions: adds an axis of calls.

    h(j) = tanh(i(j))                                   ->  h(n, j) = tanh(i(n, j))
    s(j) +=! a(k, j)    k in 0:K, K children of a node  ->  s(n, j) +=! a(z, j)
                                                            z in offsets(n):offsets(n + 1)

A tensor of one call gets an axis of calls. One with an axis of K children gets an axis of the
children of all calls in its place (`Children`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from anydim.base.dtypes import int64
from anydim.base.records import dataclass
from anydim.lang.tree import (
    Apply,
    Axis,
    Branch,
    Expr,
    Group,
    Index,
    Literal,
    Loop,
    OrderedStep,
    Read,
    SizeTerm,
    Statement,
    TensorType,
    Write,
)
from anydim.lang.tree.affine import reads, rewrite
from anydim.lang.tree.bounds_checks import inside, is_inside
from anydim.lang.tree.typing import identity
from anydim.sizes import Size, as_size, product


class CannotBatch(Exception):
    """A computation cannot be batched over calls; the text says which."""


@dataclass(frozen=True)
class Children:
    """The concatenated children of all calls, which a size K counts: `total` of them.

    `offsets`, int64 [calls + 1], has the first child of each call, `owner`, int64 [total], the
    call of each child.
    """

    total: Size
    offsets: str
    owner: str


@dataclass(frozen=True)
class Batch:
    """The calls of a case: how many, which tensors differ between calls, the sizes K."""

    count: Size
    tensors: frozenset[str]
    children: Mapping[str, Children]

    def children_size(self, shape: Iterable[Size]) -> str:
        """The name of the size K in a shape; '' without an axis of children."""
        found = [name for size in shape for name in size.symbols if name in self.children]
        if len(found) > 1 or any(Size.symbol(n) not in tuple(shape) for n in found):
            raise CannotBatch(f"a tensor of sizes ({', '.join(map(str, shape))})")
        return found[0] if found else ""

    def type(self, kind: TensorType) -> TensorType:
        """The type of a tensor of one call for all calls."""
        name = self.children_size(kind.shape)
        if not name:
            return TensorType(kind.dtype, (self.count, *kind.shape))
        axis = kind.shape.index(Size.symbol(name))
        rest = (*kind.shape[:axis], *kind.shape[axis + 1 :])
        return TensorType(kind.dtype, (self.children[name].total, *rest))


def varying_tensors(group: Group, given: Collection[str]) -> frozenset[str]:
    """Tensors of a group that differ between calls: those that depend on `given`, and results."""
    found = {*given, *(tensor.name for tensor in group.outputs)}
    if group.steps:
        tensors = (*group.inputs, *group.outputs, *group.temporaries)
        written = set(_written_tensors(group.steps))
        return frozenset(found | {t.name for t in tensors if t.name in written})
    for statement in group.statements:
        if any(read.tensor in found for read in reads(statement.body)):
            found.add(statement.target)
    return frozenset(found)


def _written_tensors(steps: Iterable[OrderedStep]) -> Iterable[str]:
    for step in steps:
        if isinstance(step, (Statement, Write)):
            yield step.target
        elif isinstance(step, Loop):
            yield from _written_tensors(step.body)
        else:
            yield from _written_tensors((*step.then, *step.otherwise))


def batch_statement(
    statement: Statement, kinds: Mapping[str, TensorType], batch: Batch
) -> Statement:
    """Adds the axis of calls to a statement; `kinds` are types of one call."""
    return _StatementBatcher(statement, kinds, batch).run()


class _StatementBatcher:
    def __init__(self, statement: Statement, kinds: Mapping[str, TensorType], batch: Batch) -> None:
        self.statement, self.kinds, self.batch = statement, kinds, batch
        axes = (*statement.axes, *statement.reduced)
        self.axis = next((a for a in axes if batch.children_size((a.extent,))), None)
        if sum(bool(batch.children_size((a.extent,))) for a in axes) > 1:
            raise CannotBatch(f"'{statement.target}' relates children to each other")
        self.children = None
        if self.axis is not None:
            self.children = batch.children[batch.children_size((self.axis.extent,))]
        taken = {axis.name for axis in axes}
        self.call, self.child = (_unused_name(name, taken) for name in ("n", "z"))

    def run(self) -> Statement:
        statement, batch = self.statement, self.batch
        own = statement.target in batch.tensors
        body = rewrite(statement.body, self.change)
        if self.children is None:
            if not own:
                return statement
            axes = (Axis(self.call, batch.count), *statement.axes)
            return replace(statement, axes=axes, body=body)
        assert self.axis is not None
        z = Axis(self.child, self.children.total)
        if self.axis in statement.axes:
            axes = (z, *(a for a in statement.axes if a != self.axis))
            return replace(statement, axes=axes, body=body)
        reduced = tuple(z if a == self.axis else a for a in statement.reduced)
        low, high = (self.offset(Index(self.call), more) for more in (0, 1))
        at = Index(self.child)
        within = Apply("and", (Apply("greater_equal", (at, low)), Apply("less", (at, high))))
        start = identity(statement.combine, self.kinds[statement.target].dtype)
        body = Apply("select", (within, body, start))
        axes = (Axis(self.call, batch.count), *statement.axes)
        return replace(statement, axes=axes, body=body, reduced=reduced)

    @property
    def owner(self) -> Expr:
        """The number of the call in which the body is evaluated."""
        assert self.children is not None
        if self.axis in self.statement.axes:
            read = Read(self.children.owner, (Index(self.child),))
            return inside(read, self.batch.count)
        return Index(self.call)

    @property
    def position(self) -> Expr:
        """The position of a child among those of its call."""
        assert self.children is not None
        return Apply("sub", (Index(self.child), Read(self.children.offsets, (self.owner,))))

    def number(self) -> Expr:
        return Index(self.call) if self.children is None else self.owner

    def offset(self, call: Expr, more: int) -> Expr:
        assert self.children is not None
        at = call if not more else Apply("add", (call, SizeTerm(as_size(more))))
        return inside(Read(self.children.offsets, (at,)), self.children.total + 1)

    def change(self, expr: Expr) -> Expr | None:
        if isinstance(expr, Read):
            return self.read(expr)
        if isinstance(expr, Index) and self.axis is not None and expr.name == self.axis.name:
            return self.position
        if isinstance(expr, SizeTerm) and expr.size.symbols & self.batch.children.keys():
            return self.size(expr)
        return None

    def size(self, term: SizeTerm) -> Expr:
        """The number of children of a call."""
        (name,) = term.size.symbols & self.batch.children.keys()
        if term.size != Size.symbol(name):
            raise CannotBatch(f"the size {term.size}")
        offsets, call = self.batch.children[name].offsets, self.number()
        after = Read(offsets, (Apply("add", (call, SizeTerm(as_size(1)))),))
        return Apply("sub", (after, Read(offsets, (call,))))

    def read(self, expr: Read) -> Expr | None:
        if expr.tensor not in self.batch.tensors:
            return None
        kind = self.kinds[expr.tensor]
        name = self.batch.children_size(kind.shape)
        if not name:
            return _read_of_call(expr, kind, self.number())
        axis = kind.shape.index(Size.symbol(name))
        own = self.axis is not None and self.children is self.batch.children[name]
        plain = own and not expr.flat and _without_check(expr.indices[axis]) == self.position
        if not plain:
            raise CannotBatch(f"'{self.statement.target}' reads other children of '{expr.tensor}'")
        rest = (*expr.indices[:axis], *expr.indices[axis + 1 :])
        return replace(expr, indices=(Index(self.child), *rest))


def _read_of_call(expr: Read, kind: TensorType, call: Expr) -> Expr:
    """Adds the axis of calls to a read of a tensor whose type in one call is `kind`."""
    if not expr.flat:
        return replace(expr, indices=(call, *expr.indices))
    if expr.default is not None:
        raise CannotBatch(f"a guarded read of '{expr.tensor}' by its offset")
    first = Apply("mul", (call, SizeTerm(product(kind.shape))))
    return replace(expr, indices=(Apply("add", (first, expr.indices[0])),))


def _without_check(index: Expr) -> Expr:
    return index.arguments[0] if is_inside(index) and isinstance(index, Apply) else index


def _unused_name(stem: str, taken: Collection[str]) -> str:
    name, number = stem, 0
    while name in taken:
        number += 1
        name = f"{stem}{number}"
    return name


# ---- steps in order ------------------------------------------------------------------------------


def batch_steps(
    steps: Sequence[OrderedStep], kinds: Mapping[str, TensorType], batch: Batch
) -> tuple[OrderedStep, ...]:
    """Wraps ordered steps in a loop over calls."""
    if any(
        name in batch.children for kind in kinds.values() for s in kind.shape for name in s.symbols
    ):
        raise CannotBatch("a loop over children")
    call = SizeTerm(Size.symbol("call"))

    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, Read) or expr.tensor not in batch.tensors:
            return None
        return _read_of_call(expr, kinds[expr.tensor], call)

    def one(step: OrderedStep) -> OrderedStep:
        if isinstance(step, Statement):
            indices: tuple[Expr, ...] = (call, *(Index(axis.name) for axis in step.axes))
            return Write(
                step.target, indices, step.axes, rewrite(step.body, change), step.combine,
                step.reduced, fresh=bool(step.combine),
            )  # fmt: skip
        if isinstance(step, Write):
            indices = (call, *(rewrite(index, change) for index in step.indices))
            return replace(step, indices=indices, body=rewrite(step.body, change))
        if isinstance(step, Loop):
            start, stop = rewrite(step.start, change), rewrite(step.stop, change)
            return replace(step, start=start, stop=stop, body=tuple(map(one, step.body)))
        then, otherwise = tuple(map(one, step.then)), tuple(map(one, step.otherwise))
        return Branch(rewrite(step.condition, change), then, otherwise)

    zero = Literal(0, int64)
    return (Loop("call", zero, SizeTerm(batch.count), 1, tuple(map(one, steps))),)
