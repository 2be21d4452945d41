"""The backward steps of one statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from anydim.base.records import dataclass
from anydim.lang.derivatives.accesses import Access, Path, defines
from anydim.lang.derivatives.algebra import (
    ONE,
    ZERO,
    call,
    every,
    over,
    plus,
    simplify,
    times,
    where,
)
from anydim.lang.derivatives.cotangents import Cotangents, indices_of
from anydim.lang.derivatives.flow import Contribution, NoDerivative, carries, contributions
from anydim.lang.derivatives.placement import Domain, Update, place_contribution
from anydim.lang.derivatives.survival import overwritten
from anydim.lang.tree import (
    Apply,
    Axis,
    Branch,
    Expr,
    Literal,
    Loop,
    Read,
    Statement,
    TensorType,
    Write,
)
from anydim.lang.tree.affine import affine, reads
from anydim.lang.tree.typing import identity

AFTER = "@after"  # a suffix: the values of a tensor after the statement, not before


@dataclass
class StepAdjoint:
    """Writes the backward steps of `step` into the block of `cotangents`."""

    cotangents: Cotangents
    step: Statement | Write
    path: Path
    loops: tuple[Loop, ...]

    @property
    def indices(self) -> tuple[Expr, ...]:
        """The indices of the elements written."""
        step = self.step
        return step.indices if isinstance(step, Write) else indices_of(step.axes)

    def run(self) -> None:
        """Add to the cotangents of what the statement reads, and forget that of what it defines."""
        step, cotangents = self.step, self.cotangents
        if step.target not in cotangents.active or not cotangents.is_defined(step.target):
            return
        if not defines(step) and step.combine != "add":
            raise NoDerivative(f"'{step.combine}=' at positions that data gives has no derivative")
        if isinstance(step, Write) and not step.combine and not is_injective(step):
            raise NoDerivative("the last of several values assigned to one element counts")
        again = defines(step) and cotangents.rewritten(step.target)
        if again:
            cotangents.start(step.target)
        if self._reads_itself():
            self._contribute(self._copy_cotangent())
            return
        self._contribute(Read(cotangents.name(step.target), self.indices))
        if again:
            cotangents.emit(self._clear_cotangent())

    def _reads_itself(self) -> bool:
        """Whether the cotangent of an element that is written may change meanwhile."""
        own = Access(self.step.target, self._written_indices(), self.path, self.loops, self.step)
        return any(
            overwritten(
                Access(read.tensor, None if read.flat else read.indices, self.path, self.loops),
                own, len(self.loops),
            )
            for read in reads(self.step.body)
            if read.tensor == self.step.target and carries(self.step.body, {read.tensor})
        )  # fmt: skip

    def _written_indices(self) -> tuple[Expr, ...] | None:
        return self.step.indices if isinstance(self.step, Write) else None

    def _copy_cotangent(self) -> Read:
        """A copy of the cotangent of what is written."""
        step, cotangents = self.step, self.cotangents
        cotangents.start(step.target)
        name = cotangents.name(step.target)
        shape = tuple(axis.extent for axis in step.axes)
        kind = TensorType(cotangents.types[name].dtype, shape)
        copy = cotangents.temporary(f"{name}_old", kind)
        cotangents.emit(Statement(copy, step.axes, Read(name, self.indices)))
        if defines(step):
            cotangents.emit(self._clear_cotangent())
        return Read(copy, indices_of(step.axes))

    def _clear_cotangent(self) -> Statement | Write:
        step, name = self.step, self.cotangents.name(self.step.target)
        if isinstance(step, Statement):
            return Statement(name, step.axes, ZERO)
        return Write(name, step.indices, step.axes, ZERO)

    # ---- what the statement reads ----------------------------------------------------------------

    def _contribute(self, seed: Read) -> None:
        step = self.step
        ranges, body = split_ranges(step)
        domain = Domain(step.axes, step.reduced, ranges, self.loops, len(self.path) > 1)
        extra: tuple[Expr, ...] = ()
        value: Expr = seed
        if step.combine in ("min", "max"):
            chosen = call("equal", body, Read(step.target + AFTER, self.indices))
            value, extra = over(value, self._count(domain, chosen)), (chosen,)
        elif step.combine == "mul":
            value = times(value, self._others(domain, body))
        types = self.cotangents.types
        for found in _join_contributions(
            contributions(body, value, self.cotangents.active, types, extra)
        ):
            self._receive(found, domain)

    def _reduce_to_temporary(
        self, stem: str, domain: Domain, body: Expr, combine: str, rest: Expr
    ) -> Read:
        """A temporary with one element per element written: `body` over the reduced indices."""
        kind = self.cotangents.types[self.cotangents.name(self.step.target)]
        shape = tuple(axis.extent for axis in domain.left)
        name = self.cotangents.temporary(stem, TensorType(kind.dtype, shape))
        condition = every(list(domain.ranges))
        value = body if condition is None else where(condition, body, rest)
        self.cotangents.emit(Statement(name, domain.left, value, combine, domain.reduced))
        return Read(name, indices_of(domain.left))

    def _count(self, domain: Domain, chosen: Expr) -> Read:
        """The number of terms that are the extreme: each receives an equal part."""
        return self._reduce_to_temporary("ties", domain, where(chosen, ONE), "add", ZERO)

    def _others(self, domain: Domain, body: Expr) -> Expr:
        """The product of all other terms, exact where terms are zero."""
        is_zero = call("equal", body, ZERO)
        rest = self._reduce_to_temporary("rest", domain, where(is_zero, ONE, body), "mul", ONE)
        zeros = self._reduce_to_temporary("zeros", domain, where(is_zero, ONE), "add", ZERO)
        alone = where(call("equal", zeros, ONE), rest)
        return where(is_zero, alone, where(call("equal", zeros, ZERO), over(rest, body)))

    def _receive(self, found: Contribution, domain: Domain) -> None:
        cotangents, tensor = self.cotangents, found.read.tensor
        kind = cotangents.types[cotangents.name(tensor)]
        update = place_contribution(found, domain, cotangents.types, kind.dtype)
        if update.spills:
            update = self._scatter_with_margin(update, kind)
        self._add(tensor, update)

    def _scatter_with_margin(self, update: Update, kind: TensorType) -> Update:
        """Scatter into a temporary padded for out-of-bounds writes, then drop the padding."""
        cotangents = self.cotangents
        larger = TensorType(kind.dtype, tuple(size + 1 for size in kind.shape))
        name = cotangents.temporary("spill", larger)
        all_axes = tuple(Axis(f"i{n}", size) for n, size in enumerate(larger.shape))
        cotangents.emit(Statement(name, all_axes, ZERO))
        cotangents.emit(
            Write(name, update.indices, update.axes, update.body, "add", update.reduced)
        )
        axes = tuple(Axis(f"i{n}", size) for n, size in enumerate(kind.shape))
        return Update(indices_of(axes), axes, (), Read(name, indices_of(axes)), whole=True)

    def _add(self, tensor: str, update: Update) -> None:
        """Add an update to a cotangent; the first one that covers all of it defines it."""
        cotangents = self.cotangents
        home = cotangents.home(tensor)
        fresh = update.whole and home is cotangents.block and tensor not in home.defined
        if fresh:
            combine = "add" if update.reduced else ""
            name = cotangents.name(tensor)
            home.steps.append(Statement(name, update.axes, update.body, combine, update.reduced))
            home.defined.add(tensor)
            return
        cotangents.start(tensor)
        name = cotangents.name(tensor)
        write = Write(name, update.indices, update.axes, update.body, "add", update.reduced)
        condition = every(list(update.sizes))
        cotangents.emit(write if condition is None else Branch(condition, (write,)))


def _join_contributions(given: Iterable[Contribution]) -> list[Contribution]:
    """Sum the contributions to one read under the same conditions."""
    found: dict[tuple[Read, tuple[Expr, ...]], Contribution] = {}
    for each in given:
        known = found.get((each.read, each.conditions))
        seed = each.seed if known is None else plus(known.seed, each.seed)
        found[each.read, each.conditions] = Contribution(each.read, seed, each.conditions)
    return list(found.values())


def split_ranges(step: Statement | Write) -> tuple[tuple[Expr, ...], Expr]:
    """The conditions of ranges that data gives to reduced indices, and the body within them."""
    body = step.body
    if isinstance(body, Apply) and body.function == "select" and _is_rest(step, body.arguments[2]):
        conditions = _conjuncts(body.arguments[0])
        names = {axis.name for axis in step.reduced}
        if all(range_end(c, names) for c in conditions) and reads(body.arguments[0]):
            return tuple(map(simplify, conditions)), body.arguments[1]
    return (), body


def _is_rest(step: Statement | Write, value: Expr) -> bool:
    if not step.combine or not isinstance(value, Literal) or value.dtype is None:
        return False
    return value == identity(step.combine, value.dtype)


def _conjuncts(condition: Expr) -> list[Expr]:
    if isinstance(condition, Apply) and condition.function == "and":
        return [part for argument in condition.arguments for part in _conjuncts(argument)]
    return [condition]


def range_end(condition: Expr, names: set[str]) -> tuple[str, str, Expr] | None:
    """(index, 'low' or 'high', end) of a condition that bounds an index; None for another one."""
    if not isinstance(condition, Apply) or condition.function not in ("less", "greater_equal"):
        return None
    index, end = condition.arguments
    form = affine(index)
    if form is None or len(form.terms) != 1 or form.constant != 0:
        return None
    ((name, coefficient),) = form.terms
    if name not in names or coefficient != 1:
        return None
    return name, "high" if condition.function == "less" else "low", end


def is_injective(step: Write) -> bool:
    """Whether each position of the axes writes an element of its own."""
    forms = [affine(simplify(index)) for index in step.indices]
    open_axes = {axis.name for axis in step.axes}
    while open_axes:
        solved = {
            names[0] for names in _open_names(forms, open_axes) if len(names) == 1
        }  # fmt: skip
        if not solved:
            return False
        open_axes -= solved
    return True


def _open_names(forms: Sequence[object], open_axes: set[str]) -> Iterator[list[str]]:
    for form in forms:
        if form is not None:
            terms = form.terms  # type: ignore[attr-defined]
            yield [name for name, c in terms if name in open_axes and c.constant]
