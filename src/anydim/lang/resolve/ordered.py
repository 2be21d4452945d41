"""Lowering of definitions whose statements need an order to a group with steps.

`shaping.py` infers the shapes and element types of all tensors; then one walk over the text makes
the steps: loops, branches, whole statements and partial writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from anydim.base.errors import UserError
from anydim.base.records import dataclass
from anydim.lang.resolve import assignment_steps
from anydim.lang.resolve.binding import Binding
from anydim.lang.resolve.calls import Calls, Instantiate
from anydim.lang.resolve.extents import Work
from anydim.lang.resolve.ranges import is_known
from anydim.lang.resolve.recurrence import reversed_loop
from anydim.lang.resolve.roles import Role, accumulates, roles_of
from anydim.lang.resolve.scope import LoopAround, Scope, in_text
from anydim.lang.resolve.shaping import shapes_of
from anydim.lang.resolve.straight import straighten
from anydim.lang.resolve.walker import Walker
from anydim.lang.resolve.witness import early_read
from anydim.lang.resolve.written import assume_guards, first_unwritten
from anydim.lang.surface.syntax import Assignment, Invoke, Item, parts
from anydim.lang.tree import Axis, Group, Index, OrderedStep, Read, Statement, Tensor, TensorType
from anydim.lang.tree.affine import reads
from anydim.lang.tree.renaming import rename_steps
from anydim.lang.tree.stepping import all_steps, expressions_of, written_tensors
from anydim.lang.tree.typing import OPEN, identity


def order_definition(
    binding: Binding, types: tuple[TensorType, ...], instantiate: Instantiate,
    made: dict[Any, Group | UserError],
) -> Group:  # fmt: skip
    """The group of a bound definition that needs an order; LanguageError for an invalid one.

    `instantiate` makes the groups of callees, which `made` caches.
    """
    definition = binding.definition
    roles = roles_of(definition, binding)
    _check_definers(binding, roles)
    scope = Scope(binding, binding.box, taken=set(binding.box.names))
    calls = Calls(instantiate, {*binding.tensors, *roles}, made)
    tensors = shapes_of(definition.statements, scope, roles, calls)
    maker = Maker(roles, tensors, calls)
    steps = maker.block(definition.statements, scope)
    _check_sizes(maker, binding)
    copies = {p.name: calls.fresh(p.name) for p in definition.parameters if p.name in roles}
    steps = (*_copy_written_parameters(copies, binding), *maker.rename_copies(steps, copies))
    results = [copies.get(name, name) for name in definition.results]
    inputs = tuple(Tensor(p.name, kind) for p, kind in zip(definition.parameters, types))
    kinds = dict(maker.tensors)
    kinds.update((new, kinds[old]) for old, new in copies.items())
    outside = {tensor.name for tensor in inputs} | set(results)
    group = Group(
        inputs=inputs,
        outputs=tuple(Tensor(name, kinds[name]) for name in results),
        statements=(),
        temporaries=tuple(Tensor(n, kind) for n, kind in kinds.items() if n not in outside),
        guards=tuple(binding.guards),
        steps=steps,
    )
    _check_written(group, maker, binding)
    known = tuple(tensor for tensor in group.temporaries if tensor.type.dtype != OPEN)
    group = replace(group, steps=(*_empty(group), *group.steps), temporaries=known)
    return straighten(group, binding.box, calls.fresh)


def _empty(group: Group) -> Iterator[OrderedStep]:
    """Yield statements for empty tensors that are results or read, and that no step writes since
    the loops that would write them never run."""
    used = {read.tensor for _, expr in expressions_of(group.steps) for read in reads(expr)}
    made = written_tensors(group.steps)
    for tensor in (*group.outputs, *group.temporaries):
        if tensor.name not in made and (tensor in group.outputs or tensor.name in used):
            shape = tensor.type.shape
            axes = tuple(Axis(f"{tensor.name}.{axis}", size) for axis, size in enumerate(shape))
            yield Statement(tensor.name, axes, identity("add", tensor.type.dtype))


def _check_written(group: Group, maker: Maker, binding: Binding) -> None:
    """Raise LanguageError where an element may be read, or returned, before it is written."""
    box = assume_guards(binding.box, group.guards)
    types = {t.name: t.type for t in (*group.inputs, *group.outputs, *group.temporaries)}
    given = {tensor.name for tensor in group.inputs}
    results = [tensor.name for tensor in group.outputs]
    found = first_unwritten(group.steps, types, given, results, box)
    if found is None:
        return
    for _, source in maker.sources.values():
        meant = source.recurrence if isinstance(source, Work) else None
        if isinstance(source, Work) and meant is not None:
            raise source.recurrence_error(meant)
    early = early_read(group, box)
    step, read, name = found.step, found.read, found.tensor
    in_loop = early is not None and not early.sizes.keys() <= set(binding.box.names)
    if early is not None:
        early = replace(early, sizes=in_text(early.sizes, maker.loops(early.step)))
        step, read, name = early.step, early.read, early.tensor
    position = maker.where(step, read, name)
    shown_name = maker.original.get(name, name)
    if early is None:
        what = "read" if step is not None else "returned"
        problem = f"'{shown_name}' cannot be proved to be fully written before it is {what}"
    elif step is not None and early.later:
        problem = f"the iteration order contradicts this read: {early.text}"
    else:
        sizes = ", ".join(map(str, types[name].shape))
        problem = f"{early.text}; '{shown_name}' has the sizes ({sizes})" if sizes else early.text
    hint = f"define all of it first, as in {shown_name}(...) = 0"
    if early is not None and early.later and step is not None and in_loop:
        around = _around(binding.definition.statements, position)
        other = reversed_loop(around, shown_name)
        other = f", as in {other}" if other else ""
        hint = f"change the order of the iterations{other}, or {hint}"
    raise binding.error(position, problem, hint)


def _around(block: Sequence[Item], position: int) -> list[Item]:
    """The items of a text around a position, outer before inner."""
    inside = [item for item in block if item.position <= position]
    if not inside:
        return []
    found = filter(None, (_around(part, position) for part in parts(inside[-1])))
    return [inside[-1], *max(found, key=lambda items: items[-1].position, default=[])]


def _check_definers(binding: Binding, roles: dict[str, Role]) -> None:
    for name, role in roles.items():
        if not role.parameter and all(map(accumulates, role.writers)):
            raise binding.error(
                role.writers[0].position, f"'{name}' is accumulated into before it is defined",
                "start from the operator's identity, as in '+=!', or assign it first",
            )  # fmt: skip


def _check_sizes(maker: Maker, binding: Binding) -> None:
    """Raise LanguageError for a size that cannot be inferred, as in loops that never run."""
    for name, role in maker.roles.items():
        for axis, size in enumerate(maker.tensors[name].shape if name in maker.tensors else ()):
            if not is_known(size):
                raise binding.error(
                    role.writers[0].position, f"the size of '{name}' in dimension {axis} cannot"
                    " be inferred from any read", "add the range of the index: where i in 0:...",
                )  # fmt: skip


@dataclass
class Maker(Walker):
    """Makes the steps, once the types of all tensors are known."""

    calls: Calls
    sources: dict[int, tuple[OrderedStep, Work | Invoke]] = field(
        default_factory=dict
    )  # by id of step
    original: dict[str, str] = field(default_factory=dict)  # copy -> parameter

    def assignment(self, item: Assignment, scope: Scope) -> list[OrderedStep]:
        role = self.roles[item.target]
        work = assignment_steps.begin(item, scope, self.tensors, item is role.definer)
        assignment_steps.finish(work, role.constrains(item))
        kind = self.tensors[item.target]
        first = item.position in role.first
        steps = assignment_steps.steps_of(work, kind.dtype, self._copy_name, first)
        for axis, size in enumerate(kind.shape):
            if not is_known(size):
                problem = f"the size of dimension {axis} of '{item.target}' cannot be inferred"
                hint = f"define all of it first: {item.target}(i, ...) = 0 where i in 0:..."
                raise work.error(item.position, problem, hint)
        return self._from(work, steps)

    def postpone(self, item: Item, sizes: frozenset[str]) -> None:
        """Do nothing: an unknown size is reported by the statements that write its tensor."""

    def _copy_name(self, target: str) -> str:
        name = self.calls.fresh(target)
        self.tensors[name] = self.tensors[target]
        return name

    def invoke(self, item: Invoke, scope: Scope) -> list[OrderedStep]:
        return self._from(item, self.calls.steps(item, scope, self))

    def _from(self, source: Work | Invoke, steps: list[OrderedStep]) -> list[OrderedStep]:
        for step in all_steps(steps):
            self.sources[id(step)] = step, source
        return steps

    def rename_copies(
        self, steps: Sequence[OrderedStep], copies: Mapping[str, str]
    ) -> tuple[OrderedStep, ...]:
        """Replace the parameters that are written by their copies."""
        new = rename_steps(steps, copies)
        for before, after in zip(all_steps(steps), all_steps(new)):
            if id(before) in self.sources:
                self.sources[id(after)] = after, self.sources[id(before)][1]
        self.original = {copy: name for name, copy in copies.items()}
        return new

    def loops(self, step: OrderedStep | None) -> tuple[LoopAround, ...]:
        """The loops around an assignment."""
        _, source = self.sources.get(id(step), (None, None))
        scope = source.scope if isinstance(source, Work) else None
        return () if scope is None else scope.loops

    def where(self, step: OrderedStep | None, read: Read | None, name: str) -> int:
        """The position in the text of a read in a step, or of a writer of a tensor."""
        name = self.original.get(name, name)
        _, source = self.sources.get(id(step), (None, None))
        if source is None:
            return self.roles[name].writers[0].position if name in self.roles else 0
        if isinstance(source, Invoke):
            return source.position
        if read is None:
            return source.assignment.position
        positions = source.expander.positions
        same = [
            at for expr, at in positions.items() if isinstance(expr, Read) and expr.tensor == name
        ]
        return positions.get(read, same[0] if same else source.assignment.position)


def _copy_written_parameters(copies: Mapping[str, str], binding: Binding) -> list[OrderedStep]:
    """Copies of parameters that are written, since the caller's arrays stay unchanged."""
    steps: list[OrderedStep] = []
    for name, copy in copies.items():
        shape = binding.tensors[name].shape
        axes = tuple(Axis(f"{name}.{axis}", size) for axis, size in enumerate(shape))
        steps.append(Statement(copy, axes, Read(name, tuple(Index(axis.name) for axis in axes))))
    return steps
