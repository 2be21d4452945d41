"""Checks of a definition before its arguments are known: names, arities, order."""

from __future__ import annotations

from collections.abc import Mapping

from anydim.base.errors import LanguageError
from anydim.base.text import article, count_of, quote_list, suggestion
from anydim.lang.functions import FUNCTIONS
from anydim.lang.surface.hints import BEYOND, OVER_INDICES
from anydim.lang.surface.names import Names, case_without_assignment, rank_of
from anydim.lang.surface.operator_names import DATA_SIZED, LIBRARY
from anydim.lang.surface.patterns import Bound
from anydim.lang.surface.row_calls import check_row_call, is_row
from anydim.lang.surface.structure_calls import (
    add_structure,
    check_structure_call,
    fields_of,
)
from anydim.lang.surface.structure_types import Types, check_type, element_types, sizes_of
from anydim.lang.surface.syntax import (
    FUNCTION_ALIASES,
    RESERVED,
    TYPE_NAMES,
    Assignment,
    Attribute,
    CallTerm,
    Convert,
    Count,
    Definition,
    Dimension,
    Exists,
    Flat,
    Invoke,
    Item,
    LoopBlock,
    MatchBlock,
    Name,
    Number,
    Parameter,
    Problem,
    Range,
    Spread,
    Term,
    WhileBlock,
    children,
    items,
    targets,
    walk,
)
from anydim.lang.tree.composed import COMPOSED


def check(
    definition: Definition, others: Mapping[str, Definition] | None = None,
    types: Types | None = None, family: frozenset[str] = frozenset(),
    made: Mapping[tuple[int, str], Parameter] | None = None,
) -> None:  # fmt: skip
    """Raise LanguageError for a definition that is invalid for any arguments.

    `others` are the other definitions of the text, which it may call, `types` its structure types,
    `family` the definitions that it calls and that call it, and `made` the types of the structures
    that its statements assign, by position and name.
    """
    names = Names(definition, others or {}, types or Types(), family, made or {})
    _check_head(names)
    _check_block(definition.statements, names)
    written = set(targets(definition.statements))
    for result in definition.results:
        if result not in written:
            parameter = any(p.name == result for p in definition.parameters)
            hint = "it is a parameter: rename the result" if parameter else ""
            hint = hint or suggestion(result, written) or f"add a statement: {result}(...) = ..."
            raise names.error(definition.position, f"no statement assigns result '{result}'", hint)
        known = result in names.tensors or result in names.structures
        case = None if known else case_without_assignment(definition.statements, result)
        if case is not None:
            hint = f"add a statement: {result}(...) = ..., here or after the match"
            raise names.error(case.position, f"the case does not assign result '{result}'", hint)
    if len(set(definition.results)) != len(definition.results):
        raise names.error(definition.position, "a result is listed twice", "name it once")
    if not definition.results:
        raise names.error(definition.position, "there is no result", "write -> (name)")


def check_name(definition: Definition) -> None:
    """Raise LanguageError for a definition that no text can call by its name.

    The library has some: the operators `where` and `cast`.
    """
    if definition.name in RESERVED:
        problem = f"'{definition.name}' is a reserved word"
        raise definition.error(definition.position, problem, "rename the definition")


def _check_head(names: Names) -> None:
    seen: set[str] = set()
    heads: tuple[Parameter | Attribute, ...] = names.definition.parameters
    for declared in (*heads, *names.definition.attributes):
        if declared.name in seen or declared.name in RESERVED:
            why = "is named twice" if declared.name in seen else "is a reserved word"
            problem = f"parameter '{declared.name}' {why}"
            raise names.error(declared.position, problem, "rename it")
        seen.add(declared.name)
    for attribute in names.definition.attributes:
        kind = names.types if attribute.kind == "type" else names.attributes
        kind.add(attribute.name)
    for parameter in names.definition.parameters:
        if names.structure_types.is_structure(parameter) or parameter.arguments:
            _check_structure(parameter, names)
            continue
        names.tensors[parameter.name] = rank_of(parameter.shape)
        if parameter.type not in TYPE_NAMES:
            if not parameter.type[0].isupper():
                hint = suggestion(parameter.type, TYPE_NAMES)
                hint = hint or "a type variable starts with a capital letter"
                problem = f"there is no element type '{parameter.type}'"
                raise names.error(parameter.position, problem, hint)
            names.types.add(parameter.type)
        for term in parameter.shape:
            if isinstance(term, Spread):
                names.ellipses.add(term.name)
            names.sizes.update(t.name for t in walk(term) if isinstance(t, Name))
    names.sizes -= names.attributes
    for parameter in names.definition.parameters:
        if parameter.name in names.sizes:
            what = "structure" if parameter.name in names.structures else "tensor"
            raise names.error(
                parameter.position, f"'{parameter.name}' is both {article(what)} and a size",
                "rename one of them",
            )  # fmt: skip
        for term in parameter.shape:
            _check_shape(term, names)
        _check_rows(parameter, names)


