"""Definitions whose statements need order -> a group with steps.

`shaping.py` finds the shapes and element types of all tensors; then one walk over the text makes
the steps: loops, branches, whole statements and writes of parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anydim.lang import placing
from anydim.lang.binding import Binding
from anydim.lang.calls import Calls, Instantiate
from anydim.lang.placing import is_known
from anydim.lang.renaming import renamed
from anydim.lang.roles import Role, accumulates, roles_of
from anydim.lang.scope import Scope
from anydim.lang.shaping import shapes_of
from anydim.lang.syntax import Assignment, Invoke
from anydim.lang.tree import Axis, Group, Index, Read, Statement, Step, Tensor, TensorType
from anydim.lang.walker import Walker


def ordered(binding: Binding, types: tuple[TensorType, ...], instantiate: Instantiate) -> Group:
    """The group of a bound definition that needs order; LanguageError where it makes no sense."""
    definition = binding.definition
    roles = roles_of(definition, binding)
    _check_definers(binding, roles)
    scope = Scope(binding, binding.box, taken=set(binding.box.names))
    calls = Calls(instantiate, {*binding.tensors, *roles})
    tensors = shapes_of(definition.statements, scope, roles, calls)
    maker = Maker(roles, tensors, calls)
    steps = maker.block(definition.statements, scope)
    copies = {p.name: calls.fresh(p.name) for p in definition.parameters if p.name in roles}
    steps = (*_copied(copies, binding), *renamed(steps, copies))
    results = [copies.get(name, name) for name in definition.results]
    kinds = dict(maker.tensors)
    kinds.update((new, kinds[old]) for old, new in copies.items())
    inputs = tuple(Tensor(p.name, kind) for p, kind in zip(definition.parameters, types))
    outside = {tensor.name for tensor in inputs} | set(results)
    return Group(
        inputs=inputs,
        outputs=tuple(Tensor(name, kinds[name]) for name in results),
        statements=(),
        temporaries=tuple(Tensor(n, kind) for n, kind in kinds.items() if n not in outside),
        guards=tuple(binding.guards),
        steps=steps,
    )


def _check_definers(binding: Binding, roles: dict[str, Role]) -> None:
    for name, role in roles.items():
        if not role.parameter and all(map(accumulates, role.writers)):
            raise binding.error(
                role.writers[0].position, f"nothing defines '{name}' before this adds to it",
                "start from the operator's identity, as in '+=!', or assign it first",
            )  # fmt: skip


@dataclass
class Maker(Walker):
    """Makes the steps, once the types of all tensors are known."""

    calls: Calls

    def assignment(self, item: Assignment, scope: Scope) -> list[Step]:
        role = self.roles[item.target]
        work, uneven = placing.begin(item, scope, self.tensors, item is role.definer)
        placing.finish(work, uneven, role.constrains(item))
        kind = self.tensors[item.target]
        for axis, size in enumerate(kind.shape):
            if not is_known(size):
                problem = f"the size of dimension {axis} of '{item.target}' does not follow"
                hint = f"define all of it first: {item.target}(i, ...) = 0 where i in 0:..."
                raise work.error(item.position, problem, hint)
        return placing.steps_of(work, kind.dtype, self._copy_name)

    def _copy_name(self, target: str) -> str:
        name = self.calls.fresh(target)
        self.tensors[name] = self.tensors[target]
        return name

    def invoke(self, item: Invoke, scope: Scope) -> list[Step]:
        return self.calls.steps(item, scope, self)


def _copied(copies: Mapping[str, str], binding: Binding) -> list[Step]:
    """A parameter that is written is copied first: what the caller holds stays as it is."""
    steps: list[Step] = []
    for name, copy in copies.items():
        shape = binding.tensors[name].shape
        axes = tuple(Axis(f"{name}.{axis}", size) for axis, size in enumerate(shape))
        steps.append(Statement(copy, axes, Read(name, tuple(Index(axis.name) for axis in axes))))
    return steps
