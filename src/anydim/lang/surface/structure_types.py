"""The structure types that a text declares, their instances, and checks of the declarations.

A type is a `Parameter` without a name: its type, type arguments and shape. An instance of a type
has a canonical name, such as `List<float(D)>`, and no type parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from anydim.base.errors import LanguageError
from anydim.base.records import dataclass
from anydim.base.text import count_of, quote_list, suggestion
from anydim.lang.surface.printer import print_type_name
from anydim.lang.surface.syntax import (
    ATTRIBUTE_KINDS,
    FUNCTION_ALIASES,
    RESERVED,
    TYPE_NAMES,
    CallTerm,
    Constructor,
    Convert,
    Count,
    Dimension,
    Flat,
    Name,
    Parameter,
    Problem,
    Spread,
    StructureType,
    Term,
    error_at,
    walk,
)

MOST_INSTANCES = 100  # of types with arguments
_SHORTEST = {name: short for short, name in reversed(TYPE_NAMES.items())}
_DIMENSIONS = "such as N, 3 or N + 1"


@dataclass(frozen=True)
class Types:
    """The structure types of a text, by name."""

    declared: Mapping[str, StructureType] = field(default_factory=dict)

    def is_structure(self, kind: Parameter) -> bool:
        """Whether a type is a structure type, or any number of its structures."""
        return kind.type in self.declared

    def is_list(self, kind: Parameter) -> bool:
        """Whether a field has any number of structures."""
        return kind.type in self.declared and bool(kind.shape)

    def constructors(self, kind: Parameter) -> tuple[Constructor, ...]:
        """The constructors of an instance, with the types of its fields."""
        declared = self.declared[kind.type]
        meant = dict(zip(declared.parameters, kind.arguments))
        return tuple(
            replace(each, fields=tuple(_substitute(part, meant) for part in each.fields))
            for each in declared.constructors
        )

    def instances(self, kinds: Sequence[Parameter]) -> dict[str, Parameter]:
        """The types that some types reach through their fields, by canonical name, nearest first.

        Raises Problem if there are too many.
        """
        found: dict[str, Parameter] = {}
        waiting = [alone(kind) for kind in kinds if self.is_structure(kind)]
        for kind in waiting:
            name = print_type_name(kind)
            if name in found:
                continue
            found[name] = kind
            if len(found) > MOST_INSTANCES + len(self.declared):
                at = self.declared[kind.type].position
                problem = f"the fields of type '{kind.type}' lead to ever larger types"
                raise Problem(at, problem, "use a type in its fields as it is")
            for part in (part for each in self.constructors(kind) for part in each.fields):
                if self.is_list(part):
                    _check_list(part, kinds[0].position)
                waiting += [alone(part)] if self.is_structure(part) else []
        return found

    def field_sizes(self, kind: Parameter) -> set[str]:
        """The sizes of the tensors in a structure; a number of structures is none of them."""
        sizes: set[str] = set()
        counts: set[str] = set()
        for each in self.instances([kind]).values():
            for part in (part for made in self.constructors(each) for part in made.fields):
                found = counts if self.is_list(part) else sizes
                found.update(sizes_of(replace(part, arguments=())))
        return sizes - counts

    def reachable_types(self, kinds: Sequence[Parameter]) -> tuple[StructureType, ...]:
        """The instances that some types reach, as types without parameters."""
        return tuple(
            StructureType(
                name,
                tuple(
                    replace(each, fields=tuple(map(self.link_parameter, each.fields)))
                    for each in self.constructors(kind)
                ),
                (),
                self.declared[kind.type].position,
            )
            for name, kind in self.instances(kinds).items()
        )

    def link_parameter(self, parameter: Parameter) -> Parameter:
        """A parameter or a field with the canonical name of its type."""
        if not self.is_structure(parameter):
            return parameter
        return replace(parameter, type=print_type_name(alone(parameter)), arguments=())

    def fits(self, wanted: Parameter, given: Parameter, meant: dict[str, Parameter]) -> bool:
        """Whether a structure of one type may be passed for a parameter of another definition.

        `meant` has the element types that stand for type variables so far. Sizes are not compared.
        """
        if self.is_structure(wanted) or self.is_structure(given):
            same = wanted.type == given.type and len(wanted.shape) == len(given.shape)
            pairs = zip(wanted.arguments, given.arguments)
            return same and all(self.fits(*pair, meant) for pair in pairs)
        bound = wanted if wanted.type in TYPE_NAMES else meant.setdefault(wanted.type, given)
        open_type = given.type not in TYPE_NAMES or bound.type not in TYPE_NAMES
        same = open_type or TYPE_NAMES[bound.type] == TYPE_NAMES[given.type]
        return same and len(wanted.shape) == len(given.shape)


def alone(kind: Parameter) -> Parameter:
    """A type without name and shape, with the shortest names of element types."""
    return replace(kind, name="", shape=(), arguments=tuple(map(_shortest, kind.arguments)))


def _shortest(kind: Parameter) -> Parameter:
    short = _SHORTEST.get(TYPE_NAMES.get(kind.type, ""), kind.type)
    return replace(kind, type=short, arguments=tuple(map(_shortest, kind.arguments)))


def _substitute(kind: Parameter, meant: Mapping[str, Parameter]) -> Parameter:
    """A type with the arguments in the place of the type parameters."""
    if kind.type in meant:
        base = meant[kind.type]
        shape = (*kind.shape, *base.shape)
        return replace(kind, type=base.type, arguments=base.arguments, shape=shape)
    arguments = tuple(_substitute(inner, meant) for inner in kind.arguments)
    return replace(kind, arguments=arguments)


def sizes_of(kind: Parameter) -> Iterator[str]:
    """Yield the sizes that a type names, in its arguments too."""
    for term in kind.shape:
        yield from (inner.name for inner in walk(term) if isinstance(inner, Name))
    for argument in kind.arguments:
        yield from sizes_of(argument)


def element_types(kind: Parameter) -> Iterator[str]:
    """Yield the element types in the arguments of a structure type."""
    for argument in kind.arguments:
        yield from element_types(argument) if argument.arguments else (argument.type,)


# ---- checks ------------------------------------------------------------------------------------


def declared_types(types: Sequence[StructureType], text: str, file: str) -> Types:
    """Check the declarations of a text; raises LanguageError for one that is invalid."""
    made = Types({declared.name: declared for declared in types})
    seen: set[str] = set()
    for declared in types:
        try:
            if declared.name in seen:
                raise Problem(
                    declared.position, f"'{declared.name}' is declared twice", "rename one of them"
                )
            seen.add(declared.name)
            _check_names(declared, made)
            for constructor in declared.constructors:
                _check_constructor(constructor, declared, made)
            _check_sizes(declared, made)
        except Problem as problem:
            raise _error(declared, problem, text, file) from None
    try:
        _check_ends(types, made)
    except Problem as problem:
        raise error_at(text, file, problem.position, problem.text, problem.hint) from None
    return made


def _error(declared: StructureType, problem: Problem, text: str, file: str) -> LanguageError:
    what = f"type {declared.name}: {problem.text}"
    return error_at(text, file, problem.position, what, problem.hint)


def _check_names(declared: StructureType, types: Types) -> None:
    at, capital = declared.position, "a type and a type parameter start with a capital letter"
    for name in (declared.name, *declared.parameters):
        if name in TYPE_NAMES or name in ATTRIBUTE_KINDS:
            raise Problem(at, f"'{name}' is an element type", capital)
        if not name[0].isupper():
            raise Problem(at, f"'{name}' cannot be the name of a type", capital)
    for number, name in enumerate(declared.parameters):
        if name in types.declared:
            raise Problem(at, f"type parameter '{name}' is a structure type", "rename it")
        if name in declared.parameters[:number]:
            raise Problem(at, f"type parameter '{name}' is listed twice", "rename one of them")
    if not declared.constructors:
        hint = f"such as type {declared.name} {{ leaf(float x); node({declared.name} left) }}"
        raise Problem(at, "there is no constructor", hint)
    seen: set[str] = set()
    for constructor in declared.constructors:
        if constructor.name in seen:
            problem = f"constructor '{constructor.name}' is declared twice"
            raise Problem(constructor.position, problem, "rename one of them")
        seen.add(constructor.name)
        if constructor.name in (*RESERVED, *TYPE_NAMES, "_"):
            problem = f"'{constructor.name}' cannot be the name of a constructor"
            hint = "rename it"
            if constructor.name in TYPE_NAMES:
                hint = f"a field belongs to a constructor: node({constructor.name} x)"
            raise Problem(constructor.position, problem, hint)


def _check_constructor(
    constructor: Constructor, declared: StructureType, types: Types
) -> None:  # fmt: skip
    seen: set[str] = set()
    for part in constructor.fields:
        if part.name in seen or part.name in RESERVED or part.name == "_":
            why = "is named twice" if part.name in seen else "cannot be the name of a field"
            raise Problem(part.position, f"field '{part.name}' {why}", "rename it")
        seen.add(part.name)
        check_type(part, types, declared.parameters)
        if types.is_list(part):
            _check_list(part, part.position)


def _check_list(part: Parameter, at: int) -> None:
    if len(part.shape) == 1 and isinstance(part.shape[0], Name):
        return
    problem = f"field '{part.name}' is any number of structures, counted by one size"
    hint = f"such as {part.type}(K) {part.name}; for a fixed number write that many fields"
    raise Problem(at, problem, hint)


def check_type(kind: Parameter, types: Types, parameters: Sequence[str] | None) -> None:
    """Check a type and its arguments; raises Problem.

    `parameters` are the type parameters that it may name; None if it may name any type variable.
    """
    declared = types.declared.get(kind.type)
    count, given = 0 if declared is None else len(declared.parameters), len(kind.arguments)
    known = kind.type in TYPE_NAMES or declared is not None or kind.type in (parameters or ())
    variable = parameters is None and kind.type[0].isupper() and not given
    if not known and not variable:
        named = (*types.declared, *(parameters or ()), *TYPE_NAMES)
        hint = suggestion(kind.type, named) or f"declare it: type {kind.type} {{ ... }}"
        raise Problem(kind.position, f"there is no type '{kind.type}'", hint)
    if count != given:
        takes = count_of(count, "type argument") if count else "no type arguments"
        problem = f"type '{kind.type}' takes {takes}" + (f", not {given}" if count else "")
        hint = f"write {kind.type}"
        if declared is not None and count:
            names = declared.parameters
            hint += f"<{', '.join(names)}>, with types for {quote_list(names)}"
        raise Problem(kind.position, problem, hint)
    for term in kind.shape:
        _check_size(term)
    if kind.rows:
        raise Problem(kind.position, "a field has no ragged size", _DIMENSIONS)
    for inner in kind.arguments:
        check_type(inner, types, parameters)


def _check_size(term: Term) -> None:
    for inner in walk(term):
        call = isinstance(inner, CallTerm) and FUNCTION_ALIASES.get(inner.name, inner.name)
        other = call and call not in ("min", "max")
        if other or isinstance(inner, (Spread, Flat, Convert, Count, Dimension)):
            problem = "a dimension of a field is a size or a number"
            raise Problem(inner.position, problem, _DIMENSIONS)


def _check_sizes(declared: StructureType, types: Types) -> None:
    """Check that a size that counts structures has no other meaning in other constructors."""
    for constructor in declared.constructors:
        counts = {size for part in constructor.fields if types.is_list(part)
                  for size in sizes_of(replace(part, arguments=()))}  # fmt: skip
        for other in declared.constructors:
            for part in other.fields:
                shared = counts.intersection(sizes_of(part))
                if shared and other is not constructor and not types.is_list(part):
                    size = sorted(shared)[0]
                    raise Problem(
                        part.position,
                        f"'{size}' is a size of '{other.name}', but counts the structures of "
                        f"each '{constructor.name}'",
                        "rename one of them",
                    )


def _check_ends(declared: Sequence[StructureType], types: Types) -> None:
    """Check that some structure of each type is finite."""
    roots = []
    for each in declared:
        arguments = tuple(Parameter("", parameter) for parameter in each.parameters)
        roots.append(Parameter("", each.name, (), each.position, (), arguments))
    needs = {
        name: [
            {print_type_name(alone(part)) for part in constructor.fields
             if types.is_structure(part) and not part.shape}
            for constructor in types.constructors(kind)
        ]
        for name, kind in types.instances(roots).items()
    }  # fmt: skip
    ending: set[str] = set()
    waiting = set(needs)
    while waiting:
        found = {name for name in waiting if any(needed <= ending for needed in needs[name])}
        if not found:
            break
        ending |= found
        waiting -= found
    for root in roots:
        if print_type_name(root) in waiting:
            problem = f"type {root.type}: every constructor needs another '{root.type}'"
            hint = "no structure is finite: add a constructor without such a field"
            raise Problem(root.position, problem, hint)
