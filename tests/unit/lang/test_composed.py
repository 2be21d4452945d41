"""Promise: a composed function is what its row says in the language's own words."""

import re

import numpy as np
import pytest

from anydim.base.errors import LanguageError
from anydim.lang.tree.composed import COMPOSED
from tests.unit.lang.language import check, run

NAMES = ("x", "a", "b")
X = np.array([-3, -0.6, -0.1, 0, 0.1, 0.5, 2, 40], "float32")
SCALARS = {"a": np.float32(0.4), "b": np.float32(0.3)}


@pytest.mark.parametrize("row", COMPOSED.values(), ids=lambda row: row.name)
def test_meaning(row):
    given = NAMES[: row.arity]
    scalars = "".join(f", float {name}" for name in given[1:])
    head = f"def f(float(N) x{scalars}) -> (y)"
    x = np.abs(X) + 0.5 if row.name.startswith("log") or row.name == "reciprocal" else X
    if row.name == "exp2":
        x = X / 2
    arguments = [x, *(SCALARS[name] for name in given[1:])]
    call = f"{row.name}({', '.join(['x(i)', *given[1:]])})"
    words = re.sub(r"\bx\b", "x(i)", row.meaning)
    expected = run(f"{head} {{ y(i) = {words} }}", *arguments)
    assert expected.dtype == np.float32
    check(f"{head} {{ y(i) = {call} }}", expected, *arguments)


def test_too_large_an_expression_is_an_error():
    value = "x(i)"
    for _ in range(60):
        value = f"gelu({value})"
    with pytest.raises(LanguageError, match="too large"):
        run(f"def f(float(N) x) -> (y) {{ y(i) = {value} }}", X)
