"""Promise: definitions make structures; a program, the interpreter and plain Python agree."""

import numpy as np
import pytest

import anydim as ad
from anydim.base.errors import LanguageError
from anydim.lang.surface.parser import parse
from tests.interpreter.run import Result, run
from tests.unit.lang.language import assert_same

TEXT = """
type List<A> { nil; cons(A head, List<A> tail) }
type Tree { leaf(float(D) x); node(Tree left, Tree right) }
type Search { empty; item(float key, Search low, Search high) }
type Expr { number(float v); add(Expr a, Expr b); mul(Expr a, Expr b); neg(Expr a) }
type Json { null; scalar(float v); array(Json first, Json rest);
            object(float key, Json value, Json rest) }
type Quad { filled(float v); quad(Quad a, Quad b, Quad c, Quad d) }

def mapped(List<float> l) -> (r) {
  match l { nil { r = nil } cons(x, rest) { q = mapped(rest)  r = cons(2 * x + 1, q) } }
}
def filtered(List<float> l, float least) -> (r) {
  match l {
    nil { r = nil() }
    cons(x, rest) { q = filtered(rest, least)
      if x > least { r = cons(x, q) } else { r = q } }
  }
}
def backwards(List<float> l, List<float> made) -> (r) {
  match l { nil { r = made } cons(x, rest) { m = cons(x, made)  r = backwards(rest, m) } }
}
def zipped(List<float> l, List<float> m) -> (r) {
  match l, m { cons(x, p), cons(y, q) { z = zipped(p, q)  r = cons(x * y, z) } _, _ { r = nil } }
}
def appended(List<float> a, List<float> b) -> (r) {
  match a { nil { r = b } cons(x, rest) { q = appended(rest, b)  r = cons(x, q) } }
}
def taken(List<float> l, float least) -> (r) {
  match l { nil { r = nil }
    cons(x, rest) { q = taken(rest, least) if x > least { r = cons(x, q) } else { r = nil } } }
}
def even(List<float> l) -> (r) {
  match l { nil { r = l } cons(x, rest) { q = odd(rest)  r = cons(x, q) } }
}
def odd(List<float> l) -> (r) { match l { nil { r = nil } cons(x, rest) { r = even(rest) } } }
def all_mapped(List<List<float>> l) -> (r) {
  match l { nil { r = nil }
    cons(x, rest) { q = all_mapped(rest)  y = mapped(x)  r = cons(y, q) } }
}
def mirrored(Tree t) -> (r) {
  match t { leaf(x) { r = t } node(a, b) { p = mirrored(a)  q = mirrored(b)  r = node(q, p) } }
}
def softened(Tree t) -> (r) {
  match t {
    leaf(x) {
      top max=! x(i)
      e(i) = exp(x(i) - top)
      sum +=! e(i)
      y(i) = e(i) / sum
      r = leaf(y)
    }
    node(a, b) { p = softened(a)  q = softened(b)  r = node(p, q) }
  }
}
def cut(Tree t, int depth) -> (r, total) {
  match t {
    leaf(x) { r = t  total = D }
    node(a, b) {
      for i in 0:D { zero(i) = 0.0 }
      d = depth - 1
      p, s = cut(a, d)
      q, u = cut(b, d)
      total = s + u
      if depth <= 0 { r = leaf(zero) } else { r = node(p, q) }
    }
  }
}
def inserted(Search t, float v) -> (r) {
  match t {
    empty { r = item(v, t, t) }
    item(key, low, high) {
      a = inserted(low, v)
      b = inserted(high, v)
      if v < key { r = item(key, a, high) } else { r = item(key, low, b) }
    }
  }
}
def below(Search t, float v) -> (r) {
  match t {
    empty { r = t }
    item(key, low, high) {
      a = below(low, v)
      b = below(high, v)
      r = t
      if v < key { r = a }
      if v > key { r = b }
    }
  }
}
def simple(Expr e) -> (r, value) {
  match e {
    number(x) { r = e  value = x }
    add(a, b) {
      p, x = simple(a)
      q, y = simple(b)
      value = x + y
      if x == 0 { r = q } else { if y == 0 { r = p } else { r = add(p, q) } }
    }
    mul(a, b) {
      p, x = simple(a)
      q, y = simple(b)
      value = x * y
      if x * y == 0 { r = number(0) } else { r = mul(p, q) }
    }
    neg(a) {
      p, x = simple(a)
      value = -x
      if x == 0 { r = p } else { r = neg(p) }
    }
  }
}
def scaled(Json j, float w) -> (r) {
  match j {
    null { r = null }
    scalar(v) { r = scalar(w * v) }
    array(a, b) { p = scaled(a, w)  q = scaled(b, w)  r = array(p, q) }
    object(k, a, b) { p = scaled(a, w)  q = scaled(b, w)  r = object(k, p, q) }
  }
}
def merged(Quad t) -> (r, mean, equal) {
  match t {
    filled(v) { r = t  mean = v  equal = 1 }
    quad(a, b, c, d) {
      p, u, e = merged(a)
      q, v, f = merged(b)
      s, w, g = merged(c)
      o, x, h = merged(d)
      mean = (u + v + w + x) / 4
      equal = (e * f * g * h == 1 && u == v && v == w && w == x) ? 1 : 0
      if equal == 1 { r = filled(mean) } else { r = quad(p, q, s, o) }
    }
  }
}
"""
DEFINITIONS = parse(TEXT)
PROGRAMS = ad.define(TEXT)


