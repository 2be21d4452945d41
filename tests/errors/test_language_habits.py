"""Habits from other notations: the error stands at the place and says what to write instead."""

import pytest

import anydim.compiler.ops  # noqa: F401  operators that definitions call
from anydim.base.dtypes import float32
from anydim.base.errors import LanguageError
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.hints import MISTAKES, OVER_INDICES, POSITIONS
from anydim.lang.surface.parser import parse
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size

SLICE = "there are no slices: give each dimension an index, as in x(i,j)"
DECLARED = "nothing is declared: write y(i) = ..., sizes and type follow"
CONVERSION = "a conversion is written float(x(i))"
LOGIC = "in conditions write '&&', '||' and '!'"
LOOP = "write a loop as: for t in 0:N { ... }"
HEAD = "results follow the parameters: -> (y) { ... }"
ANEW = "there are '=', '+=', '*=', 'min=' and 'max='; with '!' they start anew"
COMMENT = "comments start with '#'; '//' is floor division"
NAMES = "names are made of letters a-z, A-Z, digits and '_'"
DEF = "a definition starts with 'def': def f(float(N) x) -> (y) { ... }"

# What stands in the braces of `def f(float(N) x, float(N,M) m) -> (y) { ... }`; the place that the
# caret points at is marked by a '¦'.
STATEMENTS = [
    ("y ¦argmax=! x(i)", POSITIONS),
    ("y = softmax(x, axis¦=0)", "attributes follow a semicolon: softmax(x; axis = 0)"),
    ("y, k = top_k(x; ¦2)", "an attribute has a name: softmax(x; axis = 0)"),
    ("¦// add\n y(i) = x(i)", COMMENT),
    ("y(i) = x(i) /¦* add */", COMMENT),
    ("y(i) = x(i) // the value\n ¦}", COMMENT),
    ("y(i) = (x(i) ¦}", "a parenthesis is still open"),
    ("y(i) ¦-= x(i)", "there is no '-=': write += -(...)"),
    ("y(i) ¦/= x(i)", "there is no '/=': write *= 1 / (...)"),
    ("y(i) ¦:= x(i)", "write '='"),
    ("y(i) = x(i) ¦× 2", "write '*'"),
    ("y(i) = x(i) ¦÷ 2", "write '/'"),
    ("y(i) = x(i) ¦− 2", "write '-'"),
    ("y(i) = x(i) ¦≤ 2", "write '<=', '>=' or '!='"),
    ("gr¦öße(i) = x(i)", NAMES),
    ("y(i) = ¦\"a\"", "there are no texts in the language"),
    ("y(i) = x(i) *¦* 2", "a power is pow(x, 2)"),
    ("y = m ¦@ m", "a matrix product is a sum: C(m,n) +=! A(m,k) * B(k,n)"),
    ("y¦[i] = x(i)", "indices go in parentheses: y(i)"),
    ("y(i) = m[i¦,0]", "x[...] takes one row-major offset; "
     "with an index per dimension: x(i,j)"),
    ("y(i) = m(i,¦:)", SLICE),
    ("y(i) = x(0¦:2)", SLICE),
    ("y(i) = x[0¦:2]", SLICE),
    ("y(i) = m(i)¦(0)", "one pair of parentheses holds all indices: x(i,j)"),
    ("y(i) = x¦.shape[0]", "the size of dimension 0 of a tensor x is x.0"),
    ("for ¦(int i = 0; i < N; i++) { y(i) = x(i) }", LOOP),
    ("for t ¦= 0:N { y(t) = x(t) }", LOOP),
    ("y(i) = x(i) where i in 0.¦.N", "a range is written low:high"),
    ("y(i) = x(i) where i in N ¦}", "a range has two ends: where i in 0:N"),
    ("y(i) = x(i) where i ¦> 0", "'where' gives ranges, i in low:high, and names, s = a(i); "
     "a condition is chosen by: condition ? a : b"),
    ("y(i) = x(i) where i =¦= 0", "'where' gives ranges, i in low:high, and names, s = a(i); "
     "a condition is chosen by: condition ? a : b"),
    ("y(i) = x(i) for i in 0:N ¦}", "a loop goes before its body: for t in 0:N { ... }; "
     "the range of an index is: where i in 0:N"),
    ("y(i) = x(i) if N > 0 ¦else 0", "a choice in an expression is: condition ? a : b"),
    ("y(i) = x(i) if N > 0 ¦}", "a choice in an expression is: condition ? a : b; "
     "a branch is: if condition { y(i) = ... }"),
    ("if N > 2 { y = 1 } elif ¦N > 1 { y = 2 }", "write 'else if'"),
    ("y(i) = x(i) return ¦y", "results are named in the head: def f(...) -> (y)"),
    ("let ¦y(i) = x(i)", DECLARED),
    ("float ¦y(i) = x(i)", DECLARED),
    ("y(i) = float x(i) ¦}", CONVERSION),
    ("y(i) = (float) x(i) ¦}", CONVERSION),
    ("y(i) = x(i) > 0 and ¦x(i) < 1", LOGIC),
    ("y(i) = 0.5f ¦* x(i)", "a number has no suffix: its type follows"),
    ("y(i) = max¦!(m(i,j))", "over an index it is a statement: y(i) max=! x(i,j)"),
    ("y(i) ¦sum=! m(i,j)", ANEW),
    ("# for and while\n y(i) = x(i) +¦}", ""),
]  # fmt: skip

