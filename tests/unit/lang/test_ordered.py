"""Loops, branches, writes of parts, scatter and calls: what each means, at several sizes."""

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import float32
from anydim.base.errors import DimError, InputError, LanguageError
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.lang.language import check, group_of, known, random, run

SIZES = [1, 2, 3, 8]


def head(*parameters, results="y"):
    return f"def f({', '.join(parameters)}) -> ({results})"


def call(text, *arrays, **attributes):
    """The results of the last definition of a text, with known sizes."""
    definition = list(parse(text).values())[-1]
    arrays = [np.asarray(a) for a in arrays]
    group = instantiate(definition, [known(a) for a in arrays], attributes)
    tensors = dict(zip((p.name for p in definition.parameters), arrays))
    return list(evaluate(group, tensors, {}).values())


# ---- loops ---------------------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize("n", [0, *SIZES])
@pytest.mark.parametrize("span", ["N", "0:N", "0:N:1", "N-1:-1:-1"])
def test_spellings_of_a_loop(span, n):
    text = f"{head('float(N) x')} {{ for t in {span} {{ y(t) = 2 * x(t) }} }}"
    check(text, 2 * random(n), random(n))


@pytest.mark.sampled
@pytest.mark.parametrize("n", [0, *SIZES])
@pytest.mark.parametrize("start, stop, step", [
    (0, 9, 2), (1, 9, 3), (8, -1, -2), (7, 1, -3), (3, 3, 1), (5, 2, 1), (-4, 5, 2), (4, -5, -3),
])  # fmt: skip
def test_a_loop_counts_as_pythons_range_does(start, stop, step, n):
    text = f"""{head("int64(N) x")} {{
      y(i) = x(i)
      for t in {start}:{stop}:{step} {{ y(i) = 3 * y(i) + t }}
    }}"""
    expected = np.arange(n)
    for t in range(start, stop, step):
        expected = 3 * expected + t
    check(text, expected, np.arange(n))


@pytest.mark.parametrize("n", [0, *SIZES])
@pytest.mark.parametrize("q", [0, 1, 3])
def test_what_is_added_may_read_earlier_elements_at_a_reduced_distance(q, n):
    text = f"""{head("float(N) x", "float(Q) a")} {{
      for t in N {{
        y(t) = x(t)
        y(t) += -a(k) * (y(t - k) else 0) where k in 1:Q
      }}
    }}"""
    x, a = random(n), random(q) / 4
    expected = np.zeros(n, np.float32)
    for t in range(n):
        expected[t] = x[t] - sum(a[k] * expected[t - k] for k in range(1, min(q, t + 1)))
    check(text, expected, x, a)


def test_an_iteration_that_reads_the_place_before_a_checked_one_copies_nothing():
    text = f"""{head("float(B,T) x", "int64(B) length")} {{
      y(b,t) = 0 where exists x(b,t)
      for b in B {{ for t in 0:length(b) {{ y(b,t) = (y(b,t - 1) else 0) + x(b,t) }} }}
    }}"""
    assert group_of(text, random(3, 4), np.array([1, 2, 3])).temporaries == ()


@pytest.mark.parametrize("first", [-4, -3, -2, 0, 3])
@pytest.mark.parametrize("span", ["s : -3 : -1", "-2 : s : 2"])
def test_a_loop_that_data_bounds_reaches_below_0(span, first):
    text = f"""{head("int64(N) x", "int64 s")} {{
      y(i) = 0 where exists x(i)
      for t in {span} {{ y(t + 2) = x(t + 2) + t }}
    }}"""
    expected = np.zeros(6, np.int64)
    iterations = range(first, -3, -1) if span.startswith("s") else range(-2, first, 2)
    for t in iterations:
        expected[t + 2] = 10 + t
    check(text, expected, np.full(6, 10), np.int64(first))


@pytest.mark.parametrize("distance", [1, 2, 3])
@pytest.mark.parametrize("n", [0, *SIZES])
def test_an_iteration_reads_earlier_ones_at_a_distance(distance, n):
    x = random(n)
    expected = x.copy()
    for t in range(distance, n):
        expected[t] += expected[t - distance]
    text = f"""{head("float(N) x")} {{
      for t in N {{
        if t < {distance} {{ y(t) = x(t) }} else {{ y(t) = y(t - {distance}) + x(t) }}
      }}
    }}"""
    check(text, expected, x)


