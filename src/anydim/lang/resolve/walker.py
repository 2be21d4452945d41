"""A walk over the loops, branches and statements of a definition, scope by scope."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from anydim.base.dtypes import boolean
from anydim.base.records import dataclass
from anydim.lang.resolve.expand import Expander, by_sizes, fold_decided_choices
from anydim.lang.resolve.extents import Work
from anydim.lang.resolve.inbounds import check_reads
from anydim.lang.resolve.ranges import is_proved, unknown_in
from anydim.lang.resolve.roles import Role
from anydim.lang.resolve.scope import Scope
from anydim.lang.surface.syntax import (
    Assignment,
    BranchBlock,
    Invoke,
    Item,
    LoopBlock,
    Term,
)
from anydim.lang.tree import Apply, Branch, Expr, Literal, Loop, OrderedStep, SizeTerm, TensorType
from anydim.lang.tree.typing import TypeProblem, as_index, convert_expression
from anydim.sizes import Size, as_size


@dataclass
class Walker(ABC):
    """`tensors` are the types known so far; sizes not inferred yet have names of their own.

    `surveys`: infers types. It also visits code that the current sizes exclude, so that types do
    not depend on them, and leaves errors about types and positions to the final walk.
    """

    surveys: ClassVar[bool] = False

    roles: dict[str, Role]
    tensors: dict[str, TensorType]

    @abstractmethod
    def assignment(self, item: Assignment, scope: Scope) -> list[OrderedStep]:
        """The steps of an assignment."""

    @abstractmethod
    def invoke(self, item: Invoke, scope: Scope) -> list[OrderedStep]:
        """The steps of a call."""

    @abstractmethod
    def postpone(self, item: Item, sizes: frozenset[str]) -> None:
        """Called for a skipped loop, whose bounds depend on sizes that are not inferred yet."""

    def block(self, block: Sequence[Item], scope: Scope) -> tuple[OrderedStep, ...]:
        """The steps of a block."""
        return tuple(step for item in block for step in self.item(item, scope))

    def item(self, item: Item, scope: Scope) -> list[OrderedStep]:
        """The steps of an item."""
        if isinstance(item, Assignment):
            return self.assignment(item, scope)
        if isinstance(item, Invoke):
            return self.invoke(item, scope)
        if isinstance(item, LoopBlock):
            return self._loop(item, scope)
        assert isinstance(item, BranchBlock)  # no match: its cases are compiled one by one
        return self._branch(item, scope)

    def scalar(self, term: Term, scope: Scope) -> Work:
        """Resolve a term without indices, with its reads checked."""
        expander = Expander(scope.binding, self.tensors)
        item = Assignment("", (), "", False, term, (), term.position)
        body = expander.expand(term)
        work = Work(item, scope.binding, self.tensors, expander, [], body, scope=scope)
        if not self.surveys:
            check_reads(work, set())
        return work

    # ---- loops ---------------------------------------------------------------------------------

    def _loop(self, loop: LoopBlock, scope: Scope) -> list[OrderedStep]:
        start, stop = self._end(loop.start, scope), self._end(loop.stop, scope)
        step = self._step(loop, scope)
        ends = [end.size if isinstance(end, SizeTerm) else None for end in (start, stop)]
        unknown = unknown_in(*(end for end in ends if end is not None))
        if unknown:
            self.postpone(loop, unknown)
            return []
        low, high = ends if step > 0 else (_next(ends[1]), _next(ends[0]))
        if low is None:
            low = as_size(0)
            start, stop = _not_below_zero(start, stop, step)
        if high is not None and is_proved(high, "<=", low, scope.box) and not self.surveys:
            return []
        inner, variable, base = scope.enter_loop(loop.variable, low, high, step)
        body = self.block(loop.body, inner)
        start, stop = (_less(end, base) for end in (start, stop))
        return [Loop(variable, start, stop, step, body)] if body else []

    def _end(self, term: Term, scope: Scope) -> Expr:
        work = self.scalar(term, scope)
        expr = work.expander.whole_sizes(work.body)
        try:
            return as_index(expr, self.tensors)
        except TypeProblem as problem:
            if self.surveys:
                return expr
            problem.text = problem.text.replace("an index", "the end of a loop")
            raise work.type_error(problem) from None

    def _step(self, loop: LoopBlock, scope: Scope) -> int:
        expr = self._end(loop.step, scope)
        number = expr.size.constant if isinstance(expr, SizeTerm) else None
        if not number:
            raise scope.binding.error(
                loop.step.position, "the step of a loop must be a nonzero constant",
                "such as 2 or -1; the default is 1",
            )  # fmt: skip
        return number

    # ---- branches ------------------------------------------------------------------------------

    def _branch(self, branch: BranchBlock, scope: Scope) -> list[OrderedStep]:
        work = self.scalar(branch.condition, scope)
        plain = fold_decided_choices(work.body)
        try:
            condition = convert_expression(plain, self.tensors, boolean)
        except TypeProblem as problem:
            if not self.surveys:
                raise work.type_error(problem) from None
            condition = plain
        sized = self.surveys and by_sizes(branch.condition, scope.binding)
        if isinstance(condition, Literal) and not sized:
            taken = branch.then if condition.value else branch.otherwise
            return list(self.block(taken, scope))
        then = self.block(branch.then, scope.within(plain, True))
        otherwise = self.block(branch.otherwise, scope.within(plain, False))
        return [Branch(condition, then, otherwise)] if then or otherwise else []


def _not_below_zero(start: Expr, stop: Expr, step: int) -> tuple[Expr, Expr]:
    """The ends of a loop with data-dependent ends, without its negative iterations."""
    zero = SizeTerm(as_size(0))
    if step < 0:
        return start, Apply("max", (stop, SizeTerm(as_size(-1))))
    first = Apply("mod", (start, SizeTerm(as_size(step))))
    return Apply("select", (Apply("less", (start, zero)), first, start)), stop


def _next(size: Size | None) -> Size | None:
    return None if size is None else size + 1


def _less(end: Expr, base: Size) -> Expr:
    if base.constant == 0:
        return end
    if isinstance(end, SizeTerm):
        return SizeTerm(end.size - base)
    return Apply("sub", (end, SizeTerm(base)))