WHOLE = [
    ("def f(float(N) x) -> (float¦(N) y) { y(i) = x(i) }",
     "results have names alone, types follow: -> (y, z)"),
    ("def f(float(N) x) -> (float ¦y) { y(i) = x(i) }",
     "results have names alone, types follow: -> (y, z)"),
    ("¦float f(float(N) x) -> (y) { y(i) = x(i) }", DEF),
    ("def f(float¦[N] x) -> (y) { y(i) = x(i) }", "dimensions go in parentheses: float(N) x"),
    ("def f(x¦: float(N)) -> (y) { y(i) = x(i) }",
     "the type goes before the name: float(N) x"),
    ("def f(float x¦(N)) -> (y) { y(i) = x(i) }", "dimensions belong to the type: float(N) x"),
    ("def f(float(N) x; alpha ¦= 1.0) -> (y) { y(i) = x(i) }",
     "an attribute has a kind and a name; kinds: int, float, bool, size, type"),
    ("def f(float(N) x)¦: return x", HEAD),
    ("def f(float(N) x) ¦{ y(i) = x(i) }", HEAD),
    ("def f(float(N) x) ¦=> (y) { y(i) = x(i) }", HEAD),
    ("def f(float(N) x) -> (y) ¦( y(i) = x(i) )", "statements go in braces: { y(i) = x(i) }"),
    ("def f(float(¦...) x) -> (y) { y(...) = x(...) }", "an ellipsis has a name: ...s"),
]  # fmt: skip