# ---- plain Python --------------------------------------------------------------------------------


def listed(values):
    made = ("nil",)
    for value in reversed(values):
        made = ("cons", value, made)
    return made


def values_of(row):
    found = []
    while row[0] == "cons":
        found.append(row[1])
        row = row[2]
    return found


def over(function):
    """A function of Python lists as one of structures."""
    return lambda *given: (
        listed(function(*(values_of(each) if isinstance(each, tuple) else each for each in given))),
    )


def taken(row, least):
    made = []
    for value in row:
        if not value > least:
            break
        made.append(value)
    return made


def mirrored(t):
    return t if t[0] == "leaf" else ("node", mirrored(t[2]), mirrored(t[1]))


def softened(t):
    if t[0] == "node":
        return ("node", softened(t[1]), softened(t[2]))
    e = np.exp(t[1] - t[1].max())
    return ("leaf", e / e.sum())


def cut(t, depth):
    size = size_of(t)
    if t[0] == "leaf":
        return t, leaves(t) * size
    if depth <= 0:
        return ("leaf", np.zeros(size, np.float32)), leaves(t) * size
    p, q = cut(t[1], depth - 1)[0], cut(t[2], depth - 1)[0]
    return ("node", p, q), leaves(t) * size


def size_of(t):
    while t[0] == "node":
        t = t[1]
    return len(t[1])


def leaves(t):
    return 1 if t[0] == "leaf" else leaves(t[1]) + leaves(t[2])


def inserted(t, v):
    if t[0] == "empty":
        return ("item", v, t, t)
    _, key, low, high = t
    return (
        ("item", key, inserted(low, v), high) if v < key else ("item", key, low, inserted(high, v))
    )


def below(t, v):
    while t[0] == "item" and v != t[1]:
        t = t[2] if v < t[1] else t[3]
    return t


def simple(e):
    kind, *inner = e
    if kind == "number":
        return e, e[1]
    pairs = [simple(each) for each in inner]
    (p, x), (q, y) = pairs[0], pairs[-1]
    if kind == "neg":
        return (p if x == 0 else ("neg", p)), -x
    if kind == "mul":
        return (("number", np.float32(0)) if x * y == 0 else ("mul", p, q)), x * y
    return q if x == 0 else p if y == 0 else ("add", p, q), x + y


