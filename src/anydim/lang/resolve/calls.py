"""Calls between definitions: a callee is inlined as steps of its caller, with unique names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field
from typing import Any

from anydim.base.dtypes import DTYPES, DType
from anydim.base.errors import LanguageError, UserError
from anydim.base.records import dataclass
from anydim.base.text import count_of
from anydim.lang.resolve.binding import agree
from anydim.lang.resolve.expand import fold_decided_choices
from anydim.lang.resolve.scope import Scope, new_name
from anydim.lang.resolve.walker import Walker
from anydim.lang.surface.operator_names import LIBRARY, settings_hint
from anydim.lang.surface.operator_names import Callable as Operator
from anydim.lang.surface.syntax import (
    TYPE_NAMES,
    Definition,
    Invoke,
    Name,
    Setting,
    Term,
)
from anydim.lang.tree import (
    Axis,
    Group,
    Index,
    Literal,
    OrderedStep,
    Read,
    SizeTerm,
    Statement,
    TensorType,
)
from anydim.lang.tree.renaming import rename_steps
from anydim.lang.tree.stepping import variables_of
from anydim.lang.tree.typing import (
    TypeProblem,
    convert_expression,
    infer_types,
    is_decided,
    settle_type,
)
from anydim.sizes import Box, Size

MAX_STEPS = 2_000  # per definition, calls included
Instantiate = Callable[["Definition", tuple[TensorType, ...], Mapping[str, Any], Box], Group]


@dataclass(frozen=True)
class Argument:
    """A term of a call; `name` is the parameter's, `dtype` the type of a number (None: its own)."""

    term: Term
    name: str
    dtype: DType | None


