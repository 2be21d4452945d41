"""Promise: a tensor that is made of itself has the type of what it is made of, as in numpy.

Every element type in every way to write a recurrence, beside the same text with declared types.
"""

import ml_dtypes  # noqa: F401  numpy knows bfloat16
import numpy as np
import pytest

from anydim.base.dtypes import DTYPES, boolean, float32, int64
from anydim.base.errors import LanguageError
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import TensorType
from anydim.lang.tree.typing import promote
from anydim.sizes import Box, Dim, as_size
from tests.unit.lang.language import check, run
from tests.unit.lang.recurrences import FLOATS, FORMS, TYPES

N = as_size("n")
PLAIN = [form for form in FORMS if not (form.second or form.logic)]


def numbers(dtype, n, seed=0):
    """Numbers of a type, large ones among them."""
    rng = np.random.default_rng(n + seed)
    if dtype in FLOATS:
        return rng.standard_normal(n).astype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, n).astype(bool)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, n, dtype, endpoint=True)


def group_of(definition, *dtypes):
    types = [
        TensorType(DTYPES[dtype], (N,) * len(parameter.shape))
        for parameter, dtype in zip(definition.parameters, dtypes)
    ]
    return instantiate(definition, types, {}, Box.of(Dim("n")))


def check_form(form, expected, *dtypes):
    """Types are as expected, and results the same as with declared types."""
    group = group_of(form.definition, *dtypes)
    declared = group_of(form.declared, *dtypes, *[expected] * len(form.dims))
    narrow = expected in ("float16", "bfloat16")  # what is hidden holds float32
    kinds = {tensor.name: str(tensor.type.dtype) for tensor in (*group.outputs, *group.temporaries)}
    for name in form.results if narrow else form.dims:
        assert kinds[name] == expected
    if narrow and set(form.results) < set(form.dims):
        return
    for n in (0, 1, 2, 7):
        arrays = [numbers(dtype, n, seed) for seed, dtype in enumerate(dtypes)]
        given = [np.ones([n] * len(dims), expected) for dims in form.dims.values()]
        found = values(form.definition, group, arrays, n)
        wanted = values(form.declared, declared, [*arrays, *given], n)
        for result, other in zip(found, wanted):
            assert result.dtype == other.dtype == np.dtype(expected)
            assert result.tobytes() == other.tobytes(), n


def values(definition, group, arrays, n):
    names = (parameter.name for parameter in definition.parameters)
    return evaluate(group, dict(zip(names, arrays)), {"n": n}).values()


def common(left, right):
    """The common type as the language has it: numpy's, but no type is wider than its operands."""
    kinds = [dtype in FLOATS for dtype in (left, right)]
    if kinds == [True, False]:
        return left
    if kinds == [False, True]:
        return right
    if {left, right} == {"float16", "bfloat16"}:
        return "float32"
    found = np.promote_types(left, right).name
    return "int64" if found == "float64" and not any(kinds) else found


@pytest.mark.sampled(most=10)
@pytest.mark.parametrize("form", PLAIN, ids=lambda form: form.name)
def test_a_recurrence_has_the_type_of_what_it_is_made_of(form):
    for dtype in TYPES:
        check_form(form, dtype, dtype)


PAIRS = [(left, right) for left in TYPES for right in TYPES if left != right]


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("form", [f for f in FORMS if f.second], ids=lambda form: form.name)
def test_recurrences_of_two_types(form):
    for left, right in PAIRS[:: 1 if form.name == "of_another_type" else 5]:
        check_form(form, common(left, right), left, right)


@pytest.mark.parametrize("form", [f for f in FORMS if f.logic], ids=lambda form: form.name)
def test_recurrences_of_bool(form):
    check_form(form, "bool", "bool")


