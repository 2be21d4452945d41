"""Promise: a call that cannot be inside its expression is an error that says how to write it."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad

DEFINITIONS = """def g(float x) -> (y) { y = x }
def h(float x) -> (y, z) { y = x z = x }
def v(float(N) x) -> (y) { y(i) = x(i) }
def less(float x) -> (y) { y = x }
"""
BODIES = [
    ("y = 2 * ¦v(x)", "'v(x)' has 1 dimension and needs indices",
     "assign its result first: y = v(x)"),
    ("¦y = 2 * h(x(0))", "'h' has 2 results (y, z), but 1 are assigned", "write: y, z = h(...)"),
    ("y(i) = 2 * ¦g(x(i) + 1)", "an argument of 'g' has the index 'i', and is no row x(i)",
     "assign it first: t(i) = ..., and pass t(i)"),
    ("y(i) = x(i) > 0 ? ¦g(x(i)) : 1", "'g' is called behind '?:' for some elements only",
     "assign its result first, where it is evaluated for all: y = g(...)"),
    ("y(i) = x(i) > 0 && ¦g(x(i)) > 1", "'g' is called behind '&&' for some elements only",
     "assign its result first, where it is evaluated for all: y = g(...)"),
    ("y(i) = x(i + 1) else ¦g(1.0) where i in 0:N",
     "'g' is called behind 'else' for some elements only",
     "assign its result first, where it is evaluated for all: y = g(...)"),
    ("y(i) = 2 * ¦g(x(i)) where i in 0:2",
     "'g' is called for each 'i', in a statement with 'where'",
     "assign its result first: y(i) = g(...)"),
    ("y = 2 * g(¦a)", "an argument has no index 'a'",
     "it may use sizes, loop variables and scalars"),
    ("y = ¦a > 0 ? g(x(0)) : 1", "a condition has no index 'a'",
     "it may use sizes, loop variables and scalars"),
    ("y(i) = 1 + ¦softmax(x(i))",
     "'softmax' takes whole tensors and numbers, without the index 'i'",
     "assign its result first: y = softmax(...)"),
    ("y, z = top_k(x; k = ¦g(2.0))", "attribute 'k' is known only at run time",
     "attributes are constants and sizes; pass tensors and scalars as arguments"),
    ("y(i) = 1 + ¦less(x(i))", "'less' takes 2 arguments, not 1",
     "it is a function of the language here: rename the definition"),
    ("for t in 0:N { y(t) = 2 * ¦g(x(t), 1) }", "'g' takes 1 tensor (x), not 2",
     "write g(x) with your tensors"),
]  # fmt: skip


@pytest.mark.parametrize("marked, problem, hint", BODIES)
def test_message(marked: str, problem: str, hint: str) -> None:
    head = "def f(float(N) x) -> (y) { "
    line = f"{head}{marked.replace('¦', '')} }}"
    column = len(head) + marked.index("¦") + 1
    with pytest.raises(ad.LanguageError) as caught:
        ad.define(DEFINITIONS + line).f(np.ones(3, "f"))
    place = f"<text>:5:{column}: f: {problem}\n    {line}\n    {'^':>{column}}"
    assert str(caught.value) == f"{place}\n  {hint}"
