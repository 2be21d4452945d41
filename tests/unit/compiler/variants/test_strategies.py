"""Promise: a strategy prints as the text that it is parsed from; wrong ones say what is right."""

from __future__ import annotations

import pytest

import anydim as ad
from anydim.compiler.variants.strategies import (
    Adaptive,
    Buckets,
    Exact,
    Generic,
    Where,
    strategy_of,
)


@pytest.mark.parametrize(
    "made",
    [Generic(), Exact(), Exact(3), Adaptive(), Adaptive(limit=2, after=9, most=0.5),
     Adaptive(bits="any", patience=0.5),
     Buckets({"seq": (1, 16), "batch": (8,)}), Buckets({"x.2": (3, 4), "n": 7}),
     Buckets({"n": ((3, 4), 9, (12, 12))}), Buckets({"n": [0, 8]}),
     Buckets({}, 'a "b".jsonl', 5), Buckets({"n": (3,)}, profile="s.jsonl", bits="any"),
     Where("m <= 4", Exact(), Adaptive()), Where("1 < m*n and m != 8", Where("k > 1", Exact()))],
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
        ("buckets(n=[[4, 2]])", "has no sizes"),
        ("buckets(profile=3, n='a')", "a size of 'n'"),
        ("adaptive(bits=3)", "bits is 3"),
        ("where('m', exact())", "'m' is not a condition"),
        ("where('m <', exact())", "expected"),
        ("where('m < 3', 4)", "then is"),
        ("where('m < 3')", "missing a required argument: 'then'"),
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


def test_a_list_has_the_largest_size_of_each_bucket_and_a_number_is_that_size() -> None:
    made = Buckets({"n": [32, 1, 16], "m": 8, "k": [0, 4, (9, 12)]})
    assert made.sizes == {
        "n": ((1, 1), (2, 16), (17, 32)), "m": ((8, 8),), "k": ((0, 0), (1, 4), (9, 12))
    }  # fmt: skip
    assert len(list(made.combinations())) == 9
    assert str(made) == "buckets(n=[1, 16, 32], m=[[8, 8]], k=[0, 4, [9, 12]])"


def test_a_condition_is_of_sizes() -> None:
    made = Where("2 <= m < 9 and m*n != 6", Exact())
    holds = lambda m, n: all(each.holds({"m": m, "n": n}) for each in made.relations)  # noqa: E731
    assert [holds(*each) for each in ((1, 1), (2, 1), (8, 1), (9, 1), (3, 2))] == [
        False, True, True, False, False
    ]  # fmt: skip
    assert made.names == {"m", "n"} and list(made.leaves()) == [Exact(), Generic()]
    assert not Where("m // n > 0", Exact()).relations[0].holds({"m": 1, "n": 0})