def scaled(j, w):
    kind, *inner = j
    if kind == "scalar":
        return ("scalar", w * inner[0])
    key = inner[:1] if kind == "object" else []
    return (kind, *key, *(scaled(each, w) for each in inner[len(key) :]))


def merged(t):
    if t[0] == "filled":
        return t, t[1], 1
    parts = [merged(each) for each in t[1:]]
    mean = sum(each[1] for each in parts) / np.float32(4)
    equal = all(each[2] for each in parts) and len({float(each[1]) for each in parts}) == 1
    made = ("filled", mean) if equal else ("quad", *(each[0] for each in parts))
    return made, mean, int(equal)


# ---- random structures ---------------------------------------------------------------------------


def number(chance):
    return np.float32(chance.integers(-2, 3))


def numbers(chance, size=None):
    return listed([number(chance) for _ in range(chance.integers(0, 6) if size is None else size)])


def tree(chance, size, leaves=None):
    leaves = int(chance.integers(1, 7)) if leaves is None else leaves
    if leaves == 1:
        return ("leaf", chance.normal(size=size).astype(np.float32))
    left = int(chance.integers(1, leaves))
    return ("node", tree(chance, size, left), tree(chance, size, leaves - left))


def search(chance):
    made = ("empty",)
    for _ in range(chance.integers(0, 8)):
        made = inserted(made, number(chance))
    return made


def expression(chance, depth=4):
    kind = chance.choice(["number", "add", "mul", "neg"]) if depth else "number"
    if kind == "number":
        return ("number", number(chance))
    count = 1 if kind == "neg" else 2
    return (str(kind), *(expression(chance, depth - 1) for _ in range(count)))


def json(chance, depth=4):
    kind = chance.choice(["null", "scalar", "array", "object"]) if depth else "null"
    inner = [json(chance, depth - 1) for _ in range(2 if kind in ("array", "object") else 0)]
    return (str(kind), *([number(chance)] if kind in ("scalar", "object") else []), *inner)


def quad(chance, depth=3):
    if depth == 0 or chance.random() < 0.3:
        return ("filled", np.float32(chance.integers(0, 2)))
    return ("quad", *(quad(chance, depth - 1) for _ in range(4)))


def plain(make):
    return lambda chance, _size: make(chance)


# by definition: how to make each argument, structures first, and the function in Python
CASES = {
    "mapped": ([plain(numbers)], over(lambda row: [2 * x + 1 for x in row])),
    "filtered": ([plain(numbers), number], over(lambda row, v: [x for x in row if x > v])),
    "backwards": ([plain(numbers), plain(numbers)], over(lambda row, m: [*row[::-1], *m])),
    "zipped": (
        [plain(numbers), plain(numbers)],
        over(lambda row, m: [x * y for x, y in zip(row, m)]),
    ),
    "appended": ([plain(numbers), plain(numbers)], over(lambda row, m: [*row, *m])),
    "taken": ([plain(numbers), number], over(taken)),
    "even": ([plain(numbers)], over(lambda row: row[::2])),
    "odd": ([plain(numbers)], over(lambda row: row[1::2])),
    "all_mapped": (
        [lambda chance, _: listed([numbers(chance) for _ in range(chance.integers(0, 5))])],
        lambda row: (listed([listed([2 * x + 1 for x in values_of(e)]) for e in values_of(row)]),),
    ),
    "mirrored": ([tree], lambda t: (mirrored(t),)),
    "softened": ([tree], lambda t: (softened(t),)),
    "cut": ([tree, lambda chance: np.int32(chance.integers(-1, 4))], cut),
    "inserted": ([plain(search), number], lambda *given: (inserted(*given),)),
    "below": ([plain(search), number], lambda *given: (below(*given),)),
    "simple": ([plain(expression)], simple),
    "scaled": ([plain(json), number], lambda *given: (scaled(*given),)),
    "merged": ([plain(quad)], merged),
}


