"""Every example of docs/language.md is run."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import anydim.compiler.ops  # noqa: F401  operators that definitions call
from anydim.base.dtypes import float32
from anydim.base.errors import InputError, LanguageError
from anydim.compiler.frontends.recursion.sections import is_algorithm
from anydim.lang.functions import FUNCTIONS
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.group_text import parse_group
from anydim.lang.surface.parser import parse
from anydim.lang.surface.printer import print_group
from anydim.lang.surface.syntax import TYPE_NAMES, items
from anydim.lang.tree import TensorType
from anydim.lang.tree.composed import COMPOSED
from anydim.sizes import Box, Dim, as_size
from tests.interpreter.decided import is_decided
from tests.interpreter.run import run
from tests.unit.lang.language import assert_same, known

TEXT = Path(__file__).parents[3].joinpath("docs/language.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.M | re.S)
PROGRAMS = [
    (text, BLOCKS[place + 1][1] if BLOCKS[place + 1 : place + 2][0][0] == "error" else "")
    for place, (kind, text) in enumerate(BLOCKS)
    if kind == "tc"
]
NAMES = {"inf": np.inf, "nan": np.nan, "__builtins__": {}}


def example(definitions, line):
    """The parts of a line `name(argument, ..., attribute=value) == result, ...`: the definition,
    its arguments and attributes, and the results."""
    call, _, expected = line.partition("==")
    name, inner = re.fullmatch(r"(\w+)\((.*)\)", call.strip()).groups()
    inner = inner.replace("...p=", "ellipsis_p=")
    arguments, attributes = eval(
        f"(lambda *a, **k: (a, k))({inner})", {**NAMES, **constructors(definitions)}
    )
    attributes = {k.replace("ellipsis_", "..."): v for k, v in attributes.items()}
    definition = definitions[name]
    arrays = [
        value if isinstance(value, tuple) else array(p.type, value)
        for p, value in zip(definition.parameters, arguments)
    ]
    return (
        definition,
        arrays,
        attributes,
        (eval(f"({expected},)", {**NAMES, **constructors(definitions)}) if expected else ()),
    )


def constructors(definitions):
    """The constructors of the structure types of some definitions, by name."""
    found = {}
    for definition in definitions.values():
        for each in (each for declared in definition.types for each in declared.constructors):
            found[each.name] = partial(made, each.name) if each.fields else made(each.name)
    return found


def made(name, *fields):
    """A structure, as the interpreter takes it."""
    return (name, *fields)


def examples(text):
    """The lines of a program that say what a call gives."""
    return re.findall(r"^#> (.*)$", text, re.M)


def run_example(definitions, line):
    """Run an example and compare."""
    definition, arrays, attributes, wanted = example(definitions, line)
    if any(is_algorithm(item) for item in items(definition.statements)):
        return  # `test_language_docs_native.py` runs it
    if definition.types or is_decided(definition):
        results = [getattr(r, "values", r) for r in run(definition, arrays, attributes).values()]
    else:
        group = instantiate(definition, [known(a) for a in arrays], attributes)
        tensors = {p.name: a for p, a in zip(definition.parameters, arrays)}
        results = list(evaluate(group, tensors, {}).values())
    assert len(results) == len(wanted)
    for result, value in zip(results, wanted):
        assert_same(result, value)


def array(kind, value):
    made = np.array(value)
    if kind in TYPE_NAMES:
        return made.astype(TYPE_NAMES[kind])
    return made.astype("float32") if made.dtype.kind == "f" else made


@pytest.mark.parametrize("text, error", PROGRAMS, ids=range(len(PROGRAMS)))
def test_programs(text, error):
    try:
        definitions = parse(text, "language.md")
        for line in examples(text):
            run_example(definitions, line)
    except (LanguageError, InputError) as caught:
        assert str(caught) == error.rstrip("\n")
    else:
        assert not error


def test_most_programs_have_examples():
    assert len(PROGRAMS) >= 15
    assert sum(text.count("#>") for text, _ in PROGRAMS) >= 20


GROUPS = [text for kind, text in BLOCKS if kind == "group"]


@pytest.mark.parametrize("name, text, shapes", [
    ("matmul", GROUPS[0], [("n", 384), (384, 100)]), ("totals", GROUPS[1], [("n", "b")]),
])  # fmt: skip
def test_the_groups_are_what_definitions_become(name, text, shapes):
    definition = parse(next(program for program, _ in PROGRAMS if f"def {name}" in program))[name]
    types = [TensorType(float32, tuple(map(as_size, shape))) for shape in shapes]
    group = instantiate(definition, types, {}, Box.of(Dim("n"), Dim("b")))
    assert print_group(group) == text.rstrip("\n")
    assert parse_group(text) == group


def test_all_functions_are_listed():
    listed = TEXT[TEXT.index("* Functions:") : TEXT.index("* Casts:")]
    written = [f for f in FUNCTIONS.values() if not f.internal]
    named = {f.name for f in written if not f.operator} | {"fabs", "fmax", "fmin"}
    named |= COMPOSED.keys()
    reinterpreting = {name for name in named if name.startswith("as_")}
    assert named - reinterpreting <= set(re.findall(r"\w+", listed))
    assert "as_TYPE" in listed