def test_a_read_before_the_start_may_have_a_default():
    text = f"{head('float(N) x')} {{ for t in N {{ y(t) = (y(t - 2) else 5) + x(t) }} }}"
    x = np.ones(5, "f")
    check(text, np.array([6, 6, 7, 7, 8], "f"), x)


@pytest.mark.parametrize("n", SIZES)
def test_nested_loops_see_each_other(n):
    text = f"""{head("float(N,M) x")} {{
      for i in N {{
        for j in M {{
          y(i,j) = x(i,j) + (y(i-1,j) else 0) + (y(i,j-1) else 0) - (y(i-1,j-1) else 0)
        }}
      }}
    }}"""
    x = random(n, 4)
    check(text, x.cumsum(0).cumsum(1), x)


def test_ranges_of_indices_may_depend_on_turns():
    text = f"""{head("float(N) x")} {{
      for t in N {{ y(t) +=! x(i) where i in 0:t + 1 }}
    }}"""
    check(text, random(6).cumsum(), random(6))


def test_temporaries_are_made_anew_in_each_iteration():
    text = f"""{head("float(T,N) x")} {{
      for t in T {{
        top max=! x(t,i)
        e(i) = exp(x(t,i) - top)
        total +=! e(i)
        y(t,i) = e(i) / total
      }}
    }}"""
    x = random(4, 5)
    e = np.exp(x - x.max(1, keepdims=True))
    check(text, e / e.sum(1, keepdims=True), x)


@pytest.mark.parametrize("lengths", [[0, 0], [3, 1], [4, 4]])
def test_ragged_loops(lengths):
    text = f"""{head("float(B,T) x", "int64(B) length")} {{
      y(b,t) = -1 where exists x(b,t)
      for b in B {{ for t in 0:length(b) {{ y(b,t) = x(b,t) }} }}
    }}"""
    x = random(2, 4)
    expected = np.where(np.arange(4) < np.array(lengths)[:, None], x, -1)
    check(text, expected, x, np.array(lengths))


def test_a_ragged_loop_that_leaves_its_tensor_is_an_error_of_the_call():
    text = f"""{head("float(B,T) x", "int64(B) length")} {{
      y = 0.0
      for b in B {{ for t in 0:length(b) {{ y += x(b,t) }} }}
    }}"""
    with pytest.raises(InputError, match=r"index 4 is outside 0\.\.3 of 'x'"):
        run(text, random(2, 4), np.array([1, 5]))


@pytest.mark.parametrize("n", [-5, -2, 0, 2, 9])
@pytest.mark.parametrize("step", [1, 3])
def test_a_loop_that_data_starts_has_no_turns_below_0(n, step):
    text = f"""{head("int64(N) x", "int64 n")} {{
      y(i) = x(i)
      for t in n:N:{step} {{ y(t) = -1 }}
    }}"""
    expected = np.arange(7)
    expected[[t for t in range(n, 7, step) if t >= 0]] = -1
    check(text, expected, np.arange(7), np.int64(n))


@pytest.mark.parametrize("n", [-5, -1, 0, 3, 9])
def test_a_loop_that_data_ends_downwards(n):
    text = f"""{head("int64(N) x", "int64 n")} {{
      y(i) = x(i)
      for t in N - 1:n:-1 {{ y(t) = -1 }}
    }}"""
    expected = np.arange(7)
    expected[[t for t in range(6, n, -1) if t >= 0]] = -1
    check(text, expected, np.arange(7), np.int64(n))


@pytest.mark.parametrize("n", [0, 1, 6, 7])
def test_a_loop_with_a_step_reaches_its_last_iteration_only(n):
    text = f"""{head("float(N) x")} {{
      y(i) = x(i)
      for t in 0:N - 1:2 {{ y(t) = x(t + 1) y(t + 1) = x(t) }}
    }}"""
    expected = random(n).copy()
    for t in range(0, n - 1, 2):
        expected[[t, t + 1]] = expected[[t + 1, t]]
    check(text, expected, random(n))


def test_an_ellipsis_in_a_loop():
    text = """def f(T(N,...s) x) -> (y) {
      for t in N { y(t,...s) = x(t,...s) + (y(t-1,...s) else 0) }
    }"""
    check(text, random(4, 3).cumsum(0), random(4, 3))
    text = "def f(T(...s) a, T(...s) b) -> (y) { y(...s) = a(...s) y(...s) += 2 * b(...s) }"
    check(text, random(4, 3) + 2 * random(3), random(4, 3), random(3))


