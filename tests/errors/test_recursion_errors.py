# ruff: noqa: E501  the messages stand as users see them
"""One program per mistake with `while`, recursion with a bound, calls for each row and algorithms.

A row is a program, the position and the problem, and the hint; the message also shows the line.
"""

import numpy as np
import pytest

import anydim as ad
from anydim.base.text import caret

FIB = "def fib(int64 n; size depth = 9) -> (f) { if n < 2 { f = n } else { a = fib(n - 1)  b = fib(n - 2)  f = a + b } }\n"

MISTAKES = [
    (
        "def f(float x) -> (y) { y = x  for i in 0:3 { while y > 1 { y = y / 2 } } }",
        "1:47: f: a 'while' cannot be inside a loop over a range",
        "write both as 'while'",
    ),
    (
        "type T { a; b(T t) }\ndef f(T t, float x) -> (y) { y = x  while y > 1 { y = y / 2 } }",
        "2:37: f: a 'while' cannot be in a definition over structures",
        "loop over a range: for t in 0:N { ... }",
    ),
    (
        "def f(float x) -> (y) { y = x  while y(i) > 1 { y = y / 2 } }",
        "1:38: f: tensor 'y' has 0 dimensions, not 1",
        "write y",
    ),
    (
        "def f(float x) -> (y) { y = x  while i > 1 { y = y / 2 } }",
        "1:38: f: a condition has no index 'i'",
        "it may use sizes, loop variables and scalars",
    ),
    (
        "def f(int64 x) -> (y) { y = x  while y > 1 { y = y - 1  z = y } y = z }",
        "1:5: f: 'z' may be used before it is assigned",
        "assign it first, in all cases: z = ...",
    ),
    (
        "def f(int64 x) -> (y) { while x > 1 { x = x - 1  y = x } }",
        "1:5: f: 'y' may be used before it is assigned",
        "assign it first, in all cases: y = ...",
    ),
    (
        "def f(int64 x) -> (y) { y = 0  while x > 1 { x = x - 1  y = 0.5 * y } }",
        "1:57: f: 'y' holds int64, but this value is float32",
        "convert it: int64(...)",
    ),
    (
        FIB + "def f(int64(B) n) -> (y) { y(b) = fib(n) }",
        "2:35: f: no argument has a row 'b'",
        "write x(b) for the row of a tensor",
    ),
    (
        FIB + "def f(int64(B) n) -> (y) { y(n) = fib(n(n)) }",
        "2:28: f: 'n' is a tensor, and the row of a call is an index",
        "write a name that nothing has",
    ),
    (
        FIB + "def f(int64(B) n) -> (y) { for t in 0:2 { y(b) = fib(n(b)) } }",
        "2:50: f: a call for each row cannot be inside a loop",
        "call it in a definition of its own",
    ),
    (
        FIB + "def f(int64(B) n) -> (y, z) { y(b), z = fib(n(b)) }",
        "2:31: results of a call have no indices, or all that of its row",
        "write C, D = g(A, B), or C(b), D(b) = g(A(b), B)",
    ),
    (
        FIB + "def f(int64 n) -> (y) { for t in 0:2 { y = fib(n) } }",
        "2:40: f: 'fib' is called in a loop or a branch, and data decides what it runs",
        "call it before, or write the loop as 'while'",
    ),
    (
        FIB + "def g(int64 n) -> (y) { y = fib(n) }\ndef f(int64(B) n) -> (y) { y(b) = g(n(b)) }",
        "3:28: f: 'g' is called for each row, and calls what data decides",
        "call that for each row instead",
    ),
    (
        "def f(float(N) x) -> (y) { for t in 0:2 { y, i = sort(x) } }",
        "1:43: f: 'sort' is an algorithm, and is called in a loop or a branch",
        "call it before, and use its results inside",
    ),
    (
        "def f(float(N) x, bool(N) k) -> (y) { y = compress(x, k; axes = 0) }",
        "1:43: f: 'compress' does not take 2 arguments with the attributes 'axes'",
        "",
    ),
    (
        "def f(int64 n) -> (y) { y = n  while y > 1 { k(i) = y > i where i in 0:3  a = nonzero(k)  y = y - 1 } }",
        "1:79: f: the size of the result of 'nonzero' is known when the call runs",
        "call it in a definition without recursion, 'while' and rows",
    ),
    (
        "type L { nil; cons(int64 x, L r) }\ndef g(int64 a) -> (a) { while a > 3 { a = a - 3 } }\ndef f(L t) -> (s) { match t { nil { s = 0 } cons(x, r) { a = f(r)  b = g(x)  s = a + b } } }",
        "3:72: f: 'g' is recursion or a 'while' that data decides, and is called in a match, a loop, a branch or for each row",
        "call it before, in a definition without these",
    ),
]  # fmt: skip


@pytest.mark.parametrize("text, problem, hint", MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes(text: str, problem: str, hint: str) -> None:
    with pytest.raises(ad.LanguageError) as caught:
        function = ad.define(text).f
        types = {each.name for each in function.definition.types}
        function(*(
            ("nil",) if each.type in types else np.ones((3,) * len(each.shape), "f")
            if each.shape else 3
            for each in function.definition.parameters
        ))  # fmt: skip
    line, column = map(int, problem.split(":")[:2])
    position = sum(len(each) + 1 for each in text.split("\n")[: line - 1]) + column - 1
    expected = f"<text>:{problem}\n{caret(text, position)}"
    assert str(caught.value) == expected + (f"\n  {hint}" if hint else "")


def test_an_operator_of_a_model() -> None:
    from anydim.compiler.frontends.definition import call_definition
    from anydim.lang.surface.parser import parse

    definition = parse(FIB)["fib"]
    with pytest.raises(ad.LanguageError, match="it is compiled to several nodes"):
        call_definition(definition, ["n"], [], {}, None, lambda name, kind: name, "")  # type: ignore[arg-type]
