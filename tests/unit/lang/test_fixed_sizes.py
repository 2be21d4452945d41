"""Promise: a size that is a number refuses no call that the program with a free size runs."""

import numpy as np
import pytest

import anydim as ad
from anydim.base.errors import InputError, LanguageError
from tests.unit.lang.language import group_of, random, run

RAGGED = """def ragged(float(B,T) x, int64(B) length) -> (y) {
  y(b,t) = -1 where exists x(b,t)
  for b in 0:B {
    for t in 0:length(b) { y(b,t) = (y(b,t - 1) else 0) + x(b,t) }
  }
}"""


@pytest.mark.parametrize("fixed", [{"B": 0}, {"T": 0}, {"B": 1}, {"T": 1}, {"B": 0, "T": 0}])
def test_a_fixed_size_refuses_no_call_that_the_free_program_runs(fixed):
    free, f = ad.define(RAGGED).ragged, ad.define(RAGGED, fixed=fixed).ragged
    for batch in {0, 1, 3} if "B" not in fixed else {fixed["B"]}:
        for time in {0, 1, 4} if "T" not in fixed else {fixed["T"]}:
            x = random(batch, time)
            length = np.minimum(np.arange(batch), time)
            assert np.array_equal(free(x, length), f(x, length))


def test_a_read_beyond_a_fixed_size_is_an_error_of_the_call_that_reaches_it():
    text = """def f(float(N) x, bool(B) on) -> (y) {
      y = 0.0
      for b in B { if on(b) { y = y + x(3) } }
    }"""
    f = ad.define(text, fixed={"N": 2}).f
    assert f([1.0, 2.0], np.array([False, False])) == 0
    with pytest.raises(InputError, match=r"index 3 is outside 0\.\.1 of 'x'"):
        f([1.0, 2.0], np.array([False, True]))


def test_a_read_beyond_a_fixed_size_that_every_call_reaches_is_an_error_of_the_text():
    with pytest.raises(LanguageError, match="is read at 3 to 4 of dimension 0, whose size is 2"):
        group_of("def f(float(N) x) -> (y) { y(i) = x(i + 3) where i in 0:2 }", random(2))


def test_a_text_that_is_wrong_where_sizes_are_free_is_wrong_where_they_are_fixed():
    text = "def f(float(N) x) -> (y) { for t in N { y(t) = x(t + 1) } }"
    with pytest.raises(LanguageError, match="is read at 1 to 3 of dimension 0, whose size is 3"):
        run(text, random(3))