@dataclass
class Calls:
    """Groups of callees in `made`, instantiated once per argument types, or their errors.

    `names` are the names of the caller's tensors.
    """

    instantiate: Instantiate
    names: set[str]
    made: dict[Any, Group | UserError]
    numbers: dict[str, int] = field(default_factory=dict)  # last number used per stem
    count: int = 0  # steps of all calls so far

    def fresh(self, stem: str) -> str:
        """A unique name for a new tensor."""
        number = self.numbers.get(stem, 0) + 1
        while f"{stem}.{number}" in self.names:
            number += 1
        self.numbers[stem] = number
        self.names.add(f"{stem}.{number}")
        return f"{stem}.{number}"

    def are_decided(self, item: Invoke, scope: Scope, walker: Walker) -> bool:
        """Whether the types of the arguments follow from the types known so far."""
        given = self._arguments(item, scope, walker)
        return all(_is_decided(argument, scope, walker) for argument in given)

    def result_types(self, item: Invoke, scope: Scope, walker: Walker) -> tuple[TensorType, ...]:
        """The result types of a call."""
        given = self._arguments(item, scope, walker)
        types = [_argument_type(argument, scope, walker) for argument in given]
        group = self._group(item, scope, tuple(types), walker)
        return tuple(tensor.type for tensor in group.outputs)

    def steps(self, item: Invoke, scope: Scope, walker: Walker) -> list[OrderedStep]:
        """The steps of a call; the types of their temporaries are added to `walker`."""
        steps: list[OrderedStep] = []
        arguments = []
        for given in self._arguments(item, scope, walker):
            if isinstance(given.term, Name) and given.term.name in walker.tensors:
                arguments.append(given.term.name)
                continue
            kind, body = _scalar(given, scope, walker)
            arguments.append(self.fresh(given.name))
            walker.tensors[arguments[-1]] = kind
            steps.append(Statement(arguments[-1], (), body))
        types = tuple(walker.tensors[name] for name in arguments)
        group = self._group(item, scope, types, walker)
        self._limit(item, scope, group)
        for guard in group.guards:
            if guard not in scope.binding.guards:
                scope.binding.guards.append(guard)
        names = {tensor.name: name for tensor, name in zip(group.inputs, arguments)}
        copies = []
        for tensor, target in zip(group.outputs, item.targets):
            _fit(item, scope, target, walker.tensors[target], tensor.type)
            alone = len(walker.roles[target].writers) == 1 and target not in arguments
            alone = alone and walker.tensors[target].dtype == tensor.type.dtype
            names[tensor.name] = target if alone else self.fresh(target)
            if not alone:
                copies.append(_copy_statement(names[tensor.name], target, tensor.type))
                walker.tensors[names[tensor.name]] = tensor.type
        for tensor in group.temporaries:
            names[tensor.name] = self.fresh(f"{item.call.name}.{tensor.name}")
            walker.tensors[names[tensor.name]] = tensor.type
        inner = group.steps or group.statements
        sizes = {}
        for variable in variables_of(inner):
            sizes[variable] = Size.symbol(new_name(variable, scope.taken))
        return [*steps, *rename_steps(inner, names, sizes), *copies]

    def _arguments(self, item: Invoke, scope: Scope, walker: Walker) -> list[Argument]:
        callee, given = _callee(item, scope), item.call.arguments
        if not isinstance(callee, Definition):
            named = (term.name for term in given if isinstance(term, Name))
            met = [
                settle_type(walker.tensors[name].dtype) for name in named if name in walker.tensors
            ]
            return [Argument(term, callee.name, met[-1] if met else None) for term in given]
        wanted = callee.parameters
        if len(given) != len(wanted):
            names = ", ".join(parameter.name for parameter in wanted)
            takes = f"'{callee.name}' takes {count_of(len(wanted), 'tensor')} ({names})"
            hint = f"write {callee.name}({names}) with your tensors"
            raise scope.binding.error(item.call.position, f"{takes}, not {len(given)}", hint)
        return [
            Argument(term, p.name, DTYPES[TYPE_NAMES[p.type]] if p.type in TYPE_NAMES else None)
            for term, p in zip(given, wanted)
        ]

    def _limit(self, item: Invoke, scope: Scope, group: Group) -> None:
        self.count += len(group.steps or group.statements)
        if self.count > MAX_STEPS:
            raise scope.binding.error(
                item.call.position, f"with its calls inlined this exceeds {MAX_STEPS} statements"
            )

    def _group(
        self, item: Invoke, scope: Scope, types: tuple[TensorType, ...], walker: Walker
    ) -> Group:
        callee = _callee(item, scope)
        if item.rows or (isinstance(callee, Definition) and callee.has_states):
            what = (
                "a call for each row" if item.rows else "recursion or a 'while' that data decides"
            )
            raise scope.binding.error(
                item.call.position, f"'{callee.name}' is {what}, and is called in a match, a loop, "
                "a branch or for each row", "call it before, in a definition without these",
            )  # fmt: skip
        if not isinstance(callee, Definition) and callee.routine is not None:
            problem = f"'{callee.name}' is an algorithm, not a comprehension"
            hint = "call it outside of loops, branches and matches, or in a graph"
            raise scope.binding.error(item.call.position, problem, hint)
        attributes = {s.name: _setting(s, callee, scope, walker) for s in item.call.settings}
        key = (id(callee), types, tuple(attributes.items()), scope.box)
        if key not in self.made:
            try:
                if isinstance(callee, Definition):
                    group = self.instantiate(callee, types, attributes, scope.box)
                else:
                    group = callee.instantiate(types, attributes, scope.box)
                self.made[key] = group
            except UserError as error:
                self.made[key] = error
        made = self.made[key]
        if isinstance(made, UserError):
            problem = f"in this call of '{callee.name}': {made.problem}"
            hint = made.hint
            if not isinstance(callee, Definition):
                hint = hint or settings_hint(item.call, callee)
            raise scope.binding.error(item.call.position, problem, hint) from None
        found = len(made.outputs)
        if found != len(item.targets):
            has = f"'{callee.name}' has {count_of(found, 'result')}"
            problem = f"{has}, but {len(item.targets)} are assigned"
            raise scope.binding.error(item.position, problem, "name each result")
        return made