@pytest.mark.parametrize("dtype", [*TYPES, "bool"])
def test_running_sums_are_those_of_numpy(dtype):
    """But for narrow integers, which keep their type as in `numpy.cumsum(x, dtype=x.dtype)`."""
    x = numbers(dtype, 23)
    text = "def f(T(N) x) -> (y) { for t in N { y(t) = (y(t - 1) else 0) + x(t) } }"
    result = run(text, x)
    expected = np.cumsum(x, dtype="int64" if dtype == "bool" else dtype)
    assert result.dtype == expected.dtype
    if dtype in FLOATS:
        one_by_one = np.zeros(1, dtype)
        expected = np.array([one_by_one := one_by_one + value for value in x])[:, 0]
    np.testing.assert_array_equal(result, expected)


def test_numbers_beyond_float32():
    x = np.array([2**40 + 4, 1, 0])
    check(f"def f(int64(N) x) -> (y) {{ {PLAIN[0].body} }}", np.cumsum(x), x)
    generator = "state(t) = (state(t - 1) else 42) * 6364136223846793005 + 1442695040888963407"
    expected, state = [], np.array([42], "int64")
    for _ in range(5):
        state = state * 6364136223846793005 + 1442695040888963407
        expected.append(state[0])
    text = f"def f(int64(N) x) -> (state) {{ for t in N {{ {generator} + 0 * x(t) }} }}"
    check(text, np.array(expected), np.zeros(5, "int64"))


def test_doubles_stay_doubles():
    x = np.random.default_rng(0).standard_normal(50)
    text = """def f(double(N) x; float share = 0.1) -> (y) {
      for t in N { y(t) = (1 - share) * (y(t - 1) else 0) + share * tanh(x(t)) }
    }"""
    expected, before = [], 0.0
    for value in x:
        before = (1 - 0.1) * before + 0.1 * np.tanh(value)
        expected.append(before)
    result = run(text, x)
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, expected, rtol=1e-14)


def test_an_index_that_follows_from_one_before():
    text = """def f(int64(N) nxt, int64 last) -> (path) {
      for t in N { path(t) = nxt(path(t - 1) else last) }
    }"""
    for dtype in ("int64", "int32", "uint8"):
        own = text.replace("int64", dtype)
        check(own, np.array([2, 1, 0], dtype), np.array([2, 0, 1], dtype), np.array(0, dtype))


def test_bits_of_bytes():
    x = numbers("uint8", 9)
    text = "def f(uint8(N) x) -> (y) { for t in N { y(t) = (y(t - 1) else 0) ^ x(t) } }"
    check(text, np.bitwise_xor.accumulate(x), x)


def test_distances_of_int64():
    big = 2**40
    text = """def f(int64(N) a, int64(M) b) -> (d) {
      for i in 0:N + 1 { for j in 0:M + 1 {
        if i == 0 { d(i,j) = j } else if j == 0 { d(i,j) = i } else {
          d(i,j) = min(min(d(i - 1,j) + 1, d(i,j - 1) + 1),
                       d(i - 1,j - 1) + (a(i - 1) == b(j - 1) ? 0 : 1))
        }
      } }
    }"""
    result = run(text, np.array([big + 1, big + 2, 5]), np.array([big + 1, big, 5]))
    assert result.dtype == np.int64 and result[3, 3] == 1


def test_a_literal_takes_the_type_of_the_tensor_that_it_begins():
    text = "def f(T(N) x) -> (y) { y(i) = 0 where exists x(i) y(0) = 1 "
    text += "for t in 1:N { y(t) = 2 * y(t - 1) + x(t) } }"
    for dtype in TYPES:
        assert run(text, np.ones(4, dtype)).dtype == dtype


def test_literals_alone_decide_last():
    text = "def f(int32(N) x) -> (y, w) { for t in N {"
    text += " y(t) = (w(t - 1) else 0) > 3 ? 1 : 2  w(t) = (y(t) else 0) + x(t) } }"
    assert [str(t.type.dtype) for t in group_of(parse_definition(text), "int32").outputs] == [
        "int64", "int64"
    ]  # fmt: skip


