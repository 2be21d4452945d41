"""Promise: the examples of docs/language.md give the same in native code."""

import re

import pytest

import anydim as ad
from anydim.lang.surface.parser import parse
from tests.unit.lang.language import assert_same
from tests.unit.lang.test_language_docs import PROGRAMS, example

LINES = [
    (text, line)
    for text, _ in PROGRAMS
    for line in re.findall(r"^#> (.*==.*)$", text, re.M)
    if "...p=" not in line  # the share of an ellipsis is given to `instantiate` only
]


@pytest.mark.sampled(most=31)
@pytest.mark.parametrize("text, line", LINES, ids=range(len(LINES)))
def test_examples(text, line):
    definition, arguments, attributes, wanted = example(parse(text), line)
    results = ad.define(text)[definition.name](*arguments, **attributes)
    results = results if isinstance(results, tuple) else (results,)
    for result, value in zip(results, wanted, strict=True):
        made = result.nested() if isinstance(result, ad.Structure) else result
        assert_same(made, value, rtol=1e-5)