def _callee(item: Invoke, scope: Scope) -> Definition | Operator:
    """The called definition, or the operator of the library."""
    callees = scope.binding.definition.callees
    own = (callee for callee in callees if callee.name == item.call.name)
    return next(own, None) or LIBRARY[item.call.name]


def _is_decided(given: Argument, scope: Scope, walker: Walker) -> bool:
    if isinstance(given.term, Name) and given.term.name in walker.tensors:
        return is_decided(Read(given.term.name, ()), walker.tensors)
    with suppress(TypeProblem, LanguageError):  # an error of the call
        return bool(given.dtype) or is_decided(
            walker.scalar(given.term, scope).body, walker.tensors
        )
    return True


def _argument_type(given: Argument, scope: Scope, walker: Walker) -> TensorType:
    if isinstance(given.term, Name) and given.term.name in walker.tensors:
        kind = walker.tensors[given.term.name]
        return TensorType(settle_type(kind.dtype), kind.shape)
    return _scalar(given, scope, walker)[0]


def _scalar(given: Argument, scope: Scope, walker: Walker) -> tuple[TensorType, Any]:
    """A number passed where a callee takes a scalar, and its type."""
    work = walker.scalar(given.term, scope)
    try:
        dtype = given.dtype or infer_types(work.body, walker.tensors)[1]
        return TensorType(dtype, ()), convert_expression(work.body, walker.tensors, dtype)
    except TypeProblem as problem:
        raise work.type_error(problem) from None


def _fit(item: Invoke, scope: Scope, target: str, held: TensorType, given: TensorType) -> None:
    """Check that a result of a call has the type of its target."""
    what = f"this result of '{item.call.name}'"
    if len(held.shape) != len(given.shape):
        ranks = count_of(len(held.shape), "dimension"), len(given.shape)
        problem = f"'{target}' has {ranks[0]}, but {what} has {ranks[1]}"
        raise scope.binding.error(item.position, problem, "assign it to another name")
    if given.dtype.is_float and not held.dtype.is_float:
        problem = f"'{target}' holds {held.dtype}, but {what} is {given.dtype}"
        hint = f"assign it to another name, or convert it: {held.dtype}(...)"
        raise scope.binding.error(item.position, problem, hint)
    for axis, (expected, actual) in enumerate(zip(held.shape, given.shape)):
        left, right = f"dimension {axis} of '{target}'", f"that of {what}"
        if not scope.binding.is_proved(expected, "==", actual):
            inner = (expected - actual).symbols - set(scope.outer.names)
            if inner:
                problem = f"{left} is {expected}, but {right}, {actual}, differs between iterations"
                hint = f"assign it to another name, and write a part: {target}(i, ...) = ..."
                raise scope.binding.error(item.position, problem, hint)
            agree(scope.binding, expected, actual, item.position, left, right)


def _copy_statement(source: str, target: str, kind: TensorType) -> Statement:
    axes = tuple(Axis(f"{target}.{axis}", size) for axis, size in enumerate(kind.shape))
    return Statement(target, axes, Read(source, tuple(Index(axis.name) for axis in axes)))


def _setting(setting: Setting, callee: Definition | Operator, scope: Scope, walker: Walker) -> Any:
    """The value of an attribute in a call: a constant, a size or the name of a type."""
    if isinstance(callee, Definition):
        kind = next((a.kind for a in callee.attributes if a.name == setting.name), "")
        named = kind == "type"
    else:
        named = isinstance(setting.value, Name) and setting.value.name in TYPE_NAMES
    if named and isinstance(setting.value, Name):
        known = scope.binding.dtypes.get(setting.value.name)
        return setting.value.name if known is None else known.name
    value = fold_decided_choices(walker.scalar(setting.value, scope).body)
    if isinstance(value, Literal):
        return value.value
    if isinstance(value, SizeTerm):
        return value.size if value.size.constant is None else value.size.constant
    raise scope.binding.error(
        setting.value.position, f"attribute '{setting.name}' is known only at run time",
        "attributes are constants and sizes; pass tensors and scalars as arguments",
    )  # fmt: skip
