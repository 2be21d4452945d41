"""Structure types and matches: parsed, linked and printed."""

from dataclasses import replace

import pytest

from anydim.base.errors import LanguageError
from anydim.lang.surface.parser import parse, parse_types
from anydim.lang.surface.printer import print_definition, print_type
from anydim.lang.surface.syntax import Invoke, MatchBlock, Name, Parameter, Pattern

TEXT = """
type Tree { leaf(float(D) x); node(Tree left, Tree right) }
type List<A> { nil; cons(A head, List<A> tail) }
type Bush { bush(float(D) x, Bush(K) children) }

def tree_lstm(Tree t, float(D,H) W, float(2,H,H) U) -> (h, c) {
  match t {
    leaf(x) {
      i(j) +=! W(d,j) * x(d)
      h(j) = tanh(i(j))
      c(j) = i(j)
    }
    node(left, right) {
      hl, cl = tree_lstm(left, W, U)
      hr, cr = tree_lstm(right, W, U)
      i(j) +=! U(0,k,j) * hl(k)
      i(j) += U(1,k,j) * hr(k)
      c(j) = sigmoid(i(j)) * (cl(j) + cr(j))
      h(j) = tanh(c(j))
    }
  }
}

def classify(Tree t, float(D,H) W, float(2,H,H) U, float(H,C) V) -> (y) {
  h, c = tree_lstm(t, W, U)
  y(k) +=! V(j,k) * h(j)
}

def total(List<float32> l) -> (s) {
  match l { nil { s = 0.0 } cons(x, rest) { r = total(rest)  s = x + r } }
}

def first(List<List<float(D)>> l) -> (s) {
  match l {
    nil { s = 0.0 }
    cons(cons(x, _), _) { s +=! x(d) }
    cons(nil(), _) { s = 1.0 }
  }
}

def sums(Bush b) -> (s) {
  match b { bush(x, children) { h = sums(children)  s +=! x(d)  s += h(k) } }
}

def even(List<float> l) -> (y) { match l { nil { y = 1 } cons(_, r) { y = odd(r) } } }
def odd(List<float> l) -> (y) { match l { nil { y = 0 } cons(_, r) { y = even(r) } } }

def same(Tree s, Tree t) -> (y) {
  match s, t {
    leaf(_), leaf(_) { y = 1 }
    node(a, b), node(c, d) { left = same(a, c)  right = same(b, d)  y = left * right }
    _, _ { y = 0 }
  }
}

def nested(Tree t) -> (y) {
  start = 1.0
  match t {
    leaf(x) { n = 0.0 }
    node(left, _) {
      match left {
        leaf(x) { n +=! x(d) }
        other { n = nested(other) }
      }
    }
  }
  y = n + start
}
"""
FOUND = parse(TEXT)


def test_a_printed_text_is_equal():
    types = parse_types(TEXT)
    printed = [*map(print_type, types.values()), *map(print_definition, FOUND.values())]
    text = "\n".join(printed)
    assert parse_types(text) == types
    assert parse(text) == FOUND
    assert [hash(each) for each in parse(text).values()] == [*map(hash, FOUND.values())]


def test_declarations():
    types = parse_types(TEXT)
    assert list(types) == ["Tree", "List", "Bush"]
    assert types["List"].parameters == ("A",)
    tail = types["List"].constructor("cons").fields[1]
    assert tail == Parameter("tail", "List", (), 0, (), (Parameter("", "A"),))
    assert types["Bush"].constructor("bush").fields[1].shape == (Name("K"),)


def test_instances_have_canonical_names_and_no_parameters():
    (listed,) = FOUND["total"].types
    assert (listed.name, listed.parameters) == ("List<float>", ())
    assert listed.constructor("cons").fields == (
        Parameter("head", "float"), Parameter("tail", "List<float>"),
    )  # fmt: skip
    assert FOUND["total"].parameters == (Parameter("l", "List<float>"),)
    assert [each.name for each in FOUND["first"].types] == [
        "List<List<float(D)>>", "List<float(D)>",
    ]  # fmt: skip
    head = FOUND["first"].types[1].constructor("cons").fields[0]
    assert head == Parameter("head", "float", (Name("D"),))


def test_names_of_constructors_are_constructor_patterns():
    (match,) = FOUND["first"].statements
    assert isinstance(match, MatchBlock)
    nil = Pattern("nil", ())
    assert match.cases[0].patterns == (nil,)
    assert match.cases[2].patterns == (Pattern("cons", (nil, Pattern("_"))),)


@pytest.mark.parametrize("name, family, callees", [
    ("tree_lstm", ["tree_lstm"], []), ("classify", [], ["tree_lstm"]),
    ("even", ["even", "odd"], []), ("odd", ["even", "odd"], []), ("first", [], []),
])  # fmt: skip
def test_families_and_callees(name, family, callees):
    definition = FOUND[name]
    assert [each.name for each in definition.family] == family
    assert [each.name for each in definition.callees] == callees
    for each in definition.family:
        assert each == replace(FOUND[each.name], family=())
    for each in definition.callees:
        assert each == FOUND[each.name]


def test_calls_in_cases_are_calls():
    (match,) = FOUND["total"].statements
    assert isinstance(match.cases[1].body[0], Invoke)


WORDS = """
def match(float(N) type) -> (match, y) {
  match(i) = type(i)
  y = 1.0
  match(i) min= 2
  y max=! match(i)
  type(0) = match(0)
}
def f(float(N) type) -> (match, x) {
  match, x = g(type)
  match min= 1.0
  match max=1.0
}
def g(float(N) match) -> (x, y) { x = 1.0  y(i) = match(i) }
"""


def test_type_and_match_are_names_elsewhere():
    found = parse(WORDS)
    assert [type(each).__name__ for each in found["f"].statements] == [
        "Invoke",
        *["Assignment"] * 2,
    ]
    assert parse("\n".join(map(print_definition, found.values()))) == found


def test_a_match_may_follow_a_comment():
    text = TEXT.replace("match t {", "match # which\n  t {")
    assert parse(text) == FOUND


def test_long_chains_of_types():
    chain = "\n".join(f"type T{n} {{ next(T{n + 1} x) }}" for n in range(300))
    text = f"{chain}\ntype T300 {{ end }}\ndef f(T0 t) -> (y) {{ y = 1 }}"
    assert len(parse(text)["f"].types) == 301


@pytest.mark.parametrize("text, problem", [
    ("List<" * 40 + "float" + ">" * 40 + " l) -> (y) { y = 1 }", "types nested more than 32 deep"),
    ("List<int> l) -> (y) { match l { " + "cons(_, " * 190 + "nil" + ")" * 190 + " { y = 1 } } }",
     "a pattern has more than 200 names"),
    ("List<int> l) -> (y) { " + "match l { _ { " * 40 + "y = 1" + " } }" * 40 + " }",
     "blocks nested more than 32 deep"),
])  # fmt: skip
def test_nesting_has_limits(text, problem):
    with pytest.raises(LanguageError, match=problem):
        parse(f"type List<A> {{ nil; cons(A head, List<A> tail) }}\ndef f({text}")