def test_the_place_of_the_greatest():
    text = f"""{head("float(N) x", results="at")} {{
      best = -inf
      at = 0
      for t in N {{ if x(t) > best {{ best = x(t) at = t }} }}
    }}"""
    check(text, random(9).argmax(), random(9))


def test_sizes_that_a_loop_needs_are_guarded():
    text = f"{head('float(N) x', 'float(M) z')} {{ for t in N {{ y(t) = x(t) + z(t) }} }}"
    check(text, 2 * random(3), random(3), random(3))
    with pytest.raises(LanguageError, match="'z' is read at 0 to 2 of dimension 0, whose size"):
        run(text, random(3), random(2))


# ---- branches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, *SIZES])
def test_branches_on_sizes(n):
    text = f"""{head("float(N) x")} {{
      if (N > 2) {{ y = x(2) }} else if N == 0 {{ y = 7 }} else {{ y = x(N-1) }}
    }}"""
    x = random(n)
    expected = np.float32(x[2] if n > 2 else 7 if n == 0 else x[-1])
    check(text, expected, x)


@pytest.mark.parametrize("n", [0, *SIZES])
def test_branches_on_turns(n):
    text = f"""{head("float(N) x")} {{
      y(i) = x(i)
      for t in N {{
        if t % 3 == 1 && t != 4 {{ y(t) = 0 }} else if t > 5 || t == 2 {{ y(t) *= 2 }}
      }}
    }}"""
    x = random(n)
    expected = [
        0 if t % 3 == 1 and t != 4 else 2 * v if t > 5 or t == 2 else v for t, v in enumerate(x)
    ]
    check(text, np.array(expected, "f"), x)


def test_branches_on_data():
    text = f"""{head("float(N) x", "bool(N) on")} {{
      y = 0.0
      for t in N {{ if on(t) {{ y += x(t) }} else {{ y -= x(t) }} }}
    }}""".replace("y -= x(t)", "y += -x(t)")
    x, on = random(5), np.array([1, 0, 0, 1, 1], bool)
    check(text, np.float32(np.where(on, x, -x).sum()), x, on)


@pytest.mark.parametrize("n", [0, *SIZES])
def test_a_branch_on_an_element_of_what_an_outer_loop_makes(n):
    body = """{
      y(i) = 0 where exists x(i)
      for t in 3 {
        going(z) = true where z in 0:1
        for u in 4 {
          if going(0) {
            y(i) += x(i)
            going(z) = u + t < 3
          }
        }
      }
    }"""
    text = f"{head('float(N) x')} {body}"
    check(text, 9 * random(n), random(n))
    assert not group_of(text, random(n)).guards  # on what was not known in between


@pytest.mark.parametrize("on", [True, False])
def test_a_branch_on_an_attribute_leaves_no_trace(on):
    text = f"""{head("float(N) x; bool on = true")} {{
      if on {{ y(i) = x(i) }} else {{ y(i) = -x(i) }}
    }}"""
    assert group_of(text, random(3), on=on).steps == ()
    check(text, random(3) if on else -random(3), random(3), on=on)


# ---- writes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator, ufunc", [
    ("+=", np.add), ("*=", np.multiply), ("min=", np.minimum), ("max=", np.maximum),
])  # fmt: skip
@pytest.mark.parametrize("n", [0, *SIZES])
def test_accumulating_into_what_is_there(operator, ufunc, n):
    a, x = random(n), random(n, 3)
    text = f"{head('float(N) a', 'float(N,K) x')} {{ y(i) = a(i) y(i) {operator} x(i,k) }}"
    check(text, ufunc(a, ufunc.reduce(x, 1)), a, x)


def test_a_parameter_that_is_written_is_not_changed_for_the_caller():
    c, x = random(3), random(3, 2)
    before = c.copy()
    (result,) = call("def f(float(N) c, float(N,K) x) -> (c) { c(i) += x(i,k) }", c, x)
    np.testing.assert_allclose(result, c + x.sum(1), rtol=1e-6)
    assert (c == before).all()


@pytest.mark.parametrize("n", [1, 2, 5])
def test_some_places_are_written_again(n):
    text = f"{head('float(N) x')} {{ y(i) = x(i) y(0) = 3 y(N-1) *= 2 }}"
    expected = random(n).copy()
    expected[0] = 3
    expected[-1] *= 2
    check(text, expected, random(n))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_size_is_what_all_statements_cover(n):
    text = f"{head('float(N) x')} {{ y(0) = x(0) y(i) = x(i) - x(i-1) where i in 1:N }}"
    check(text, np.diff(random(n), prepend=np.float32(0)), random(n))


