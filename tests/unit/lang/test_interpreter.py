"""Promise: the interpreter computes what the language says, with nothing of the compiler in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest

import anydim.compiler.ops
import tests.interpreter as package
from anydim.base.dtypes import float64
from anydim.base.errors import InputError, UserError
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse, parse_definition
from anydim.lang.surface.syntax import TYPE_NAMES, Definition, Name, Spread
from tests.interpreter.kinds import NotCovered
from tests.interpreter.run import run
from tests.unit.lang.catalogue import PROGRAMS, Program
from tests.unit.lang.language import assert_same, known
from tests.unit.lang.test_language_docs import PROGRAMS as DOCUMENTED
from tests.unit.lang.test_language_docs import example, examples

SHARED = {"base", "lang.surface.syntax"}  # the text's tree, types and errors
LIBRARY_CALL = re.compile(r"= (softmax|transpose|sort|compress)\(")
TYPES = (np.float32, np.float64, np.float16, np.int64, np.int32, np.int16, np.uint8, np.uint64)


def test_it_shares_nothing_with_the_compiler() -> None:
    for path in Path(package.__path__[0]).glob("*.py"):
        if path.name == "oracle.py":  # the interpreter as `Model.check` takes it
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("anydim."):
                name = node.module.removeprefix("anydim.")
                assert any(name == s or name.startswith(f"{s}.") for s in SHARED), (path, name)


@pytest.mark.parametrize("text", [t for t, e in DOCUMENTED if not e or "is outside" in e])
def test_the_examples_of_the_manual(text: str) -> None:
    for line in examples(text):
        definition, arrays, attributes, wanted = example(parse(text), line)
        if LIBRARY_CALL.search(text):
            with pytest.raises(NotCovered, match="is an operator of the library"):
                run(definition, arrays, attributes)
            continue
        if not wanted:
            with pytest.raises(InputError, match="is outside"):
                run(definition, arrays, attributes)
            continue
        results = run(definition, arrays, attributes).values()
        for result, value in zip(results, wanted):
            assert_same(getattr(result, "values", result), value)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_programs_of_users_beside_numpy(program: Program) -> None:
    definition = list(parse(program.text).values())[-1]
    for sizes in program.sizes(4):
        arrays = program.arrays(sizes)
        results = run(definition, arrays).values()
        for result, value in zip(results, program.expected(arrays)):
            assert result.values.shape == np.shape(value)
            np.testing.assert_allclose(result.values, value, rtol=program.tolerance, atol=1e-4)


RECURRENCES = {
    "else first": "def f(T(N) x) -> (y) { for t in N { y(t) = (y(t - 1) else 0) + x(t) } }",
    "branch": """def f(T(N) x) -> (y) {
      for t in N { if t == 0 { y(t) = x(t) } else { y(t) = y(t - 1) + x(t) } }
    }""",
    "mutual": """def f(T(N) x) -> (y) {
      for t in N {
        z(t) = y(t - 1) else 0
        y(t) = z(t) + x(t)
      }
    }""",
}


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("text", RECURRENCES.values(), ids=RECURRENCES)
def test_a_recurrence_has_the_type_of_what_is_assigned(text: str, dtype: type) -> None:
    x = np.array([3, 1, 100, 2, 50, 7] * 9, dtype)
    result = run(parse_definition(text), [x])["y"]
    assert result.kind == np.dtype(dtype).name
    wide = x.astype(float) if x.dtype.kind == "f" else x
    np.testing.assert_array_equal(result.values, np.cumsum(wide, dtype=wide.dtype))


def test_a_recurrence_of_large_integers_loses_nothing() -> None:
    x = np.array([2**40 + 4, 1, 0])
    result = run(parse_definition(RECURRENCES["else first"]), [x])["y"]
    assert result.values.tolist() == [2**40 + 4, 2**40 + 5, 2**40 + 5]


def test_a_type_that_nothing_decides_is_not_guessed() -> None:
    text = "def f(float(N) x) -> (y) { for t in N { y(t) = y(t - 1) else 0 where exists x(t) } }"
    with pytest.raises(NotCovered, match="cannot be inferred"):
        run(parse_definition(text), [np.ones(3, np.float32)])


@pytest.mark.parametrize("left, right, wanted", [
    ("int32", "uint8", "int32"), ("int8", "uint8", "int16"), ("int64", "uint64", "int64"),
    ("float16", "bfloat16", "float32"), ("float16", "int64", "float16"),
    ("bool", "uint8", "uint8"), ("float32", "float64", "float64"), ("uint32", "int32", "int64"),
])  # fmt: skip
def test_operands_take_their_common_type(left: str, right: str, wanted: str) -> None:
    import ml_dtypes  # noqa: F401  so that numpy knows bfloat16 by name

    text = f"def f({left}(N) a, {right}(N) b) -> (y) {{ y(i) = min(a(i), b(i)) }}"
    result = run(parse_definition(text), [np.ones(3, left), np.ones(3, right)])["y"]
    assert result.kind == wanted


def test_integers_wrap_at_their_width() -> None:
    text = (
        "def f(uint8(N) a, int32(N) b) -> (s, p) {\n s(i) = a(i) - uint8(5)\n p(i) = b(i) * b(i)\n}"
    )
    results = run(parse_definition(text), [np.array([3], "u1"), np.array([50_000], "i4")])
    assert results["s"].values.tolist() == [254]
    assert results["p"].values.tolist() == [-1_794_967_296]


LIBRARY = {
    f"{path.stem}: {name}": definition
    for path in sorted(Path(anydim.compiler.ops.__path__[0]).glob("*.tc"))
    for name, definition in parse(path.read_text("utf-8"), str(path)).items()
}


@pytest.mark.parametrize("definition", LIBRARY.values(), ids=LIBRARY)
@pytest.mark.parametrize("seed", range(3))
def test_operators_of_the_library_beside_the_evaluator(definition: Definition, seed: int) -> None:
    """Types, shapes and values, for random types, ranks and sizes that the operator takes."""
    chance = np.random.default_rng(seed)
    attributes, arrays = arguments_of(definition, chance, seed)
    try:
        group = instantiate(definition, [known(array) for array in arrays], attributes)
        tensors = {p.name: array for p, array in zip(definition.parameters, arrays)}
        wanted = evaluate(group, tensors, {}, float64)
    except UserError:
        return
    found = run(definition, arrays, attributes)
    for tensor, name in zip(group.outputs, definition.results):
        assert found[name].kind == tensor.type.dtype.name
        assert found[name].values.shape == wanted[tensor.name].shape
        values, expected = (
            np.asarray(each, np.float64) for each in (found[name].values, wanted[tensor.name])
        )
        np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)


def arguments_of(
    definition: Definition, chance: np.random.Generator, seed: int
) -> tuple[dict[str, object], list[np.ndarray]]:
    """Attributes and arrays for a definition; what an expression of sizes is, only chance meets."""
    plain = {"int": 2, "size": 2, "float": 0.5, "bool": True, "type": "float64"}
    attributes: dict[str, object] = {
        a.name: plain[a.kind] for a in definition.attributes if a.default is None
    }
    spreads = {t.name for p in definition.parameters for t in p.shape if isinstance(t, Spread)}
    extents = {name: chance.integers(0, 4, chance.integers(0, 3)).tolist() for name in spreads}
    shared = any(sum(isinstance(t, Spread) for t in p.shape) > 1 for p in definition.parameters)
    if shared:
        attributes |= {f"...{name}": len(sizes) for name, sizes in extents.items()}
    sizes: dict[str, int] = {}
    kinds: dict[str, str] = {}
    arrays = []
    for parameter in definition.parameters:
        shape: list[int] = []
        for term in parameter.shape:
            if isinstance(term, Spread):
                shape += extents[term.name]
            elif isinstance(term, Name):
                shape.append(sizes.setdefault(term.name, int(chance.integers(0, 6))))
            else:
                shape.append(int(getattr(term, "value", 4)))
        drawn = str(chance.choice(["float32", "float64", "int32", "int64"])) if seed else "float32"
        kind = TYPE_NAMES.get(parameter.type) or kinds.setdefault(parameter.type, drawn)
        arrays.append((chance.standard_normal(shape) * 3).astype(kind))
    return attributes, arrays
