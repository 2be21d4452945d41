"""Assigns statements to passes over a row, and chooses the elements kept between passes.

A row is the work of a group at one point of its outer loops. Its statements are of three kinds:

    element    has the row's axes           e(r,c) = exp(x(r,c) - top(r))
    reduction  reduces over them            total(r) +=! e(r,c)
    scalar     has neither                  scale(r) = 1 / total(r)

A pass runs over the row once. The result of a reduction is known after its pass; elements are
recomputed in every pass that needs them, unless that costs more than keeping them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from anydim.base.records import dataclass
from anydim.compiler.kernels.work_estimate import cost
from anydim.lang.tree import Group, Statement
from anydim.lang.tree.affine import reads

KEEP_ABOVE = 3.0  # the cost of a store and a later load, in unit operations


@dataclass(frozen=True)
class Kept:
    """Elements kept from pass `first` on: in the buffer of an output, or in scratch slot `slot`."""

    first: int
    output: str | None
    slot: int = 0


@dataclass(frozen=True)
class Plan:
    """The passes over a row. `made` and `stored` map each reduction and output to its pass."""

    passes: int
    kinds: Mapping[str, str]
    made: Mapping[str, int]
    stored: Mapping[str, int]
    kept: Mapping[str, Kept]

    def made_by(self, pass_number: int) -> tuple[str, ...]:
        """The reductions of a pass."""
        return tuple(name for name, made in self.made.items() if made == pass_number)

    @property
    def slots(self) -> tuple[str, ...]:
        """The elements kept in scratch, by slot."""
        return tuple(name for name, kept in self.kept.items() if kept.output is None)


def kind_of(statement: Statement, row: frozenset[str]) -> str | None:
    """'element', 'reduction' or 'scalar' with respect to a row's axes; None for other
    statements."""
    names = {axis.name for axis in statement.axes}
    reduced = {axis.name for axis in statement.reduced}
    if reduced:
        return "reduction" if reduced == row and not names & row else None
    if row <= names:
        return "element"
    return None if names & row else "scalar"


def plan_passes(group: Group, row: frozenset[str]) -> Plan | None:
    """The plan of a group over the axes `row`; None when some statement does not fit."""
    kinds: dict[str, str] = {}
    ready: dict[str, int] = {}
    made: dict[str, int] = {}
    stored: dict[str, int] = {}
    outputs = {tensor.name for tensor in group.outputs}
    for statement in group.statements:
        kind = kind_of(statement, row)
        sources = own_reads(statement, kinds)
        if kind is None or (kind == "scalar" and any(kinds[s] == "element" for s in sources)):
            return None
        time = max((ready[source] for source in sources), default=0)
        name = statement.target
        kinds[name] = kind
        ready[name] = time + 1 if kind == "reduction" else time
        if kind == "reduction":
            made[name] = time
        elif kind == "element" and name in outputs:
            stored[name] = time
    passes = 1 + max((*made.values(), *stored.values()), default=-1)
    kept = _keep(group, kinds, made, stored)
    return Plan(passes, kinds, made, stored, kept)


def own_reads(statement: Statement, kinds: Mapping[str, str]) -> tuple[str, ...]:
    """The tensors of the same group that a statement reads."""
    return tuple(dict.fromkeys(r.tensor for r in reads(statement.body) if r.tensor in kinds))


# ---- keeping -----------------------------------------------------------------------------------


def _keep(
    group: Group, kinds: Mapping[str, str], made: Mapping[str, int], stored: Mapping[str, int]
) -> dict[str, Kept]:
    """Choose the elements to keep, starting from the results."""
    statements = {s.target: s for s in group.statements}
    sources = {name: _elements_read(s, kinds) for name, s in statements.items()}
    costs: dict[str, float] = {}  # costs of values, including the elements they read
    for name, statement in statements.items():
        costs[name] = cost(statement.body) + sum(costs[source] for source in sources[name])
    using: dict[str, set[int]] = {name: set() for name in statements}
    for root, pass_number in (*made.items(), *stored.items()):
        using[root].add(pass_number)
    first: dict[str, int] = {}
    last_use: dict[str, int] = {}
    for name in reversed(list(statements)):  # readers come after the elements they read
        passes = using[name]
        if kinds[name] == "element" and len(passes) > 1 and costs[name] > KEEP_ABOVE:
            first[name] = min(passes)
            last_use[name] = max(passes)
            passes = {first[name]}
        for source in sources[name]:
            using[source] |= passes
    return _assign_storage(group, statements, stored, first, last_use)


def _elements_read(statement: Statement, kinds: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(s for s in own_reads(statement, kinds) if kinds[s] == "element")


def needed_elements(
    pass_number: int, statements: Mapping[str, Statement], kinds: Mapping[str, str],
    roots: Mapping[str, int], kept: Mapping[str, int],
) -> set[str]:  # fmt: skip
    """Elements that a pass needs for its reductions and outputs, computed or loaded."""
    pending = [root for root, at in roots.items() if at == pass_number]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in kept and kept[name] < pass_number:
            continue
        pending += _elements_read(statements[name], kinds)
    return seen


def _assign_storage(
    group: Group, statements: Mapping[str, Statement], stored: Mapping[str, int],
    first: Mapping[str, int], last_use: Mapping[str, int],
) -> dict[str, Kept]:  # fmt: skip
    """Keep an output in itself, one other value in the buffer of the last output, the rest in
    scratch."""
    result: dict[str, Kept] = {}
    free = max(stored, key=lambda name: stored[name], default=None)
    free = None if free in first else free
    slots = count()
    for name, pass_number in first.items():
        if name in stored:
            result[name] = Kept(pass_number, name)
        elif free and last_use[name] <= stored[free] and _alike(group, statements, name, free):
            result[name] = Kept(pass_number, free)
            free = None
        else:
            result[name] = Kept(pass_number, None, next(slots))
    return result


def _alike(group: Group, statements: Mapping[str, Statement], left: str, right: str) -> bool:
    same_type = group.type_of(left).dtype == group.type_of(right).dtype
    return same_type and statements[left].axes == statements[right].axes
