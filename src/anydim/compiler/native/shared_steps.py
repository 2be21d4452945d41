"""Equal code of several steps of a region becomes one function.

The steps of equal layers have the same code, but for slots and numbers of failures. The differences
from the code of the first step are parameters of the function.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from anydim.base.records import fields_of
from anydim.compiler.kernels import ir
from anydim.compiler.native.body import Body, parameter
from anydim.compiler.native.region_code import BLOCK

_FEWEST_NUMBERS = 24  # int64 constants of a part: shorter code is not worth a call
_FEWEST_PARTS = 3
# what may have an int64 constant that differs, and operations that may
_PLACES = frozenset((ir.Call, ir.LoadAt, ir.Return, ir.StoreAt))
_OPERATIONS = frozenset(("add", "select"))
_DEFINES = {  # records that define a name, and those that use one
    ir.Let: "name", ir.Declare: "name", ir.Stack: "name", ir.Table: "name", ir.For: "variable",
}  # fmt: skip
_USES = {ir.Var: "name", ir.Get: "name", ir.Assign: "name", ir.Address: "buffer"}
_FIELDS = {  # of what may be shared
    kind: tuple(field.name for field in fields_of(kind))
    for kind in (*_DEFINES, *_USES, *_PLACES, ir.Const, ir.Convert, ir.If, ir.Op, ir.While)
}
_LEAVES = frozenset((bool, int, ir.Type, type(None)))


class _Part:
    """The code of a step: steps `start` to `stop` of a function.

    `form` is equal for two parts of equal code but for `numbers`, int64 constants. `free` are the
    names that it uses and does not define, and kinds of code that is not shared.
    """

    def __init__(self, written: Sequence[ir.Step], start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.numbers: list[int] = []
        self.free: set[str] = set()
        self.names: dict[str, str] = {}  # that it defines
        self.form = self._form(tuple(written[start:stop]))

    def _form(self, value: Any, differs: bool = False) -> Any:
        """Return the form of a record or a tuple of them; names are numbered in order."""
        kind = type(value)
        if kind is tuple:
            return tuple([self._form(each, differs) for each in value])
        if kind is str:
            return self.names.get(value, value)
        if differs and _is_number(value):
            self.numbers.append(value.value)
            return None
        if kind not in _FIELDS:
            if kind not in _LEAVES:
                self.free.add(kind.__name__)
            return value
        if kind in _DEFINES:
            self._define(getattr(value, _DEFINES[kind]))
        elif kind in _USES:
            if getattr(value, _USES[kind]) not in self.names:
                self.free.add(getattr(value, _USES[kind]))
        elif kind is ir.Call and value.result is not None:
            self._define(value.result.name)
        differs = _may_differ(value)
        return (kind, *[self._form(getattr(value, name), differs) for name in _FIELDS[kind]])

    def _define(self, name: str) -> None:
        self.names[name] = f"{len(self.names)}"


def share_steps(
    written: Sequence[ir.Step], ends: Sequence[int], name: str
) -> tuple[tuple[ir.Function, ...], tuple[ir.Step, ...]]:
    """Return functions for equal parts of the code of function `name`, and code that calls them.

    `ends` are the ends of the parts.
    """
    every = [_Part(written, *both) for both in zip((0, *ends), (*ends, len(written)))]
    used = set().union(*(part.free for part in every))
    alike: dict[Any, list[_Part]] = defaultdict(list)
    for part in every:
        if part.free <= {"block"} and not used.intersection(part.names):
            alike[part.form if len(part.numbers) >= _FEWEST_NUMBERS else part].append(part)
    functions: list[ir.Function] = []
    replaced: dict[int, tuple[ir.Step, ...]] = {}
    for parts in alike.values():
        if len(parts) >= _FEWEST_PARTS:
            function, arguments = _function(written, parts, f"{name}_step{len(functions)}")
            functions.append(function)
            for part, given in zip(parts, arguments):
                replaced[part.start] = _call(function.name, given, part.start)
    pieces = (replaced.get(part.start, written[part.start : part.stop]) for part in every)
    return tuple(functions), tuple(chain.from_iterable(pieces))


def _call(function: str, given: Sequence[int], start: int) -> tuple[ir.Step, ...]:
    """Return a call that leaves with the number of a failure."""
    body = Body(f"part{start}_")
    failed = body.ask(function, BLOCK, *given)
    with body.when(failed.differs(0)):
        body.give(failed)
    return body.written


def _function(
    written: Sequence[ir.Step], parts: Sequence[_Part], name: str
) -> tuple[ir.Function, list[tuple[int, ...]]]:
    """Return the function of equal parts, and its arguments for each part."""
    parameters: dict[tuple[int, ...], str] = {}
    added: list[str] = []
    for numbers in zip(*(part.numbers for part in parts)):
        more = tuple(number - numbers[0] for number in numbers)
        if any(more):
            parameters.setdefault(more, f"more{len(parameters)}")
        added.append(parameters.get(more, ""))
    body = Body()
    body.take(_with_added(tuple(written[parts[0].start : parts[0].stop]), iter(added)))
    body.give(0)
    function = body.function(name, ("block", *parameters.values()))
    return function, [*zip(*parameters)] or [()] * len(parts)


def _with_added(value: Any, added: Iterator[str], differs: bool = False) -> Any:
    """Return a record or a tuple of them with parameters added to its numbers, in order."""
    kind = type(value)
    if kind is tuple:
        return tuple([_with_added(each, added, differs) for each in value])
    if differs and _is_number(value):
        name = next(added)
        return parameter(name) + value if name else value
    if kind not in _FIELDS:
        return value
    differs = _may_differ(value)
    return kind(
        **{name: _with_added(getattr(value, name), added, differs) for name in _FIELDS[kind]}
    )


def _may_differ(value: Any) -> bool:
    """Whether int64 constants that a record holds are numbers of a form."""
    kind = type(value)
    return kind in _PLACES or (kind is ir.Op and value.function in _OPERATIONS)


def _is_number(value: Any) -> bool:
    return type(value) is ir.Const and value.type == ir.INDEX