def arguments(name, chance, size, count):
    """The structures and the tensors of a call: `count` rows of structures."""
    makers = CASES[name][0]
    structures = DEFINITIONS[name].parameters
    known = {each.name for each in DEFINITIONS[name].types}
    of = [make for make, each in zip(makers, structures) if each.type in known]
    rest = [make(chance) for make in makers[len(of) :]]
    return [[make(chance, size) for make in of] for _ in range(count)], rest


def check(name, chance, count):
    """Compare a program, for a forest and for its first tree, with plain Python and the
    interpreter."""
    size = int(chance.integers(0, 6)) if name == "cut" else int(chance.integers(1, 6))
    rows, rest = arguments(name, chance, size, count)
    wanted = [CASES[name][1](*row, *rest) for row in rows]
    for row, results in zip(rows[:2], wanted):
        ran = run(DEFINITIONS[name], [*row, *rest]).values()
        for found, result in zip(ran, results):
            assert_same(found.values if isinstance(found, Result) else found, result)
    program = getattr(PROGRAMS, name)
    made = program(*([row[at] for row in rows] for at in range(len(rows[0]))), *rest)
    single = program(*rows[0], *rest)
    for at, found in enumerate(made if isinstance(made, tuple) else (made,)):
        first = single[at] if isinstance(single, tuple) else single
        if isinstance(found, ad.Structure):
            assert len(found) == count and first.single
            for row in range(count):
                assert_same(found.nested(row), wanted[row][at])
            assert_same(first.nested(), wanted[0][at])
        else:
            np.testing.assert_allclose(found, [each[at] for each in wanted], rtol=1e-6)
            np.testing.assert_allclose(first, wanted[0][at], rtol=1e-6)


@pytest.mark.sampled(most=9)
@pytest.mark.parametrize("name", CASES)
def test_programs_and_plain_python_agree(name):
    chance = np.random.default_rng(list(CASES).index(name))
    for count in (1, 3, 17):
        check(name, chance, count)


# ---- forests, graphs and callees -----------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_a_forest_without_trees(name):
    makers, rest = arguments(name, np.random.default_rng(0), 2, 1)
    made = getattr(PROGRAMS, name)(*([] for _ in makers[0]), *rest)
    assert [len(each) for each in (made if isinstance(made, tuple) else (made,))] == [0] * len(
        DEFINITIONS[name].results
    )


def test_results_hold_the_nodes_of_their_trees_only():
    made = PROGRAMS.filtered(listed([1.0, 5.0, 2.0, 7.0]), 2.0)
    assert repr(made) == "<structure: 1 tree; nodes: 1 nil, 2 cons>"
    made = PROGRAMS.appended([listed([1.0]), listed([2.0])], [listed([3.0])] * 2)
    assert repr(made) == "<structure: 2 trees; nodes: 1 nil, 3 cons>"  # they share the last one


def test_results_are_arguments_of_other_calls():
    t, plain_tree = ("empty",), ("empty",)
    chance = np.random.default_rng(1)
    for value in chance.normal(size=30).astype(np.float32):
        t, plain_tree = PROGRAMS.inserted(t, value), inserted(plain_tree, value)
        assert t.nested() == plain_tree
    assert repr(t) == "<structure: 1 tree; nodes: 1 empty, 30 item>"


def test_deep_results():
    values = np.arange(20_000, dtype=np.float32)
    row = listed(list(values))
    assert values_of(PROGRAMS.backwards(row, ("nil",)).nested()) == list(values[::-1])
    assert values_of(PROGRAMS.filtered(row, np.float32(100)).nested()) == list(values[101:])


def test_structures_between_the_calls_of_a_graph():
    g = ad.Builder("g")
    t = g.structure("t", PROGRAMS.softened, D=3)
    made = g.call(PROGRAMS.mirrored, g.call(PROGRAMS.softened, t))
    g.output("r", made)
    model = ad.compile(g)
    chance = np.random.default_rng(2)
    trees = [tree(chance, 3) for _ in range(4)]
    found = model(t=trees)["r"]
    for row, each in enumerate(trees):
        assert_same(found.nested(row), mirrored(softened(each)))