def test_a_statement_reads_what_its_target_held_before():
    check(f"{head('float(N) x')} {{ y(i) = x(i) y(i) = y(N-1-i) }}", random(5)[::-1], random(5))
    text = f"{head('float(N) x')} {{ y(i) = x(i) y(i) += y(j) }}"
    check(text, random(5) + random(5).sum(), random(5))
    text = f"{head('float(N) x')} {{ y(i) = x(i) for t in 1:N {{ y(t) += y(j) where j in 0:t }} }}"
    expected = random(5).copy()
    for t in range(1, 5):
        expected[t] += expected[:t].sum()
    check(text, expected, random(5))


def test_a_diagonal():
    text = f"{head('float(N) x')} {{ y(i,j) = 0 where i in 0:N, j in 0:N y(i,i) = x(i) }}"
    check(text, np.diag(random(4)), random(4))


@pytest.mark.parametrize("n", [0, 1, 6])
def test_scatter(n):
    at, x = np.arange(n) * 5 % 3, random(n, 2)
    expected = np.zeros((3, 2), "f")
    np.add.at(expected, at, x)
    columns = head("int64(N) at", "float(N,D) x", "float(V,D) like")
    text = f"{columns} {{ y(at(i),j) +=! x(i,j) where exists like(at(i),j) }}"
    check(text, expected, at, x, random(3, 2))
    text = f"{columns} {{ y(v,j) = like(v,j) y(at(i),j) max= x(i,j) }}"
    largest = random(3, 2).copy()
    np.maximum.at(largest, at, x)
    check(text, largest, at, x, random(3, 2))


def test_the_last_of_places_that_meet_stays():
    text = f"{head('int64(N) at', 'float(N) x')} {{ y(i) = 0 where i in 0:3 y(at(i)) = x(i) }}"
    check(text, np.array([2, 0, 3], "f"), np.array([0, 0, 2]), np.array([1, 2, 3], "f"))


def test_a_scatter_outside_is_an_error_of_the_call():
    text = f"{head('int64(N) at')} {{ y(i) = 0 where i in 0:3 y(at(i)) += 1 }}"
    with pytest.raises(InputError, match=r"index 3 is outside 0\.\.2 of 'y'"):
        run(text, np.array([1, 3]))


def test_a_fresh_scatter_in_a_loop_keeps_other_turns():
    text = f"""{head("int64(T,N) at", "float(K) like")} {{
      for t in T {{ y(t,at(t,i)) +=! 1 where exists like(at(t,i)) }}
    }}"""
    at = np.array([[0, 2, 2], [1, 1, 1]])
    check(text, np.array([[1, 0, 2], [0, 3, 0]]), at, random(3))


def test_an_uneven_range_keeps_what_is_there():
    text = f"{head('float(N,N) x')} {{ y(i,j) = x(i,j) y(i,j) = 0 where i in 0:N, j in 0:i }}"
    check(text, np.triu(random(4, 4)), random(4, 4))
    x = random(4, 5)
    kept = np.triu(-x) + np.tril(x, -1)
    text = f"{head('float(N,M) x')} {{ y(i,j) = x(i,j) y(i,j) = -x(i,j) where j in i:M }}"
    check(text, kept, x)  # indices that cover the whole tensor
    text = "def f(float(N,M) x) -> (x) { x(i,j) = -x(i,j) where j in i:M }"
    np.testing.assert_array_equal(ad.define(text).f(x), kept)
    ends = np.array([2, 0, 5, 1])
    text = f"""{head("float(N,M) x", "int64(N) n")} {{
      y(i,j) = x(i,j)
      y(i,j) = -x(i,j) where j in 0:n(i)
    }}"""
    check(text, np.where(np.arange(5) < ends[:, None], -x, x), x, ends)


def test_an_uneven_range_that_defines_is_0_outside():
    x = random(4, 5)
    check(f"{head('float(N,M) x')} {{ y(i,j) = x(i,j) where j in i:M }}", np.triu(x), x)
    text = f"""{head("float(N,M) x")} {{
      for t in 0:2 {{
        y(i,j) = x(i,j) where j in i:M
        y(3,0) = 7
      }}
    }}"""
    expected = np.triu(x)
    expected[3, 0] = 7
    check(text, expected, x)
    text = f"""{head("float(N,M) x")} {{
      if N > 3 {{ y(i,j) = x(i,j) where j in i:M }} else {{ y(i,j) = -x(i,j) where j in i:M }}
    }}"""
    check(text, np.triu(x), x)  # branches do not follow each other


