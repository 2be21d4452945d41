"""Promises of structures: any text is a value or an error, and cases are complete exactly when an
enumeration of structures says so."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from itertools import islice, product
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.base.errors import InputError, LanguageError, UserError
from anydim.lang.surface.parser import parse, parse_types
from anydim.lang.surface.printer import print_definition, print_type
from anydim.lang.surface.syntax import TYPE_NAMES, Definition, Name, StructureType
from tests.fuzz.language_mutants import mutated
from tests.interpreter.kinds import NotCovered
from tests.interpreter.run import Result, run
from tests.unit.compiler.frontends.test_made_structures import TEXT as MADE
from tests.unit.lang.language import assert_same
from tests.unit.lang.test_language_docs import PROGRAMS as DOCUMENTED
from tests.unit.lang.test_structure_syntax import TEXT

TEXTS = [
    TEXT,
    MADE,
    *(text for text, error in DOCUMENTED if text.startswith("type ") and not error),
]
MUTANTS, BLOCKS = 150, 10
Types = Mapping[str, StructureType]


def drawn(chance: random.Random, kind: str, types: Types, sizes: Mapping[str, int], deep: int = 4):
    """A structure of a type: (constructor, fields...), with numbers between -4 and 4."""
    choices = types[kind].constructors
    small = [each for each in choices if not any(part.type in types for part in each.fields)]
    constructor = chance.choice(choices if deep > 0 or not small else small)
    fields: list[Any] = []
    for part in constructor.fields:
        if part.type in types:
            count = chance.randrange(3) if deep > 0 else 0
            rows = [drawn(chance, part.type, types, sizes, deep - 1)
                    for _ in range(count if part.shape else 1)]  # fmt: skip
            fields.append(rows if part.shape else rows[0])
            continue
        shape = [sizes.get(term.name, 2) if isinstance(term, Name) else 1 for term in part.shape]
        numbers = np.array([chance.randrange(-4, 5) for _ in range(int(np.prod(shape)))], float)
        fields.append(numbers.reshape(shape).astype(TYPE_NAMES.get(part.type, "float32")))
    return (constructor.name, *fields)


def arguments(definition: Definition, chance: random.Random) -> list[Any]:
    """Arguments of a definition, all sizes 2."""
    types = {each.name: each for each in definition.types}
    found = []
    for each in definition.parameters:
        if each.type in types:
            found.append(drawn(chance, each.type, types, {}))
        else:
            shape = [getattr(term, "value", 2) for term in each.shape]
            found.append(np.ones(shape, TYPE_NAMES.get(each.type, "float32")))
    return found


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_structure_texts_with_mistakes(block: int) -> None:
    for seed in range(block, MUTANTS, BLOCKS):
        chance = random.Random(seed)
        text = mutated(chance.choice(TEXTS), chance)
        try:
            found = parse(text)
        except LanguageError as error:
            assert str(error)
            continue
        types = parse_types(text)
        printed = [*map(print_type, types.values()), *map(print_definition, found.values())]
        assert parse("\n".join(printed)) == found
        for definition in found.values():
            try:
                run(definition, arguments(definition, chance))
            except (InputError, NotCovered):
                continue


# ---- programs ------------------------------------------------------------------------------------


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_programs_of_texts_with_mistakes(block: int) -> None:
    """A text with mistakes that is valid gives the same in a program and in the interpreter."""
    types, *definitions = re.split(r"(?m)^(?=def )", MADE)
    for seed in range(block, MUTANTS, BLOCKS):
        chance = random.Random(seed)
        old = chance.choice(definitions)
        new = mutated(old, chance)
        text = types + "".join(definitions).replace(old, new)
        try:
            name = new.removeprefix("def ").partition("(")[0]
            definition = parse(text)[name]
            given = arguments(definition, chance)
            wanted = run(definition, given).values()
            found = ad.define(text)[name](*given)
        except (UserError, NotCovered, KeyError):
            continue  # the compiler takes less than the interpreter
        for result, value in zip(found if isinstance(found, tuple) else (found,), wanted):
            made = result.nested() if isinstance(result, ad.Structure) else result
            assert_same(made, value.values if isinstance(value, Result) else value, rtol=1e-4)


# ---- complete cases ------------------------------------------------------------------------------

DECLARED = """
type List<A> { nil; cons(A head, List<A> tail) }
type Tree { leaf(float x); node(Tree left, Tree right); one(Tree only) }
type Both { both(Tree t, List<Tree> l) }
"""
KINDS = ["Tree", "List<float>", "List<Tree>", "Both"]
HEADS = "\n".join(
    f"def f{number}({kind} t) -> (y) {{ y = 1 }}" for number, kind in enumerate(KINDS)
)
REACHED = {
    kind: {each.name: each for each in definition.types}
    for kind, definition in zip(KINDS, parse(DECLARED + HEADS).values())
}


def values(kind: str, types: Types, deep: int) -> Iterator[tuple[Any, ...]]:
    """Yield structures of a type up to a depth."""
    for constructor in types[kind].constructors:
        parts = [
            list(islice(values(part.type, types, deep - 1), 40)) if part.type in types else [0.0]
            for part in constructor.fields
        ] if deep else [[]] * len(constructor.fields)  # fmt: skip
        yield from ((constructor.name, *fields) for fields in product(*parts))


def a_pattern(chance: random.Random, kind: str, types: Types, deep: int) -> Any:
    """A pattern: None fits everything."""
    if kind not in types or not deep or chance.random() < 0.3:
        return None
    constructor = chance.choice(types[kind].constructors)
    return (
        constructor.name,
        *(a_pattern(chance, p.type, types, deep - 1) for p in constructor.fields),
    )


def fits(pattern: Any, value: Any) -> bool:
    if pattern is None:
        return True
    return pattern[0] == value[0] and all(map(fits, pattern[1:], value[1:]))


def shown(pattern: Any) -> str:
    if pattern is None:
        return "_"
    return f"{pattern[0]}({', '.join(map(shown, pattern[1:]))})" if pattern[1:] else pattern[0]


@pytest.mark.parametrize("seed", range(150))
def test_cases_are_complete_exactly_when_every_structure_fits_one(seed: int) -> None:
    chance = random.Random(seed)
    kind = chance.choice(KINDS)
    types = REACHED[kind]
    patterns = [a_pattern(chance, kind, types, 3) for _ in range(chance.randrange(1, 7))]
    everything = list(values(kind, types, 4))
    first = [next((n for n, p in enumerate(patterns) if fits(p, value)), None)
             for value in everything]  # fmt: skip
    unreached = [number for number in range(len(patterns)) if number not in first]
    cases = " ".join(f"{shown(pattern)} {{ y = 1 }}" for pattern in patterns)
    text = DECLARED + f"def f({kind} t) -> (y) {{ match t {{ {cases} }} }}"
    try:
        parse(text)
        problem = ""
    except LanguageError as error:
        problem = str(error).splitlines()[0]
    if "never reached" in problem:
        assert unreached
    elif "no case fits" in problem:
        assert not unreached
        assert None in first
    else:
        assert not problem
        assert not unreached
        assert None not in first