OTHERS = """
type List<A> { nil; cons(A head, List<A> tail) }
type Wood { end; tree(Tree t, Wood rest) }
type Tree { leaf(float(D) x); node(Tree left, Tree right) }
def squares(List<T> l, List<T> end) -> (r) {
  match l { nil { r = end } cons(x, rest) { q = squares(rest, end)  r = cons(x * x, q) } }
}
def of_integers(List<int> l) -> (r, n) { r = squares(l, l)  n = length(l) }
def length(List<A> l) -> (n) {
  match l { nil { n = 0 } cons(x, rest) { m = length(rest)  n = m + 1 } }
}
def moved(List<float(M)> l, float(M) y) -> (r) {
  match l { nil { r = nil }
    cons(x, rest) { q = moved(rest, y)  z(i) = x(i) + y(i)  r = cons(z, q) } }
}
def by_others(List<float(N)> l, float(N) y) -> (r) { r = moved(l, y) }
def last(Wood w, Tree t) -> (r) { match w { end { r = t } tree(u, rest) { r = last(rest, u) } } }
def joined(Wood w, Tree t) -> (r) {
  match w { end { r = t } tree(u, rest) { a = node(t, u)  r = joined(rest, a) } }
}
def doubles(List<float> l) -> (r) { r = cons(0.5, l) }
def integers(List<float> l) -> (r) {
  match l { nil { r = nil } cons(x, rest) { q = integers(rest)  r = cons(1, q) } }
}
def constant(List<float> l, float w) -> (n, r) {
  match l { nil { n = 0  r = nil } cons(x, rest) { m, q = constant(rest, w)  n = m + 1  r = q } }
}
def weighted(Tree t, float(D) w) -> (r) {
  match t { leaf(x) { r = leaf(w) } node(a, b) { p = weighted(a, w)  r = node(p, t) } }
}
"""
A = np.array([1.0, 2.0], np.float32)
LEAF, OTHER = ("leaf", A), ("leaf", 2 * A)
WOOD = ("tree", LEAF, ("tree", OTHER, ("end",)))
INTEGERS = listed([np.int32(2), np.int32(3)])


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize(("name", "given", "wanted"), [
    ("of_integers", (INTEGERS,), (listed([4, 9, 2, 3]), 2)),
    ("by_others", (listed([A, A]), A), (listed([2 * A, 2 * A]),)),
    ("last", (WOOD, LEAF), (OTHER,)),
    ("joined", (WOOD, LEAF), (("node", ("node", LEAF, LEAF), OTHER),)),
    ("doubles", (listed([2.0]),), (listed([0.5, 2.0]),)),
    ("integers", (listed([2.0, 3.0]),), (listed([1.0, 1.0]),)),
    ("constant", (listed([2.0, 3.0]), np.float32(1)), (2, ("nil",))),
    ("weighted", (("node", LEAF, LEAF), 3 * A), (("node", ("leaf", 3 * A), ("node", LEAF, LEAF)),)),
])  # fmt: skip
def test_callees_and_fields(name, given, wanted):
    made = getattr(ad.define(OTHERS), name)(*given)
    ran = run(parse(OTHERS)[name], given).values()
    for found, other, result in zip(made if isinstance(made, tuple) else (made,), ran, wanted):
        assert_same(found.nested() if isinstance(found, ad.Structure) else found, result)
        assert_same(other.values if isinstance(other, Result) else other, result)
    assert name != "of_integers" or made[0].nested()[1].dtype == np.int32
    assert name != "integers" or made.nested()[1].dtype == np.float32


def test_a_field_with_any_number_of_structures_is_refused():
    text = "type Bush { bush(float x, Bush(K) children) }\ndef f(Bush b) -> (r) { r = b }"
    with pytest.raises(LanguageError, match="field 'children' of any number of structures"):
        ad.define(text).f(("bush", 1.0, []))
