"""Checks of a call for each row: `h(b), c(b) = f(x(b), W)` calls f for each b."""

from __future__ import annotations

from anydim.base.text import article
from anydim.lang.surface.names import Names, first_structure
from anydim.lang.surface.syntax import CallTerm, Invoke, Name, Term


def check_row_call(invoke: Invoke, names: Names) -> None:
    """Raise LanguageError for a call whose row has no meaning."""
    call, index = invoke.call, invoke.rows
    callee = names.others.get(call.name)
    around = "a loop" if names.loops or names.whiles else "a branch" if names.branches else ""
    around = "a definition that calls itself" if names.family else around
    around = "a definition over structures" if names.structures else around
    if around:
        problem = f"a call for each row cannot be inside {around}"
        raise names.error(call.position, problem, "call it in a definition of its own")
    if callee is None or first_structure(callee, names.structure_types) is not None:
        problem = f"'{call.name}' has no form for each row"
        hint = "definitions over structures take lists of structures" if callee else ""
        hint = hint or "operators of the library take all rows at once"
        raise names.error(call.position, problem, hint)
    if not names.is_index(index):
        problem = f"'{index}' is {article(names.role(index))}, and the row of a call is an index"
        raise names.error(invoke.position, problem, "write a name that nothing has")
    if not any(is_row(each, index, names) for each in call.arguments):
        problem = f"no argument has a row '{index}'"
        raise names.error(call.position, problem, f"write x({index}) for the row of a tensor")


def is_row(argument: Term, index: str, names: Names) -> bool:
    """Whether an argument is the row of a tensor: `x(b)`."""
    if not isinstance(argument, CallTerm) or argument.name not in names.tensors:
        return False
    if argument.arguments != (Name(index),) or argument.default is not None:
        return False
    return names.tensors[argument.name] != 0
