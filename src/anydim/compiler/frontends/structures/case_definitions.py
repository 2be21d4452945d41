"""Cases as definitions without structures, over fields, results of calls and tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from anydim.compiler.frontends.structures.item_names import names_of
from anydim.compiler.frontends.structures.records import Case, Key, tensors_of
from anydim.lang.surface.syntax import (
    Assignment,
    CallTerm,
    Definition,
    Invoke,
    Item,
    Name,
    Parameter,
    items,
    targets,
)


def definition_of(
    case: Case, known: Mapping[Key, Sequence[tuple[str, int]]], tensor: str = ""
) -> tuple[Definition, dict[str, str]]:
    """A case as a definition without structures, and the name of each argument in the case.

    `known` are the element types and ranks of the results of each callee. The arguments are the
    fields, results of calls, nodes and tensors that the case uses. The tensors that become fields
    of new nodes, or values of calls, are results, too, after those of the definition. With
    `tensor`, this is the only result, and the arguments are what it depends on.
    """
    own = case.instance.definition
    statements, names, results = case.statements, None, own.results
    if tensor:
        (statements, names), results = needed_statements(case, tensor), (tensor,)
    written = set(targets(statements))
    parameters = [each for each in _parameters(case, known) if names is None or each.name in names]
    renamed, copies = dict[str, str](), list[Assignment]()
    for result in results:
        if result in written:
            continue
        inner = renamed[result] = f"{result}.given"
        shape = next(each.shape for each in parameters if each.name == result)
        indices = tuple(Name(f"i{number}") for number in range(len(shape)))
        read = CallTerm(inner, indices) if indices else Name(inner)
        copies.append(Assignment(result, indices, "", False, read))
    exported = dict.fromkeys(name for site in case.sites for name in site.arguments)
    exported.update(dict.fromkeys(name for call in case.calls for _, name in call.passed))
    more = (n for n in exported if not tensor and n in written and n not in results)
    made = replace(
        own, results=(*results, *more), types=(), family=(), statements=(*statements, *copies),
        parameters=tuple(replace(p, name=renamed.get(p.name, p.name)) for p in parameters),
        callees=tuple(case.instance.known[name] for name in _callees(case)),
    )  # fmt: skip
    return made, {renamed.get(each.name, each.name): each.name for each in parameters}


def _parameters(case: Case, known: Mapping[Key, Sequence[tuple[str, int]]]) -> Iterator[Parameter]:
    """The arguments of a case: fields, results of calls, nodes, tensors and values."""
    for name, held in case.fields.items():
        yield replace(held.parameter, name=name)
    for call in case.calls:
        count = (Name(call.several),) if call.several else ()
        for target, (dtype, rank) in zip(call.targets, known.get(call.callee, ())):
            axes = (Name(f"{target}.{axis}") for axis in range(rank))
            yield Parameter(target, dtype, (*count, *axes))
    for name in (*(site.target for site in case.sites), *case.nodes):
        yield Parameter(name, "int64")
    own = case.instance.definition
    types = {each.name for each in own.types}
    passed = case.instance.passed
    yield from (each for each in tensors_of(own) if each not in passed)
    for each in passed:
        yield Parameter(each.name, "int64") if each.type in types else each


def needed_statements(case: Case, tensor: str) -> tuple[tuple[Item, ...], set[str]]:
    """Slices the statements of a case to those that a tensor depends on; also all their names."""
    names, kept = {tensor}, list[Item]()
    for item in reversed(case.statements):
        if names.isdisjoint(targets((item,))):
            continue
        kept.append(item)
        for inner in items((item,)):
            names.update(names_of(inner))
    return tuple(reversed(kept)), names


def _callees(case: Case) -> Iterator[str]:
    """The other definitions that a case calls."""
    found = dict.fromkeys(i.call.name for i in items(case.statements) if isinstance(i, Invoke))
    return (name for name in found if name in case.instance.known)
