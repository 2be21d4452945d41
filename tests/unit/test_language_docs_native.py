"""Promise: the examples of docs/language.md give the same in native code."""

import re

import numpy as np
import pytest

import anydim as ad
from tests.unit.lang.test_language_docs import NAMES, PROGRAMS, array, constructors

LINES = [
    (text, line)
    for text, _ in PROGRAMS
    for line in re.findall(r"^#> (.*==.*)$", text, re.M)
    if "...p=" not in line  # the share of an ellipsis is given to `instantiate` only
]


@pytest.mark.parametrize("text, line", LINES, ids=range(len(LINES)))
def test_examples(text, line):
    call, _, expected = line.partition("==")
    name, inner = re.fullmatch(r"(\w+)\((.*)\)", call.strip()).groups()
    library = ad.define(text)
    function = library[name]
    definitions = {each.definition.name: each.definition for each in library.values()}
    arguments, attributes = eval(
        f"(lambda *a, **k: (a, k))({inner})", {**NAMES, **constructors(definitions)}
    )
    arrays = [
        v if isinstance(v, tuple) else array(p.type, v)
        for p, v in zip(function.definition.parameters, arguments)
    ]
    results = function(*arrays, **attributes)
    results = results if isinstance(results, tuple) else (results,)
    for result, value in zip(results, eval(f"({expected},)", dict(NAMES)), strict=True):
        assert result.shape == np.shape(value)
        np.testing.assert_allclose(result, value, rtol=1e-5)
