"""Promise: models, decoders and sequences are not copied; a forked child generates anew."""

from __future__ import annotations

import copy
import os
import pickle
import signal
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.serving.language_models.language_model import LanguageModel

PROMPT = "the quick"


@pytest.mark.parametrize("act", (copy.copy, copy.deepcopy, pickle.dumps))
@pytest.mark.parametrize("part", (
    lambda lm: lm, lambda lm: lm.decoder, lambda lm: lm.generate(PROMPT, 2),
    lambda lm: lm.decoder.generate([1], 2),
))  # fmt: skip
def test_they_are_neither_copied_nor_pickled(
    lm: LanguageModel, act: Callable[[Any], Any], part: Callable[[Any], Any]
) -> None:
    with pytest.raises(ad.UserError, match="neither copied nor pickled"):
        act(part(lm))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_generates_and_ends_the_sequences_of_its_parent(lm: LanguageModel) -> None:
    expected = lm.generate(PROMPT, 20)
    text = expected.read()
    running = lm.generate(PROMPT, 100)
    first = next(running)
    source, target = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            again = lm.generate(PROMPT, 20)
            found = "same" if again.read() == text and again.tokens == expected.tokens else "other"
            try:
                while next(running, None) is not None:
                    pass
            except ad.BusyError:
                found += ", ended"
        except BaseException as error:
            found = repr(error)
        os.write(target, found.encode())
        os._exit(0)
    os.close(target)
    assert os.waitpid(child, 0)[1] == 0
    with os.fdopen(source) as read:
        assert read.read() == "same, ended"
    assert first + running.read() == lm.generate(PROMPT, 100).read()


def test_integers_of_numpy_are_integers(lm: LanguageModel) -> None:
    bias = {numpy.int64(5): 3.0, numpy.uint8(7): numpy.float64(1)}
    plain = lm.generate(PROMPT, 5, logit_bias={5: 3.0, 7: 1.0}).read()
    assert lm.generate(PROMPT, numpy.int32(5), logit_bias=bias).read() == plain
    assert lm.memory(numpy.array([3])) == lm.memory([3])
    for wrong in ({-1: 1.0}, {"5": 1.0}, {True: 1.0}, {5: 10**400}, {5: "1"}):
        with pytest.raises(ad.OptionError, match="logit_bias"):
            lm.generate(PROMPT, 5, logit_bias=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name, given", (
    ("cache_bytes", (5,)), ("cache_bytes", ([-1],)), ("cache_bytes", (["1"],)),
    ("step_bytes", ([1], [1, 2])), ("step_bytes", ([1], 5)), ("step_bytes", ([1], [1], 5)),
    ("step_bytes", ([1], [1], {"picks": [1, 2]})), ("cache_room", ("x", 1)),
    ("cache_room", (1, -1)),
    ("limit_caches", (None,)), ("limit_caches", (-1,)), ("plan", ([1], [1, 2])), ("plan", (5, 5)),
    ("plan", ([1], {"s": [1]})), ("plan", ([1], {})),
))  # fmt: skip
def test_sizes_of_rows_are_checked(lm: LanguageModel, name: str, given: tuple[Any, ...]) -> None:
    with pytest.raises(ad.UserError):
        getattr(lm.model, name)(*given)