# Types and matches of other languages, with structures.
STRUCTURES = [
    (
        "type Tree ¦= leaf(float x) | node(Tree l)",
        "a structure type is: type Tree { leaf(float(D) x); node(Tree left, Tree right) }",
    ),
    ("type Tree { leaf(float x) ¦| node(Tree l, Tree r) }", "constructors are separated by ';'"),
    ("type Tree { leaf(float x)¦, nil }", "constructors are separated by ';'"),
    ("type Tree { leaf(x¦: float) }", "the type goes before the name: leaf(float(D) x)"),
    ("type Tree { leaf(float¦) }", "a field has a type and a name: leaf(float(D) x)"),
    ("type Tree { ¦float x }", "a field belongs to a constructor: node(float x)"),
    ("type Tree¦(A) { leaf(A x) }", "type parameters are written: type List<A> { ... }"),
    ("type Tree¦[A] { leaf(A x) }", "type parameters are written: type List<A> { ... }"),
    (
        "def f(Tree t) -> (y) { match t { case ¦leaf(x) { y = 1 } } }",
        "a case is a pattern and a block: leaf(x) { ... }",
    ),
    (
        "def f(Tree t) -> (y) { match t { leaf(x)¦: y = 1 } }",
        "a case is a pattern and a block: leaf(x) { ... }",
    ),
    (
        "def f(Tree t) -> (y) { match t { leaf(x) ¦=> y = 1 } }",
        "a case is a pattern and a block: leaf(x) { ... }",
    ),
    (
        "def f(Tree t) -> (y) { match t { leaf(x) ¦-> { y = 1 } } }",
        "a case is a pattern and a block: leaf(x) { ... }",
    ),
    (
        "def f(Tree t) -> (y) { match t { ¦| leaf(x) { y = 1 } } }",
        "each case has its own block, and _ fits everything",
    ),
    (
        "def f(Tree t) -> (y) { match t { leaf(x) ¦| nil { y = 1 } } }",
        "each case has its own block, and _ fits everything",
    ),
    (
        "def f(Tree t) -> (y) { match (t) ¦{ leaf(x) { y = 1 } } }",
        "a match is: match t { leaf(x) { ... } node(left, right) { ... } }",
    ),
    (
        "def f(Tree t) -> (y) { match t ¦with leaf(x) { y = 1 } }",
        "a match is: match t { leaf(x) { ... } node(left, right) { ... } }",
    ),
    (
        "def f(Tree t) -> (y) { match t¦: { leaf(x) { y = 1 } } }",
        "a match is: match t { leaf(x) { ... } node(left, right) { ... } }",
    ),
    (
        "def f(Tree t) -> (y) { match f¦(t) { leaf(x) { y = 1 } } }",
        "a match is: match t { leaf(x) { ... } node(left, right) { ... } }",
    ),
    (
        "def f(Tree t) -> (y) { match t { leaf(¦0) { y = 1 } } }",
        "a pattern has names: compare numbers in the block",
    ),
    (
        "def f(Tree t) -> (y) { match t { leaf(x) ¦if x > 0 { y = 1 } } }",
        "a pattern has no condition: write if in the block",
    ),
    (
        "def f(Tree t) -> (y) { match t { leaf(x) { y = 1 } ¦else { y = 2 } } }",
        "the case for everything else is: _ { ... }",
    ),
    (
        "def f(Tree t) -> (y) { match t { leaf(float ¦x) { y = 1 } } }",
        "a pattern has no types: leaf(x)",
    ),
    (
        "¦struct Tree { leaf }",
        "a structure type is: type Tree { leaf(float(D) x); node(Tree left, Tree right) }",
    ),
    (
        "¦data Tree { leaf }",
        "a structure type is: type Tree { leaf(float(D) x); node(Tree left, Tree right) }",
    ),
    (
        "¦enum Tree { leaf }",
        "a structure type is: type Tree { leaf(float(D) x); node(Tree left, Tree right) }",
    ),
    (
        "def f(Tree t) -> (y) { switch ¦t { leaf(x) { y = 1 } } }",
        "a match is: match t { leaf(x) { ... } node(left, right) { ... } }",
    ),
]

