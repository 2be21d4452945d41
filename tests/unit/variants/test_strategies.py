"""Promise: a strategy prints as the text that it is parsed from; wrong ones say what is right."""

from __future__ import annotations

import pytest

import anydim as ad
from anydim.variants.strategies import Adaptive, Buckets, Exact, Generic, strategy_of


@pytest.mark.parametrize(
    "made",
    [Generic(), Exact(), Exact(3), Adaptive(), Adaptive(limit=2, after=9, most=0.5),
     Buckets({"seq": (1, 16), "batch": (8,)}), Buckets({"x.2": (3, 4)})],
    ids=str,
)  # fmt: skip
def test_a_strategy_is_what_it_prints(made: object) -> None:
    assert strategy_of(str(made)) == made
    assert strategy_of(str(made).replace(", ", ",")) == made


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("exakt", "did you mean 'exact'"),
        ("", "there is no strategy ''"),
        ("exact(limit=0)", "limit"),
        ("exact(size=3)", "no option 'size'"),
        ("generic(limit=3)", "it has no options"),
        ("adaptive(most=2.0)", "most is 2.0"),
        ("buckets()", "buckets of 0 dims"),
        ("buckets(seq=[1,2)", "cannot be read"),
        ("exact(2 ** 9)", "'2 ** 9' cannot be read"),
        ("exact(1, 2)", "too many positional arguments"),
        ("__import__('os')", "there is no strategy '__import__'"),
        ("(" * 500, "cannot be read"),
        (f"buckets({', '.join(f'd{n}={list(range(9))}' for n in range(5))})", "combinations"),
    ],
)
def test_wrong_texts_say_what_is_right(text: str, words: str) -> None:
    with pytest.raises(ad.OptionError) as raised:
        strategy_of(text)
    assert words in str(raised.value)