def test_types_are_common_to_all_writes():
    text = f"""{head("float(N) x", "double(N) z")} {{
      y(i) = 0 where exists x(i)
      y(i) += x(i)
      y(i) += z(i)
    }}"""
    x, z = random(3), random(3, dtype="float64")
    check(text, x + z, x, z)
    text = "def f(int32(N) c, float(N) x) -> (c) { c(i) += x(i) }"
    with pytest.raises(LanguageError, match="'c' holds int32, but this value is float32"):
        run(text, np.zeros(2, "int32"), random(2))


def test_straight_code_becomes_plain_statements():
    text = f"""{head("float(M,N) c", "float(M,K) a", "float(K,N) b")} {{
      y(m,n) = 2 * c(m,n)
      y(m,n) += a(m,k) * b(k,n)
    }}"""
    arrays = random(2, 3), random(2, 4), random(4, 3)
    group = group_of(text, *arrays)
    assert [statement.target for statement in group.statements][-1] == "y"
    assert not group.steps
    check(text, 2 * arrays[0] + arrays[1] @ arrays[2], *arrays)


# ---- calls ---------------------------------------------------------------------------------------

MOMENTS = """def moments(T(...p,N) x; float scale = 1.0) -> (mean, variance) {
  total(...p) +=! x(...p,n)
  mean(...p) = scale * total(...p) / N
  square(...p) +=! (x(...p,n) - mean(...p)) * (x(...p,n) - mean(...p))
  variance(...p) = square(...p) / N
}
"""


def test_a_call_has_several_results():
    text = (
        MOMENTS
        + """def f(float(B,N) x) -> (y) {
      m, v = moments(x)
      y(b,n) = (x(b,n) - m(b)) * rsqrt(v(b))
    }"""
    )
    x = random(3, 5)
    (result,) = call(text, x)
    expected = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    np.testing.assert_allclose(result, expected, rtol=1e-4)


def test_attributes_and_scalars_of_a_call():
    text = (
        MOMENTS
        + """
    def add(T(...s) x, T s) -> (y) { y(...s) = x(...s) + s }
    def f(float(N) x; float half = 0.5) -> (z) { m, v = moments(x; scale = half) z = add(x, 2 * m) }
    """
    )
    x = random(5)
    (result,) = call(text, x)
    np.testing.assert_allclose(result, x + x.mean(), rtol=1e-5)


def test_calls_in_loops_and_of_what_calls():
    text = """
    def step(float(N) x) -> (y) { for t in N { y(t) = (y(t-1) else 0) + x(t) } }
    def twice(float(N) x) -> (y) { y = step(x) y = step(y) }
    def f(float(N) x) -> (y) { y = twice(x) for k in 0:2 { y = step(y) } }
    """
    x = random(4)
    (result,) = call(text, x)
    for _ in range(4):
        x = x.cumsum()
    np.testing.assert_allclose(result, x, rtol=1e-4)


def test_a_call_before_its_definition():
    text = """def f(float(N) x) -> (y) { y = g(x) }
    def g(float(N) x) -> (y) { y(i) = -x(i) }
    def h(float(N) x) -> (y) { y = f(x) }"""
    (result,) = call(text, random(3))
    np.testing.assert_allclose(result, -random(3))


def test_guards_of_a_callee_hold_in_the_caller():
    text = """def g(float(N) x, float(N) z) -> (y) { y(i) = x(i) + z(i) }
    def f(float(N) x, float(M) z) -> (y) { y = g(x, z) }"""
    with pytest.raises(LanguageError, match=r"in this call of 'g': .*size N, .* is 3, but"):
        call(text, random(3), random(4))


def test_the_group_of_free_sizes_is_guarded():
    text = f"{head('float(N) x', 'float(M) z')} {{ for t in N {{ y(t) = x(t) + z(t) }} }}"
    (definition,) = parse(text).values()
    types = [TensorType(float32, (as_size(name),)) for name in ("n", "m")]
    group = instantiate(definition, types, {}, Box.of(Dim("n"), Dim("m")))
    with pytest.raises(DimError, match="'z' is read at 0 to n - 1 of dimension 0, inside"):
        evaluate(group, {"x": random(3), "z": random(2)}, {"n": 3, "m": 2})
