"""One call of a definition: the values of its names at the sizes of its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import zip_longest
from math import prod
from typing import Any

from anydim.base.errors import InputError
from anydim.base.records import dataclass
from anydim.lang.surface.syntax import (
    FUNCTION_ALIASES,
    TYPE_NAMES,
    Assignment,
    CallTerm,
    Definition,
    Invoke,
    Item,
    LoopBlock,
    Name,
    Number,
    Operation,
    Parameter,
    Spread,
    Term,
    parts,
    targets,
)
from tests.interpreter.kinds import Kind, NotCovered
from tests.interpreter.numbers import RULES

Shape = tuple[int, ...]
Writer = Assignment | Invoke


@dataclass
class Frame:
    """Names of a call and their values; `shapes` and `kinds` are None where not known yet.

    `spreads` has the first axis and the rank of each (parameter, ellipsis).
    """

    definition: Definition
    constants: dict[str, int | float | bool] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    ellipses: dict[str, list[int]] = field(default_factory=dict)
    spreads: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    shapes: dict[str, list[int | None]] = field(default_factory=dict)
    kinds: dict[str, Kind] = field(default_factory=dict)
    definers: dict[str, Writer | None] = field(default_factory=dict)
    firsts: set[tuple[str, int]] = field(default_factory=set)
    wider: Mapping[str, Kind] = field(default_factory=dict)  # types of tensors in other cases
    adapting: frozenset[str] = frozenset()  # tensors that literals alone give no type yet

    @property
    def parameters(self) -> set[str]:
        return {parameter.name for parameter in self.definition.parameters}

    def indices(self, spread: str) -> list[str]:
        """The indices of an ellipsis."""
        return [f"...{spread}.{number}" for number in range(len(self.ellipses[spread]))]

    def size(self, spread: str) -> int:
        """Number of elements of an ellipsis."""
        return prod(self.ellipses[spread])

    def dtype(self, name: str) -> str:
        """The element type of a type name."""
        return self.types.get(name) or TYPE_NAMES[name]


def framed(
    definition: Definition, given: Sequence[tuple[str, Shape]], attributes: Mapping[str, Any],
    sizes: Mapping[str, int] | None = None,
) -> Frame:  # fmt: skip
    """Make the frame of a call with these argument types; raise InputError for bad sizes.

    `sizes` are known without the arguments.
    """
    frame = Frame(definition, sizes=dict(sizes or {}))
    for attribute in definition.attributes:
        value = attributes.get(attribute.name, attribute.default)
        if attribute.kind == "type":
            frame.types[attribute.name] = TYPE_NAMES[str(getattr(value, "name", value))]
        elif not isinstance(value, (int, float)):
            raise NotCovered(f"attribute '{attribute.name}' is not a number")
        else:
            kinds = {"float": float, "bool": bool}
            frame.constants[attribute.name] = kinds.get(attribute.kind, int)(value)
    for parameter, (kind, shape) in zip(definition.parameters, given):
        frame.types.setdefault(parameter.type, kind)
        frame.kinds[parameter.name] = kind
        frame.shapes[parameter.name] = list(shape)
    _ranks(frame, attributes)
    for parameter in definition.parameters:
        _sizes(frame, parameter)
    for parameter in definition.parameters:
        _agreeing(frame, parameter)
    _definers(frame)
    return frame


# ---- sizes -------------------------------------------------------------------------------------


def _ranks(frame: Frame, attributes: Mapping[str, Any]) -> None:
    """Ranks of each ellipsis, per parameter and overall."""
    whole = {name[3:]: int(rank) for name, rank in attributes.items() if name[:3] == "..."}
    parameters = frame.definition.parameters
    free, own = {}, {}
    for p in parameters:
        spreads = [term.name for term in p.shape if isinstance(term, Spread)]
        free[p.name] = len(frame.shapes[p.name]) - len(p.shape) + len(spreads)
        if len(spreads) == 1:
            own[p.name, spreads[0]] = free[p.name]
            if f"...{spreads[0]}" not in attributes:
                whole[spreads[0]] = max(free[p.name], whole.get(spreads[0], 0))
    for p in parameters:
        spreads = [term.name for term in p.shape if isinstance(term, Spread)]
        if len(spreads) > 1:
            remaining = free[p.name] - sum(whole.get(name, 0) for name in spreads)
            for name in spreads:
                own[p.name, name] = whole.setdefault(name, remaining)
        axis = 0
        for term in p.shape:
            rank = own[p.name, term.name] if isinstance(term, Spread) else 1
            if isinstance(term, Spread):
                frame.spreads[p.name, term.name] = axis, rank
            axis += rank
    for name, rank in whole.items():
        rows = [
            frame.shapes[p][axis : axis + count]
            for (p, each), (axis, count) in frame.spreads.items()
            if each == name
        ]
        columns = list(zip_longest(*(row[::-1] for row in rows), fillvalue=1))
        columns += [(1,)] * (rank - len(columns))
        frame.ellipses[name] = [_broadcast(frame, name, column) for column in reversed(columns)]


def _broadcast(frame: Frame, name: str, sizes: Sequence[int | None]) -> int:
    wide = {size for size in sizes if size is not None and size != 1}
    if len(wide) > 1:
        raise InputError(f"{frame.definition.name}: '...{name}' cannot broadcast {sorted(wide)}")
    return wide.pop() if wide else 1


def _plain(frame: Frame, parameter: Parameter) -> list[tuple[Term, int]]:
    """The terms of a shape that are one axis, with its size."""
    found: list[tuple[Term, int]] = []
    axis, shape = 0, frame.shapes[parameter.name]
    for term in parameter.shape:
        if isinstance(term, Spread):
            axis += frame.spreads[parameter.name, term.name][1]
            continue
        found.append((term, shape[axis] or 0))
        axis += 1
    return found


def _sizes(frame: Frame, parameter: Parameter) -> None:
    for term, actual in _plain(frame, parameter):
        if isinstance(term, Name) and term.name not in frame.constants:
            frame.sizes.setdefault(term.name, actual)


def _agreeing(frame: Frame, parameter: Parameter) -> None:
    for term, actual in _plain(frame, parameter):
        if size_of(frame, term) != actual:
            what = f"{frame.definition.name}: '{parameter.name}'"
            raise InputError(f"{what} has a size {actual}, expected {size_of(frame, term)}")


def size_of(frame: Frame, term: Term) -> int:
    """Evaluate a term of a declared shape."""
    if isinstance(term, Number):
        return int(term.value)
    if isinstance(term, Name):
        return int(frame.constants.get(term.name, frame.sizes.get(term.name, 0)))
    if isinstance(term, (Operation, CallTerm)):
        name = term.function if isinstance(term, Operation) else term.name
        name = FUNCTION_ALIASES.get(name, name)
        if name in RULES:
            return int(SIZES[name](*(size_of(frame, part) for part in term.arguments)))
    raise NotCovered(f"{type(term).__name__} in a declared shape")


SIZES: dict[str, Any] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "neg": lambda a: -a, "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0, "min": min, "max": max,
}  # fmt: skip
"""Arithmetic on sizes, without wrapping."""


# ---- who defines a tensor ----------------------------------------------------------------------


def _definers(frame: Frame) -> None:
    """Find, for each written tensor, the statement that first defines all of it, if any."""
    definition = frame.definition
    found: dict[str, list[tuple[Writer, tuple[int, ...]]]] = {}
    variables: set[str] = set()
    _walk(definition.statements, (), found, variables)
    taken = {*frame.parameters, *found, *frame.sizes, *frame.constants, *variables}
    for name, writers in found.items():
        first, around = writers[0]
        before = all(chain[: len(around)] == around for _, chain in writers)
        whole = isinstance(first, Invoke) or (
            not accumulates(first) and _is_whole(frame, first, taken)
        )
        defines = before and whole and name not in frame.parameters
        frame.definers[name] = first if defines else None
        frame.kinds.setdefault(name, None)
    _firsts(frame, definition.statements, set(frame.parameters))


def _firsts(frame: Frame, block: Sequence[Item], known: set[str]) -> set[str]:
    """Find the statements, by target and position, whose target nothing writes before them."""
    written = set(known)
    for item in block:
        if isinstance(item, (Assignment, Invoke)):
            names = set(targets((item,)))
            frame.firsts.update((name, item.position) for name in names - written)
            written |= names
        else:
            after = [_firsts(frame, inner, written) for inner in parts(item)]
            written.update(*after)
    return written


def _walk(
    block: Sequence[Item], around: tuple[int, ...],
    found: dict[str, list[tuple[Writer, tuple[int, ...]]]], variables: set[str],
) -> None:  # fmt: skip
    chain = (*around, id(block))
    for item in block:
        if isinstance(item, (Assignment, Invoke)):
            for name in targets((item,)):
                found.setdefault(name, []).append((item, chain))
        if isinstance(item, LoopBlock):
            variables.add(item.variable)
        for inner in parts(item):
            _walk(inner, chain, found, variables)


def accumulates(item: Writer) -> bool:
    """Whether a statement combines with the previous value of its target."""
    return isinstance(item, Assignment) and bool(item.combine) and not item.initial


def _is_whole(frame: Frame, item: Assignment, taken: set[str]) -> bool:
    """Whether the left side consists of distinct plain indices."""
    names = [
        f"...{term.name}" if isinstance(term, Spread) else getattr(term, "name", "")
        for term in item.indices if isinstance(term, (Name, Spread))
    ]  # fmt: skip
    plain = len(set(names)) == len(item.indices)
    return plain and taken.isdisjoint(names)