def test_a_comparison_is_no_operand_of_the_recurrence():
    text = "def f(double(N) x) -> (y) { for t in N { y(t) = x(t) > (y(t - 1) else 0) ? 1 : 2 } }"
    (y,) = group_of(parse_definition(text), "float64").outputs
    assert y.type.dtype == int64
    text = "def f(double(N) x) -> (y) { for t in N { y(t) = x(t) > (y(t - 1) else 0) } }"
    (y,) = group_of(parse_definition(text), "float64").outputs
    assert y.type.dtype == boolean


def test_sizes_and_indices_give_way_to_floats():
    text = "def f(T(N) x) -> (y) { for t in N { y(t) = (y(t - 1) else 0) + t * N + 0 * x(t) } }"
    for dtype, expected in (("int32", "int64"), ("float16", "float16"), ("float64", "float64")):
        (y,) = group_of(parse_definition(text), dtype).outputs
        assert str(y.type.dtype) == expected


@pytest.mark.parametrize("statement, dtypes, expected", [
    # what is refused for a type that is known so far says nothing of the type that is found
    ("y(t) = sqrt(y(t - 1) else N) + x(t)", ["float64"], "float64"),
    ("y(t) = exp(y(t - 1) else 1) * 0 + x(t)", ["float16"], "float16"),
    ("y(t) = float(exp(y(t - 1) else N)) > 0 ? x(t) : 0", ["int16"], None),
    # bits
    ("y(t) = as_float32(bits(y(t - 1) else 0) ^ bits(x(t)))", ["float32"], "float32"),
    ("y(t) = bits(y(t - 1) else 0) ^ x(t)", ["uint16"], "uint16"),
    ("u(t) = bits(y(t - 1) else 0) y(t) = as_float32(u(t)) + x(t)", ["float32"], "float32"),
    # literals and sizes
    ("y(t) = (y(t - 1) else 0) + 0.5 * x(t)", ["int32"], "float32"),
    ("y(t) = (y(t - 1) else 0.5) + x(t)", ["int32"], "float32"),
    ("y(t) = (y(t - 1) else 0.5) + x(t)", ["float16"], "float16"),
    ("y(t) = max(y(t - 1) else -inf, x(t))", ["float64"], "float64"),
    ("y(t) = (y(t - 1) else N) + x(t)", ["int8"], "int64"),
    ("y(t) = (y(t - 1) else true) + x(t)", ["int8"], "int8"),
    ("y(t) = y(t - 1) else 7", ["float64"], "int64"),
    ("y(t) = y(t - 1) else 7.0", ["float64"], "float32"),
    ("y(t) = (y(t - 1) else 0) // 2 + x(t) % 3", ["int16"], "int16"),
    ("y(t) = (y(t - 1) else 0) / 2 + x(t)", ["uint8"], "uint8"),
    # casts
    ("y(t) = int16((y(t - 1) else 0) + x(t))", ["int64"], "int16"),
    ("y(t) = double(y(t - 1) else 0) + x(t)", ["float32"], "float64"),
    # a name in a where, a position, a range that what is found decides
    ("y(t) = s + x(t) where s = (y(t - 1) else 0) * 2", ["float64"], "float64"),
    ("y(t) = x(y(t - 1) else 0)", ["int32"], "int32"),
    ("k(t) = (k(t - 1) else 0) + 1 y(t) = x(t) for j in 0:k(t) { y(t) = y(t) + x(j) }",
     ["int64"], "int64"),
])  # fmt: skip
def test_types_of_statements(statement, dtypes, expected):
    text = f"def f(T(N) x) -> (y) {{ for t in N {{ {statement} }} }}"
    definition = parse_definition(text)
    if expected is None:
        with pytest.raises(LanguageError, match="'exp' takes floating point, not int16"):
            group_of(definition, *dtypes)
        return
    (y,) = group_of(definition, *dtypes).outputs
    assert str(y.type.dtype) == expected


def test_promotion_does_not_depend_on_the_order():
    known = [DTYPES[name] for name in (*TYPES, "bool")]
    for a in known:
        for b in known:
            assert promote([a, b]) == promote([b, a])
            for c in known:
                assert promote([promote([a, b]), c]) == promote([a, promote([b, c])])
    assert promote([DTYPES["float16"], DTYPES["bfloat16"]]) == float32