def _check_structure(parameter: Parameter, names: Names) -> None:
    """Check a parameter that is a structure, and add the names of its type."""
    types = names.structure_types
    try:
        check_type(parameter, types, None)
        types.instances([parameter])
    except Problem as found:
        raise names.error(found.position, found.text, found.hint) from None
    if parameter.shape:
        problem = f"parameter '{parameter.name}' is one structure"
        hint = f"write {parameter.type} {parameter.name}; only a field is any number of structures"
        raise names.error(parameter.position, problem, hint)
    names.structures[parameter.name] = Bound(parameter, parameter.name)
    names.sizes.update(sizes_of(parameter), types.field_sizes(parameter) - names.attributes)
    names.types.update({*element_types(parameter)} - TYPE_NAMES.keys() - types.declared.keys())


def _check_rows(parameter: Parameter, names: Names) -> None:
    """Check the ragged sizes of a parameter: each has one row, the same in all parameters."""
    for size, index in parameter.rows:
        rows = [name for name in parameter.sizes_before(size) if name and name.lower() == index]
        if not rows:
            raise names.error(
                parameter.position, f"'{index}' of '{size}({index})' is no index of an axis before",
                "name the row by its size in lower case, such as float(B, T(b), D) x",
            )  # fmt: skip
        others = {
            (other, row)
            for each in names.definition.parameters for other, row in each.rows
            if other == size or row != index
        }  # fmt: skip
        if others - {(size, index)}:
            problem = "all ragged sizes of a definition belong to one size of rows"
            raise names.error(parameter.position, problem, "such as float(B, Q(b), K(b)) x")


def _check_shape(term: Term, names: Names) -> None:
    for inner in walk(term):
        nested = isinstance(inner, Spread) and inner is not term
        if nested or isinstance(inner, (Flat, Convert, Count, Dimension)):
            problem = "a dimension is a size, a number or '...name'"
            raise names.error(inner.position, problem, _DIMENSIONS)
        if isinstance(inner, CallTerm) and FUNCTION_ALIASES.get(inner.name, inner.name) not in (
            "min", "max",
        ):  # fmt: skip
            problem = f"'{inner.name}' cannot be part of a shape"
            raise names.error(inner.position, problem, _DIMENSIONS)


_DIMENSIONS = "such as N, 3, N + 1 or ...s"


# ---- statements --------------------------------------------------------------------------------


def _check_block(block: tuple[Item, ...], names: Names) -> None:
    for item in block:
        if isinstance(item, Assignment):
            _check_assignment(item, names)
        elif isinstance(item, Invoke):
            _check_invoke(item, names)
        elif isinstance(item, LoopBlock):
            _check_loop(item, names)
        elif isinstance(item, MatchBlock):
            scopes = [names.case(item, case) for case in item.cases]
            for case, inner in zip(item.cases, scopes):
                _check_block(case.body, inner)
            names.join(item, scopes)
        elif isinstance(item, WhileBlock):
            _check_while(item, names)
        else:
            _check_terms(item.condition, names)
            _no_indices(item.condition, names, "a condition")
            names.branches += 1
            _check_block(item.then, names)
            _check_block(item.otherwise, names)
            names.branches -= 1


def _check_while(loop: WhileBlock, names: Names) -> None:
    if names.loops:
        problem = "a 'while' cannot be inside a loop over a range"
        raise names.error(loop.position, problem, "write both as 'while'")
    if names.structures:
        problem = "a 'while' cannot be in a definition over structures"
        raise names.error(loop.position, problem, "loop over a range: for t in 0:N { ... }")
    _check_terms(loop.condition, names)
    _no_indices(loop.condition, names, "a condition")
    names.whiles += 1
    _check_block(loop.body, names)
    names.whiles -= 1


def _check_loop(loop: LoopBlock, names: Names) -> None:
    for end in (loop.start, loop.stop, loop.step):
        _check_terms(end, names)
        _no_indices(end, names, "the range of a loop")
    name = loop.variable
    if not names.is_index(name) or name in names.types or name in RESERVED:
        raise names.error(loop.position, f"'{name}' is already defined: use another loop variable")
    if name in targets(loop.body):
        problem = f"'{name}' is a loop variable, but a statement assigns it"
        raise names.error(loop.position, problem, "use another loop variable")
    if not names.loops:  # an iteration may read what a later statement of an earlier one wrote
        for item in items(loop.body):
            if isinstance(item, Assignment):
                names.tensors.setdefault(item.target, rank_of(item.indices))
    names.loops.append(name)
    _check_block(loop.body, names)
    names.loops.pop()


