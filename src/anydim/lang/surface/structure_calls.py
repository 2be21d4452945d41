"""Checks of calls with structures: their types, and recursion on something that gets smaller.
Structures that statements assign."""

from __future__ import annotations

from anydim.base.text import article, count_of, suggestion
from anydim.lang.surface.names import Names, first_structure
from anydim.lang.surface.patterns import Bound
from anydim.lang.surface.printer import print_type_name
from anydim.lang.surface.syntax import Definition, Invoke, Name, Parameter, Term


def check_structure_call(invoke: Invoke, names: Names) -> None:
    """Raise LanguageError for a call whose structures do not fit."""
    call, types = invoke.call, names.structure_types
    callee = names.others.get(call.name)
    given = [each for each in call.arguments if _is_structure(each, names)]
    if callee is None and given:
        problem = f"'{call.name}' takes tensors, and '{_text(given[0])}' is a structure"
        raise names.error(given[0].position, problem, "call a definition that matches it")
    if callee is None or (not given and first_structure(callee, types) is None):
        return
    if names.loops or names.branches:
        where = "a loop" if names.loops else "a branch"
        problem = f"a call with structures cannot be inside {where}"
        raise names.error(call.position, problem, "call it before, and use its results inside")
    if len(call.arguments) != len(callee.parameters):
        parameters = ", ".join(each.name for each in callee.parameters)
        problem = (f"'{call.name}' takes {count_of(len(callee.parameters), 'argument')}, "
                   f"not {len(call.arguments)}")  # fmt: skip
        raise names.error(call.position, problem, f"write {call.name}({parameters})")
    meant: dict[str, Parameter] = {}
    for parameter, argument in zip(callee.parameters, call.arguments):
        _check_argument(parameter, argument, call.name, meant, names)
    lists = [each for each in given if types.is_list(names.structures[_text(each)].kind)]
    if len(lists) > 1:
        problem = f"'{_text(lists[0])}' and '{_text(lists[1])}' are both any number of structures"
        hint = "a call may have one such argument: it is called for each"
        raise names.error(lists[1].position, problem, hint)
    if call.name in names.family:
        _check_smaller(invoke, callee, names)


def _is_structure(argument: Term, names: Names) -> bool:
    return isinstance(argument, Name) and argument.name in names.structures


def _text(argument: Term) -> str:
    return argument.name if isinstance(argument, Name) else ""


def _check_argument(
    parameter: Parameter, argument: Term, callee: str, meant: dict[str, Parameter], names: Names
) -> None:
    types, name = names.structure_types, _text(argument)
    wanted = f"'{callee}' takes {article(print_type_name(parameter))} for '{parameter.name}'"
    if not types.is_structure(parameter):
        if _is_structure(argument, names):
            problem = (
                f"'{callee}' takes a tensor for '{parameter.name}', and '{name}' is a structure"
            )
            raise names.error(argument.position, problem)
        return
    if not _is_structure(argument, names):
        if name and names.role(name) == "index":
            hint = suggestion(name, names.structures) or wanted
            raise names.error(argument.position, f"there is no structure '{name}'", hint)
        what = f"'{name}' is {article(names.role(name))}" if name else "this is a number"
        raise names.error(argument.position, f"{wanted}, and {what}")
    kind = names.structures[name].kind
    if not types.fits(parameter, one(kind), meant):
        problem = f"{wanted}, and '{name}' is {article(print_type_name(one(kind)))}"
        raise names.error(argument.position, problem)


def one(kind: Parameter) -> Parameter:
    """The type of each structure of a list."""
    return Parameter(kind.name, kind.type, (), kind.position, (), kind.arguments)


def _check_smaller(invoke: Invoke, callee: Definition, names: Names) -> None:
    """Check that a recursive call gets a strict part of the caller's first structure."""
    types, call = names.structure_types, invoke.call
    own, wanted = first_structure(names.definition, types), first_structure(callee, types)
    if own is None or wanted is None:
        return  # `linking` refuses it
    argument = call.arguments[callee.parameters.index(wanted)]
    bound = names.structures[_text(argument)]
    if bound.strict and bound.root == own.name:
        return
    problem = f"recursion on something that does not get smaller: '{_text(argument)}'"
    hint = f"the first structure of the call must be a part of '{own.name}' that a pattern names"
    raise names.error(argument.position, problem, hint)


# ---- structures that statements assign ---------------------------------------------------------


def add_structure(target: str, position: int, names: Names) -> None:
    """Add a structure that a statement assigns."""
    if names.loops:
        problem = f"'{target}' is a structure, and a loop assigns tensors only"
        raise names.error(position, problem, "assign it before the loop, or after it")
    names.structures.setdefault(target, Bound(names.made[position, target], ""))


def fields_of(constructor: str, kind: Parameter, names: Names) -> tuple[Parameter, ...]:
    """The fields of a constructor of a type."""
    known = names.structure_types.constructors(kind)
    return next(each.fields for each in known if each.name == constructor)
