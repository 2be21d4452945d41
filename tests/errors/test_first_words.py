"""Promise: the first mistakes of new users get an answer that says what to write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import anydim as ad

HEAD = "def f(float(N) x) -> (y) { "
CHOICE = "a choice in an expression is: condition ? a : b"
POSITIONS = (
    "positions are k = arg_max(x; axis = 0) and arg_min, which keep the axis (size 1): read k(0)"
)
KEPT = "'arg_max' keeps the axis that it reduces with size 1: write k(0), or give keepdims = false"
NEEDS = "in this call of 'top_k': operator 'top_k' needs its attribute 'k'"
BODIES = [
    ("y(i) = ¦if x(i) > 0 { 1 }", "'if' is a reserved word, not a name", CHOICE),
    ("y(i) = ¦if x(i) > 0 then 1 else 0", "'if' is a reserved word, not a name", CHOICE),
    ("y(i) = ¦if(x(i) > 0, 1, 0)", "'if' is a reserved word, not a function", CHOICE),
    ("y = 1 + ¦size", "'size' is a reserved word, not a name",
     "the size of dimension 0 of x is x.0, the product of those of an ellipsis size(...s)"),
    ("y = 1 + ¦in", "'in' is a reserved word, not a name", "use another name"),
    ("y ¦argmax=! x(i)", "expected '(', ',' or an assignment, found 'argmax'", POSITIONS),
    ("y ¦arg_min=! x(i)", "expected '(', ',' or an assignment, found 'arg_min'", POSITIONS),
    ("y = ¦argmax(x)", "f: there is no tensor or function 'argmax'", POSITIONS),
    ("k = arg_max(x; axis = 0) y = x(¦k)", "f: 'k' has 1 dimension and needs indices", KEPT),
    ("y, k = ¦top_k(x, 2)", f"f: {NEEDS}",
     "attributes follow a semicolon and have names: top_k(x; k = 2)"),
    ("y = ¦softmax(x, 0)", "f: in this call of 'softmax': operator 'softmax' takes 1 input, not 2",
     "attributes follow a semicolon and have names: softmax(x; axis = 0)"),
    ("y = ¦softmax(x, -1)", "f: in this call of 'softmax': operator 'softmax' takes 1 input, not 2",
     "attributes follow a semicolon and have names: softmax(x; axis = -1)"),
    ("y = softmax(x, axis¦=0)", "expected ')', ',', ';' or an operator, found '='",
     "attributes follow a semicolon: softmax(x; axis = 0)"),
    ("y, k = top_k(x; ¦2)", "expected a name, found '2'",
     "an attribute has a name: softmax(x; axis = 0)"),
]  # fmt: skip


@pytest.mark.parametrize("marked, problem, hint", BODIES)
def test_bodies(marked: str, problem: str, hint: str) -> None:
    line = f"{HEAD}{marked.replace('¦', '')} }}"
    column = len(HEAD) + marked.index("¦") + 1
    with pytest.raises(ad.LanguageError) as caught:
        ad.define(line).f(np.ones(3, "f"))
    place = f"<text>:1:{column}: {problem}\n    {line}\n    {'^':>{column}}"
    assert str(caught.value) == f"{place}\n  {hint}"


@pytest.mark.parametrize("name", ["size", "exists", "inf", "where"])
def test_names_that_the_language_has(name: str) -> None:
    line = f"def {name}(float(N) x) -> (y) {{ y(i) = x(i) }}"
    with pytest.raises(ad.LanguageError) as caught:
        ad.define(line)
    place = f"<text>:1:5: {name}: '{name}' is a reserved word\n    {line}\n        ^"
    assert str(caught.value) == f"{place}\n  rename the definition"


@pytest.mark.parametrize("path", ["kernels.tc", "kernels/matmul.tc", "../kernels", "C:\\k\\one.tc"])
def test_a_path_in_place_of_a_text(path: str) -> None:
    with pytest.raises(ad.OptionError) as caught:
        ad.define(path)
    problem = f"define takes a text, and '{path}' looks like a path"
    assert str(caught.value) == f"{problem}\n  give the file: ad.define(file='{path}')"


def test_a_file(tmp_path: Path) -> None:
    file = str(tmp_path / "k.tc")
    with pytest.raises(ad.OptionError) as caught:
        ad.define(file=file)
    assert str(caught.value) == f"cannot read '{file}': No such file or directory"
    Path(file).write_text("def f(float(N) x) -> (y) { y(i) = 2 * x(i) }", "utf-8")
    assert ad.define(file=file).f(np.ones(2, "f")).tolist() == [2, 2]
    Path(file).write_text("def f(float(N) x) -> (y) { y(i) = }", "utf-8")
    with pytest.raises(ad.LanguageError) as caught_here:
        ad.define(file=file)
    assert "k.tc:1:35: " in str(caught_here.value)


def test_nothing() -> None:
    with pytest.raises(ad.OptionError) as caught:
        ad.define()
    assert str(caught.value) == (
        "define takes a text\n  give one, or a file: ad.define(file='k.tc')"
    )


EXPR = "type Expr { num(float v); add(Expr a, Expr b) }\n"


@pytest.mark.parametrize("body, problem", [
    ("r = g(x, e)", "'g' takes an Expr for 'e', and 'x' is a tensor"),
    ("r = add(x, e)", "field 'a' of 'add' is an Expr, and 'x' is a tensor"),
])  # fmt: skip
def test_articles(body: str, problem: str) -> None:
    text = f"{EXPR}def f(Expr e, float x) -> (r) {{ {body} }}\n"
    with pytest.raises(ad.LanguageError) as caught:
        ad.define(text + "def g(Expr e, float x) -> (r) { r = x }")
    assert problem in str(caught.value)


def test_articles_of_arguments() -> None:
    text = EXPR + "def f(Expr e, float x) -> (r) { r = x }"
    with pytest.raises(ad.InputError) as caught:
        ad.define(text).f(3, 3)
    assert str(caught.value) == (
        "f: input 'e': got int 3, expected an Expr, or a list of them\n"
        '  an Expr is a tuple, one of: ("num", v), ("add", a, b); or give an ad.Structure'
    )


def test_misspelt_inputs(tmp_path: Path) -> None:
    file = tmp_path / "k.tc"
    file.write_text(
        "def means(float(B, T(b), D) values) -> (y) { y(b,d) +=! values(b,t,d) }\n"
        "type List<A> { nil; cons(A head, List<A> tail) }\n"
        "def count(List<float> items) -> (n) {\n"
        "  match items { nil { n = 0.0 } cons(x, rest) { n = 1 + count(rest) } }\n}\n", "utf-8",
    )  # fmt: skip
    ragged, structures = ad.compile(f"{file}:means"), ad.compile(f"{file}:count")
    for model, given, right in ((ragged, "value", "values"), (structures, "itmes", "items")):
        with pytest.raises(ad.InputError) as caught:
            model(**{given: [np.ones((2, 3), "f")]})
        assert (
            str(caught.value) == f"{model.name} has no input '{given}'\n  did you mean '{right}'?"
        )


def test_sources() -> None:
    with pytest.raises(ad.OptionError) as caught:
        ad.compile(3)
    assert "a torch.nn.Module with example arguments" in caught.value.hint