def _no_indices(term: Term, names: Names, what: str) -> None:
    for inner in walk(term):
        if isinstance(inner, Name) and names.some_cases(inner.name):
            raise names.error(
                inner.position, names.some_cases(inner.name), "assign it in each case"
            )
        if isinstance(inner, Name) and names.is_index(inner.name):
            known = (*names.tensors, *names.sizes, *names.attributes, *names.loops)
            raise names.error(
                inner.position, f"{what} has no index '{inner.name}'",
                suggestion(inner.name, known) or "it may use sizes, loop variables and scalars",
            )  # fmt: skip


def _check_assignment(statement: Assignment, names: Names) -> None:
    target = statement.target
    _check_target(target, statement.position, names)
    if (statement.position, target) in names.made:
        add_structure(target, statement.position, names)
        return
    rank = rank_of(statement.indices)
    known = names.tensors.setdefault(target, rank)
    if rank != known and None not in (rank, known):
        problem = f"'{target}' has {count_of(known or 0, 'dimension')}, but {rank} here"
        hint = f"write {names.read(target)}, or another tensor"
        raise names.error(statement.position, problem, hint)
    for given in statement.given:
        if not names.is_index(given.name):
            hint = f"it is {article(names.role(given.name))}: use another name"
            raise names.error(given.position, f"'{given.name}' cannot be defined here", hint)
    left = _left_indices(statement, names)
    for clause in statement.where:
        _check_clause(clause, names)
    _check_terms(statement.value, names)
    if not statement.combine:
        _check_no_reduction(statement, left, names)
        _check_no_unused(statement, left, names)


def _check_target(target: str, position: int, names: Names) -> None:
    taken = target in names.sizes or target in names.attributes or target in names.loops
    taken = taken or target in names.fields
    taken = taken or (target in names.structures and bool(names.structures[target].root))
    if taken or target in names.types or target in RESERVED:
        role = names.role(target)
        what = "a reserved word" if target in RESERVED else f"the name of a {role}"
        what = "a type" if target in names.types else what
        what = "a field of a structure" if target in names.fields else what
        hint = f"it is {what}: rename the tensor"
        raise names.error(position, f"'{target}' cannot be assigned", hint)


def _check_invoke(invoke: Invoke, names: Names) -> None:
    call = invoke.call
    callee = names.others.get(call.name)
    if invoke.type:
        _check_node(invoke, names)
        return
    if callee is None and call.name not in (*LIBRARY, *DATA_SIZED):
        hint = suggestion(call.name, names.others) or f"there is {quote_list(names.others)}"
        raise names.error(call.position, f"there is no definition '{call.name}'", hint)
    if call.default is not None:
        raise names.error(
            call.position, f"'else' follows a read, and '{call.name}' is not a tensor"
        )
    if callee is not None and len(invoke.targets) != len(callee.results):
        results = ", ".join(callee.results)
        raise names.error(
            invoke.position,
            f"'{call.name}' has {count_of(len(callee.results), 'result')} ({results}), "
            f"but {len(invoke.targets)} are assigned",
            f"write: {results} = {call.name}(...)",
        )
    check_structure_call(invoke, names)
    if invoke.rows:
        check_row_call(invoke, names)
    for argument in call.arguments:
        if not (invoke.rows and is_row(argument, invoke.rows, names)):
            _check_argument(argument, names, "an argument")
    for setting in call.settings:
        _check_terms(setting.value, names)
        _no_indices(setting.value, names, "an attribute")
    for target in invoke.targets:
        _check_target(target, invoke.position, names)
        if invoke.targets.count(target) > 1:
            problem = f"'{target}' is assigned twice"
            raise names.error(invoke.position, problem, "use a distinct name for each result")
        if (invoke.position, target) in names.made:
            add_structure(target, invoke.position, names)
        else:
            names.tensors.setdefault(target, None)


