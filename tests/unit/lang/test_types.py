"""Element types of expressions, and the conversions written into typed trees."""

import numpy as np
import pytest

from anydim.base.errors import LanguageError
from anydim.lang.tree import Cast, Literal
from anydim.lang.tree.affine import rewrite
from tests.unit.lang.language import group_of, random, run


def dtype(body, **tensors):
    """The element type of an expression over tensors of one dimension."""
    parameters = ", ".join(f"T{n}(N) {n}" for n in tensors)
    text = f"def f({parameters}) -> (y) {{ y(i) = {body} where i in 0:N }}"
    group = group_of(text, *(random(3, dtype=kind) for kind in tensors.values()))
    missing = []
    for statement in group.statements:
        rewrite(statement.body, lambda e: missing.append(e) if _untyped(e) else None)
    assert not missing, "every literal has a dtype"
    values = [random(3, dtype=kind) + 1 if kind != "bool" else random(3, dtype=kind)
              for kind in tensors.values()]  # fmt: skip
    result = run(text, *(v.astype(k) for v, k in zip(values, tensors.values())))
    assert result.dtype.name == group.outputs[0].type.dtype.name
    return result.dtype.name


def _untyped(expr):
    return isinstance(expr, Literal) and expr.dtype is None


@pytest.mark.parametrize("body, tensors, expected", [
    ("a(i) + 1", {"a": "int8"}, "int8"),
    ("a(i) + 1", {"a": "float16"}, "float16"),
    ("a(i) * 0.5", {"a": "float64"}, "float64"),
    ("a(i) * 0.5", {"a": "int32"}, "float32"),
    ("a(i) + b(i)", {"a": "int32", "b": "int64"}, "int64"),
    ("a(i) + b(i)", {"a": "uint8", "b": "int8"}, "int16"),
    ("a(i) + b(i)", {"a": "uint8", "b": "int32"}, "int32"),
    ("a(i) + b(i)", {"a": "int64", "b": "float32"}, "float32"),
    ("a(i) + b(i)", {"a": "float16", "b": "float32"}, "float32"),
    ("a(i) * b(i)", {"a": "bool", "b": "float64"}, "float64"),
    ("a(i) * i", {"a": "float32"}, "float32"),
    ("a(i) * N", {"a": "float64"}, "float64"),
    ("a(i) + i", {"a": "int8"}, "int64"),
    ("a(i) < 1", {"a": "float32"}, "bool"),
    ("a(i) && i > 0", {"a": "int32"}, "bool"),
    ("a(i) > 0 ? a(i) : 0", {"a": "int16"}, "int16"),
    ("a(i) ? 1 : 0", {"a": "bool"}, "int64"),
    ("a(i) ? 0.5 : 0", {"a": "bool"}, "float32"),
    ("i", {"a": "float32"}, "int64"),
    ("2", {"a": "float32"}, "int64"),
    ("2.0", {"a": "float32"}, "float32"),
    ("i * 0.5 + a(i)", {"a": "float64"}, "float64"),
    ("float(a(i))", {"a": "int64"}, "float32"),
    ("cast<double>(a(i)) + 1", {"a": "int64"}, "float64"),
    ("Ta(0.3)", {"a": "float16"}, "float16"),
    ("a(i) & 3", {"a": "uint8"}, "uint8"),
    ("a(i) << 1 | 1", {"a": "int32"}, "int32"),
    ("min(a(i), 3)", {"a": "int32"}, "int32"),
    ("exp(1) * a(i)", {"a": "float64"}, "float64"),
    ("isnan(a(i))", {"a": "float32"}, "bool"),
    ("(a(i) > 0 ? 1 : 2) * a(i)", {"a": "float64"}, "float64"),
    ("1 + (a(i) > 0 ? 1 : 2) * 0.5", {"a": "int32"}, "float32"),
    ("true", {"a": "float32"}, "bool"),
])  # fmt: skip
def test_types(body, tensors, expected):
    assert dtype(body, **tensors) == expected


@pytest.mark.parametrize("body, kind, problem", [
    ("exp(a(i))", "int32", "'exp' takes floating point, not int32"),
    ("sqrt(N)", "float32", "'sqrt' takes floating point, not int64"),
    ("a(i) + a(i)", "bool", "'add' takes numbers, not bool"),
    ("a(i) & 1", "float32", "'bit_and' takes integers, not float32"),
    ("a(i) + 300", "int8", "300 is outside int8, which holds -128 to 127"),
    ("a(i) + -1", "uint8", "-1 is outside uint8"),
    ("a(a(i))", "float32", "an index must be an integer, not float32"),
    ("int32(inf)", "float32", "inf is not a value of int32"),
])  # fmt: skip
def test_what_has_no_type(body, kind, problem):
    text = f"def f(T(N) a) -> (y) {{ y(i) = {body} where i in 0:N }}"
    with pytest.raises(LanguageError) as caught:
        group_of(text, random(3, dtype=kind))
    assert problem in str(caught.value)
    assert "<text>:1:" in str(caught.value)


def test_sums_of_bool_are_refused():
    with pytest.raises(LanguageError, match="a sum or product needs numbers, not bool"):
        group_of("def f(T(N) a) -> (y) { y +=! a(i) }", random(3, dtype="bool"))


def test_parameters_say_their_types():
    with pytest.raises(LanguageError, match="'a' is float32, but the argument is int64"):
        group_of("def f(float(N) a) -> (y) { y(i) = a(i) }", random(3, dtype="int64"))
    with pytest.raises(LanguageError, match=r"'b' is float32 \(T\), but the argument is int64"):
        group_of(
            "def f(T(N) a, T(N) b) -> (y) { y(i) = a(i) + b(i) }",
            random(3), random(3, dtype="int64"),
        )  # fmt: skip


def test_a_known_size_as_a_float_is_a_literal():
    group = group_of("def f(T(N) a) -> (y) { y(i) = a(i) / T(N) }", random(3))
    casts = []
    rewrite(group.statements[0].body, lambda e: casts.append(e) if isinstance(e, Cast) else None)
    assert not casts


def test_attributes_adapt_like_literals():
    text = "def f(T(N) a; float x = 0.5, int k = 2, bool on = true, type R = half) -> (y) {\n" \
           "  y(i) = on ? cast<R>(a(i) * x + k) : 0 }"  # fmt: skip
    a = random(3, dtype="float64")
    result = run(text, a)
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, a * 0.5 + 2, rtol=1e-3)
    assert run(text, a, x=2.0, k=1, R="float64")[0] == a[0] * 2 + 1


def test_the_error_points_at_the_operation():
    with pytest.raises(LanguageError) as caught:
        text = "def f(int32(N) a) -> (y) { y(i) = 2 * (1 - exp(a(i))) }"
        group_of(text, random(3, dtype="int32"))
    assert str(caught.value) == (
        """<text>:1:44: f: 'exp' takes floating point, not int32
    def f(int32(N) a) -> (y) { y(i) = 2 * (1 - exp(a(i))) }
                                               ^
  write exp(float(...))"""
    )