# Programs that parse: names, ranks and indices that are wrong.
MEANING = [
    ("y(i) = 1 where i in 0:N, ¦j in 0:3", "remove 'j' from the 'where', or add it on the left"),
    ("for t in N { y(t) = 1 where ¦j in 0:3 }",
     "remove 'j' from the 'where', or add it on the left"),
    ("y(i) = 1 where exists m(i,¦j)", "remove 'j' from the 'where', or add it on the left"),
    ("y(i) = x(i) where ¦N in 0:3", "it is a size; only an index of the statement has a range"),
    ("y = ¦x + 1", "write x(i)"),
    ("y = exp(¦m)", "write m(i,j)"),
    ("y(i) = ¦x(i,i)", "write x(i)"),
    ("total +=! x(i) y(i) = x(i) / ¦total(i)", "write total"),
    ("y(i) = x(i) ¦y(i,j) = 0", "write y(i), or another tensor"),
    ("y(i) = ¦N(i)", "it is a size, without indices"),
    ("y(i) = ¦softmax(x(i))", "assign its result first: y = softmax(...)"),
    ("y(i) = ¦softmx(x(i))", "did you mean 'softmax'?"),
    ("y(i) = ¦rand(x(i))", "a definition cannot generate random numbers: pass them as an argument"),
    ("y(i) = ¦mystery(i)", "the tensors here are 'x', 'm', 'y'"),
    ("¦N = 3", "it is the name of a size: rename the tensor"),
    ("¦size(i) = x(i)", "it is a reserved word: rename the tensor"),
    ("y(i) = ¦m.2 + x(i)", "write m.0 to m.1"),
    ("y(i) = ¦exp(x(i), 2)", "write exp(a)"),
    ("¦z(i) = x(i)", "add a statement: y(...) = ..."),
]  # fmt: skip

# Programs that are wrong for arguments of sizes n and n x m.
TYPED = [
    (
        "y(¦i) = x(i - 1) else 0",
        "add: where i in 0:... (a read with a default implies no range)",
    ),
    ("y(i) = x(i ¦+ 0.5)", "write int64(...)"),
    ("y(0) = x(¦0.5)", "write int64(...)"),
    ("y(i) = x(i) ¦& 1", "write int32(...)"),
    (
        "y(i) = ¦x(N) where i in 0:3",
        "'n' is that size, not an index: use another name for the index",
    ),
]


def around(statements):
    return f"def f(float(N) x, float(N,M) m) -> (y) {{ {statements} }}"


def checked(marked, call, hint):
    text, position = marked.replace("¦", ""), marked.index("¦")
    line = text.count("\n", 0, position)
    column = position - text.rfind("\n", 0, position)
    with pytest.raises(LanguageError) as caught:
        call(text)
    where, source, caret, *rest = str(caught.value).split("\n")
    assert source.strip() == text.split("\n")[line].strip()
    assert caret == " " * (4 + column - 1) + "^"
    assert where.startswith(f"demo.tc:{line + 1}:{column}: ")
    assert rest == ([f"  {hint}"] if hint else [])


def read(text):
    return parse(text, "demo.tc")


@pytest.mark.parametrize(
    "marked, hint", [(around(s), h) for s, h in STATEMENTS] + WHOLE + STRUCTURES
)
def test_habits(marked, hint):
    checked(marked, read, hint)


def test_every_known_habit_has_a_program():
    told = {hint for _, hint in STATEMENTS + WHOLE + STRUCTURES}
    assert {row.advice for row in MISTAKES} <= told


@pytest.mark.parametrize("marked, hint", MEANING)
def test_meaning(marked, hint):
    if "add a statement" in hint:  # this one points at the definition
        marked = around(marked.replace("¦", "")).replace("f(", "¦f(", 1)
    else:
        marked = around(marked)
    checked(marked, read, hint)


@pytest.mark.parametrize("word", OVER_INDICES)
def test_functions_of_whole_tensors(word):
    checked(around(f"y(i) = ¦{word}(x(i))"), read, OVER_INDICES[word])


@pytest.mark.parametrize("marked, hint", TYPED)
def test_types(marked, hint):
    def made(text):
        n, m = as_size("n"), as_size("m")
        types = [TensorType(float32, (n,)), TensorType(float32, (n, m))]
        return instantiate(read(text)["f"], types, {}, Box.of(Dim("n"), Dim("m")))

    checked(around(marked), made, hint)