def _check_node(invoke: Invoke, names: Names) -> None:
    """Check the fields of a new node."""
    (target,) = invoke.targets
    _check_target(target, invoke.position, names)
    kind = names.made[invoke.position, target]
    for argument, part in zip(invoke.call.arguments, fields_of(invoke.call.name, kind, names)):
        _check_argument(argument, names, "a field")
        given = getattr(argument, "name", "")
        rank = names.tensors.get(given, 0) if isinstance(argument, Name) else 0
        if given not in names.structures and rank not in (None, len(part.shape)):
            wanted = count_of(len(part.shape), "dimension")
            what = f"'{given}' has {rank}" if rank or given in names.tensors else "this is a number"
            problem = f"field '{part.name}' of '{invoke.call.name}' has {wanted}, and {what}"
            raise names.error(argument.position, problem, "assign the field to a tensor first")
    add_structure(target, invoke.position, names)


def _check_argument(argument: Term, names: Names, what: str) -> None:
    """Check an argument of a call or a field of a new node: a name, or a number."""
    if isinstance(argument, Name) and names.role(argument.name) in ("tensor", "structure"):
        return
    _no_tensors(argument, names)
    _check_terms(argument, names)
    _no_indices(argument, names, what)


def _no_tensors(argument: Term, names: Names) -> None:
    for inner in walk(argument):
        if isinstance(inner, Name) and names.tensors.get(inner.name, 0) not in (0, None):
            raise names.error(
                inner.position, f"an argument must be a tensor name or a number, but "
                f"'{inner.name}' is part of an expression",
                f"assign the expression to a tensor first: z(...) = {names.read(inner.name)} ...",
            )  # fmt: skip


def _left_indices(statement: Assignment, names: Names) -> set[str]:
    """The indices and ellipses on the left side."""
    left: set[str] = set()
    for term in statement.indices:
        if isinstance(term, Spread):
            _check_ellipsis(term.name, term.position, names)
            left.add(f"...{term.name}")
            continue
        _check_terms(term, names)
        left.update(t.name for t in walk(term) if isinstance(t, Name) and names.is_index(t.name))
    return left


def _check_no_reduction(statement: Assignment, left: set[str], names: Names) -> None:
    for term in walk(statement.value):
        label = term.name if isinstance(term, Name) else ""
        label = f"...{term.name}" if isinstance(term, Spread) else label
        if not label or label in left:
            continue
        if isinstance(term, Name) and names.some_cases(label):
            raise names.error(term.position, names.some_cases(label), "assign it in each case")
        if isinstance(term, Spread) or names.is_index(label):
            raise names.error(
                term.position,
                f"index '{label}' is not on the left, so the statement is a reduction over it",
                "write '+=!', '*=!', 'min=!' or 'max=!' instead of '='",
            )


def _check_no_unused(statement: Assignment, left: set[str], names: Names) -> None:
    """Raise LanguageError for an index that only the `where` clauses of an assignment use."""
    for clause in statement.where:
        ends = (clause.low, clause.high) if isinstance(clause, Range) else clause.indices
        own = (Name(clause.index, clause.position),) if isinstance(clause, Range) else ()
        for term in (inner for end in (*own, *ends) for inner in walk(end)):
            label = f"...{term.name}" if isinstance(term, Spread) else getattr(term, "name", "")
            index = isinstance(term, Spread) or (isinstance(term, Name) and names.is_index(label))
            if index and label not in left:
                raise names.error(
                    term.position, f"index '{label}' is not used elsewhere in the statement",
                    f"remove '{label}' from the 'where', or add it on the left",
                )  # fmt: skip


def _check_clause(clause: Range | Exists, names: Names) -> None:
    if isinstance(clause, Range):
        if not names.is_index(clause.index):
            role = article(names.role(clause.index))
            hint = f"it is {role}; only an index of the statement has a range"
            raise names.error(clause.position, f"'{clause.index}' is not an index", hint)
        _check_terms(clause.low, names)
        _check_terms(clause.high, names)
        return
    if clause.tensor not in names.tensors and clause.tensor not in names.structures:
        raise names.error(
            clause.position, f"there is no tensor '{clause.tensor}'",
            suggestion(clause.tensor, names.tensors) or f"there is {quote_list(names.tensors)}",
        )  # fmt: skip
    call = CallTerm(clause.tensor, clause.indices, position=clause.position)
    _check_terms(call, names)


def _check_terms(term: Term, names: Names) -> None:
    """Check a term and all its subterms."""
    waiting = [term]
    while waiting:
        term = waiting.pop()
        _check_term(term, names)
        spread_ok = isinstance(term, CallTerm) and term.name in names.tensors
        for inner in children(term):
            if not isinstance(inner, Spread):
                waiting.append(inner)
            elif spread_ok:
                _check_ellipsis(inner.name, inner.position, names)
            else:
                raise names.error(inner.position, "an ellipsis is only allowed among indices")
    if isinstance(term, Spread):
        raise names.error(term.position, "an ellipsis is only allowed among indices")


