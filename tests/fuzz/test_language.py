"""Promise: any text is a value or an error that says where; never another exception or a hang.

500 programs with mistakes, and random texts of the documented grammar. And a program
with declared element types equals the program with inferred ones (typed_texts.py).
"""

import random
import re
import signal
from contextlib import contextmanager

import numpy as np
import pytest

from anydim.base.dtypes import float32, from_numpy, int64
from anydim.base.errors import LanguageError, UserError
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.group_text import parse_group
from anydim.lang.surface.parser import parse
from anydim.lang.surface.printer import print_definition, print_group
from anydim.lang.surface.syntax import Name, Spread
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.fuzz import data_ranges, factors, typed_texts
from tests.fuzz.language_mutants import mutant
from tests.unit.lang.grammar import Grammar

MUTANTS = 500
PATIENCE = 60  # seconds; a hang takes longer than any of these texts


@contextmanager
def no_hang():
    """Fail when a text takes out of all proportion."""

    def stop(*_):
        raise TimeoutError(f"still not done after {PATIENCE} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check_printed(definitions):
    for definition in definitions.values():
        if not definition.callees and not definition.types:
            assert parse(print_definition(definition))[definition.name] == definition


@pytest.mark.sampled(most=5)
@pytest.mark.parametrize("block", range(10))
def test_programs_with_mistakes(block):
    for seed in range(block, MUTANTS, 10):
        program, text = mutant(seed)
        with no_hang():
            try:
                values(program, text)
            except UserError as error:
                assert str(error)


def values(program, text):
    """The values of all definitions of a text, for the arguments of a program, at small sizes."""
    definitions = parse(text)
    check_printed(definitions)
    for definition in definitions.values():
        types = [
            TensorType(from_numpy(np.dtype(dtype)), tuple(map(as_size, dims)))
            for dtype, dims in program.arguments
        ][: len(definition.parameters)]
        group = instantiate(definition, types, {}, Box.of(*map(Dim, program.dims)))
        assert parse_group(print_group(group)) == group
        if re.search(r"\d{4}", text):
            continue  # a loop of that many iterations is a value, in time
        for size in (0, 1, 2):
            sizes = dict.fromkeys(program.dims, size)
            names = (parameter.name for parameter in definition.parameters)
            try:
                evaluate(group, dict(zip(names, program.arrays(sizes))), sizes)
            except UserError as error:
                assert not isinstance(error, LanguageError)


def typed_failures(seeds):
    return [f"{o.failure}\n{o.text}" for o in typed_texts.run(seeds) if o.failure]


def test_a_few_programs_with_declared_types_equal_those_with_inferred_ones():
    assert not typed_failures(range(30))


@pytest.mark.slow
def test_many_programs_with_declared_types_equal_those_with_inferred_ones():
    assert not typed_failures(range(100_000, 102_000))


def test_reductions_over_ranges_that_data_gives():
    assert not [f"{o.failure}\n{o.text}" for o in data_ranges.run(range(10)) if o.failure]


def test_windows_with_factors():
    """109 and 213 once had the factor of one position at the next three."""
    seeds = [109, 213, *range(6)]
    assert not [f"{o.failure}\n{o.text}" for o in factors.run(seeds) if o.failure]


# ---- texts from the grammar ----------------------------------------------------------------------

GRAMMAR = Grammar()
WRAPPED = {
    "text": "{}",
    "block": "def f(float(N,M) x, int64(N) at, T(...s) z) -> (y) {}",
    "term": "def f(float(N,M) x, int64(N) at, T(...s) z) -> (y) {{ y(i) = x(i,0) y(i) = {} }}",
}


@pytest.mark.slow
@pytest.mark.parametrize("rule", WRAPPED)
def test_texts_of_the_grammar(rule):
    for seed in range(60):
        accept(WRAPPED[rule].format(GRAMMAR.text(rule, random.Random(seed))))


def accept(text):
    with no_hang():
        try:
            definitions = parse(text)
        except LanguageError as error:
            assert str(error).startswith("<text>")
            return
        check_printed(definitions)
        for definition in definitions.values():
            if definition.types:
                continue
            try:
                types = [argument(parameter) for parameter in definition.parameters]
                box = Box.of(Dim("n"), Dim("m"))
                group = instantiate(definition, types, {}, box)
            except LanguageError:
                continue
            assert parse_group(print_group(group)) == group


def argument(parameter):
    sizes = [as_size("n" if isinstance(t, Name) and t.name == "N" else "m")
             for t in parameter.shape if not isinstance(t, Spread)]  # fmt: skip
    return TensorType(int64 if parameter.type.startswith("int") else float32, tuple(sizes))


# ---- extremes ------------------------------------------------------------------------------------

EXTREMES = [
    "y = 0 " + "if N > 1 { " * 500 + "y = 1 " + "} " * 500,
    "y = 0 " + "".join(f"for t{n} in N {{ " for n in range(40)) + "y = 1 " + "} " * 40,
    "y = 0 " + "".join(f"for t{n} in N {{ " for n in range(8)) + "y += x(0) " + "} " * 8,
    "y = 0 " + "if N > 1 { y = 1 } else " * 300 + "{ y = 2 }",
    "y = 0 for t in 0:99999999999999999999 { y = 1 }",
    "y = 0 for t in 0:N:99999999999999999999 { y = 1 }",
    "y(i) = 0 where i in 0:9999999999999",
    "y = 0 for t in 0:2**9 { y = 1 }",
    "y = 0 " + "y = 1 " * 3000,
    "y(" + "i," * 300 + "i) = 0",
    "y(i) = x(i" + " * 1000000000" * 90 + ")",
    "y(i) = x(i // 0)",
    "y(i) = x(i % (N - N))",
    "y(i) = x(" + "i // " * 80 + "2) where i in 0:N",
    "y = 0 for t in N { y = " + " + ".join(["x(t)"] * 400) + " }",
    "z0(i) = x(i) " + " ".join(f"z{n + 1}(i) = z{n}(i) * z{n}(i)" for n in range(200)) + " y = 1",
    "y = 0 for t in " + "min(N, " * 60 + "N" + ")" * 60 + " { y = 1 }",
]


@pytest.mark.parametrize("text", EXTREMES, ids=range(len(EXTREMES)))
def test_extremes(text):
    accept(f"def f(float(N) x) -> (y) {{ {text} }}")


def test_a_tower_of_calls_is_an_error():
    text = "def f0(float(N) x) -> (y) { y(i) = 2 * x(i) }\n"
    for n in range(40):
        text += f"def f{n + 1}(float(N) x) -> (y) {{ z = f{n}(x) y = f{n}(z) }}\n"
    with no_hang(), pytest.raises(LanguageError, match="calls nested more than"):
        parse(text)
    lower = "\n".join(text.splitlines()[:20])
    with no_hang(), pytest.raises(LanguageError, match="exceeds 2000 statements"):
        top = list(parse(lower).values())[-1]
        instantiate(top, [TensorType(float32, (as_size("n"),))], {}, Box.of(Dim("n")))


def test_many_ways_down_to_one_definition():
    text = "def f0(float(N) x) -> (y) { y(i) = 2 * x(i) }\n"
    text += "def g0(float(N) x) -> (y) { y = f0(x) }\n"
    for n in range(1, 30):
        for name in "fg":
            head = f"def {name}{n}(float(N) x) -> (y)"
            text += f"{head} {{ a = f{n - 1}(x) b = g{n - 1}(x) y(i) = a(i) + b(i) }}\n"
    with no_hang():
        definitions = parse(text)
        assert len({*definitions.values()}) == 60
        with pytest.raises(LanguageError, match="exceeds 2000 statements"):
            types = [TensorType(float32, (as_size("n"),))]
            instantiate(definitions["g29"], types, {}, Box.of(Dim("n")))
