"""Promise: a number is one of Python's or numpy's, but no bool."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.base.user_values import ABOVE_ZERO, number_within
from anydim.serving.sampling import sampled

NUMBERS = (numpy.float16, numpy.float32, numpy.float64, numpy.int8, numpy.uint64, Fraction, int)
WRONG = (True, numpy.True_, "1", b"1", 1j, None, float("nan"), numpy.float32("nan"), [1.0],
         numpy.ones(1), 10**400, -(10**400), float("inf"))  # fmt: skip


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_of_all_kinds_are_taken(kind: Any) -> None:
    assert number_within("x", kind(1), ABOVE_ZERO, 1, "") == 1
    logits = numpy.array([0.0, 3.0, 1.0])
    given = {"temperature": kind(1), "top_p": kind(1), "logit_bias": {kind(2) if kind is int else 2:
             kind(1)}, "repetition_penalty": kind(1), "min_p": kind(0)}  # fmt: skip
    own = [sampled(**given, seed=n)(logits) for n in range(9)]
    assert own == [sampled(1.0, 1.0, n, logit_bias={2: 1.0})(logits) for n in range(9)]
    scaled = ad.define("def f(float(N) x; float a) -> (y) { y(i) = x(i) * a }").f
    assert scaled(numpy.ones(1, numpy.float32), a=kind(1)) == 1


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(ad.OptionError, match="x is"):
        number_within("x", value, 0, 1e300, "")
    with pytest.raises(ad.OptionError, match="temperature is"):
        sampled(value)


def test_inputs_and_parameters_may_have_any_name() -> None:
    x, function = numpy.ones(2, numpy.float32), ad.define("def f(float(N) self) -> (y) {"
                                                          " y(i) = self(i) + 1 }").f  # fmt: skip
    assert function(self=x).tolist() == [2, 2] and function.sizes(self=x)
    assert function.model(self=x)(self=x)["y"].tolist() == [2, 2]