def _check_term(term: Term, names: Names) -> None:
    name = getattr(term, "tensor", getattr(term, "name", ""))
    if name in names.structures:
        hint = f"match it, or pass it to a definition: y = f({name})"
        raise names.error(term.position, f"'{name}' is a structure, not a tensor", hint)
    if isinstance(term, CallTerm):
        _check_call(term, names)
    elif isinstance(term, Name):
        if names.tensors.get(term.name, 0) not in (0, None):
            hint = f"write {names.read(term.name)}"
            raise names.error(term.position, f"tensor '{term.name}' needs indices", hint)
    elif isinstance(term, (Flat, Dimension)) and term.tensor not in names.tensors:
        hint = suggestion(term.tensor, names.tensors) or f"there is {quote_list(names.tensors)}"
        raise names.error(term.position, f"there is no tensor '{term.tensor}'", hint)
    elif isinstance(term, Dimension):
        rank = names.tensors[term.tensor]
        if rank is not None and term.axis >= rank:
            problem = f"'{term.tensor}' has {count_of(rank, 'dimension')}, from 0"
            raise names.error(term.position, problem, _within(term.tensor, rank))
    elif isinstance(term, Count):
        _check_ellipsis(term.ellipsis, term.position, names)
    elif isinstance(term, Convert) and term.type not in names.types | TYPE_NAMES.keys():
        hint = suggestion(term.type, TYPE_NAMES)
        raise names.error(term.position, f"there is no element type '{term.type}'", hint)
    elif isinstance(term, Number) and isinstance(term.value, int) and term.value >= 2**64:
        raise names.error(term.position, "an integer exceeds 64 bits", BEYOND)


def _check_call(call: CallTerm, names: Names) -> None:
    if call.settings and call.name not in (*names.others, *LIBRARY, *DATA_SIZED):
        raise names.error(call.position, f"'{call.name}' has no attributes")
    count = len(call.arguments)
    if call.name in names.tensors:
        rank = names.tensors[call.name]
        if rank is not None and rank_of(call.arguments) not in (rank, None):
            raise names.error(
                call.position,
                f"tensor '{call.name}' has {count_of(rank, 'dimension')}, not {count}",
                f"write {names.read(call.name)}",
            )
        return
    if call.default is not None:
        raise names.error(
            call.position, f"'else' follows a read, and '{call.name}' is not a tensor"
        )
    function = FUNCTIONS.get(FUNCTION_ALIASES.get(call.name, call.name))
    if function is not None and function.internal:
        function = None
    is_type = call.name in TYPE_NAMES or call.name in names.types
    composed = COMPOSED.get(call.name)
    if function is None and composed is None and not is_type:
        raise _unknown(call, names)
    row = function or composed
    arity = 1 if row is None else row.arity
    if count != arity:
        problem = f"'{call.name}' takes {count_of(arity, 'argument')}, not {count}"
        hint = f"write {call.name}({', '.join('abc'[:arity])})"
        if call.name in OVER_INDICES and count == 1:
            hint = OVER_INDICES[call.name]
        if call.name in names.others:
            hint = "it is a function of the language here: rename the definition"
        raise names.error(call.position, problem, hint)


def _within(tensor: str, rank: int) -> str:
    if rank == 0:
        return f"'{tensor}' is a scalar"
    return f"write {tensor}.0" if rank == 1 else f"write {tensor}.0 to {tensor}.{rank - 1}"


def _unknown(call: CallTerm, names: Names) -> LanguageError:
    functions = (r.name for r in FUNCTIONS.values() if not (r.internal or r.operator))
    known = (*names.tensors, *names.others, *functions, *COMPOSED, *TYPE_NAMES, *LIBRARY)
    hint = OVER_INDICES.get(call.name) or suggestion(call.name, known)
    if names.some_cases(call.name):
        return names.error(call.position, names.some_cases(call.name), "assign it in each case")
    if call.name in targets(names.definition.statements):
        matched = any(isinstance(each, MatchBlock) for each in names.definition.statements)
        hint = "it is assigned only after this statement" + (", or in other cases" * matched)
    elif names.role(call.name) not in ("index", "tensor"):
        hint = f"it is {article(names.role(call.name))}, without indices"
    hint = hint or f"the tensors here are {quote_list(names.tensors)}"
    return names.error(call.position, f"there is no tensor or function '{call.name}'", hint)


def _check_ellipsis(name: str, position: int, names: Names) -> None:
    if name not in names.ellipses:
        hint = suggestion(name, names.ellipses) or f"declare it: float(...{name}) x"
        raise names.error(position, f"no parameter has '...{name}'", hint)
