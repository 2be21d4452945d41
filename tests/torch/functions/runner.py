"""Draws, compares and shrinks the functions of some seeds, in processes of their own."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from tests.fuzz.runner import BEGIN, SECONDS, Outcome, run_each, stop_after
from tests.torch.functions.draw import random_function
from tests.torch.functions.exported import judge_exported
from tests.torch.functions.function import Function
from tests.torch.functions.judge import Failure, judge, refusals
from tests.torch.functions.lots import refused_by_lot
from tests.torch.functions.shrink import shrink


def run(
    seeds: range, small: bool = True, is_refusal_shown: bool = False, is_split: bool = False
) -> Iterator[Outcome]:
    """The outcomes of the functions of these seeds, in order. With `is_split`, operators are
    refused by lot."""
    one = partial(_one, is_refusal_shown=is_refusal_shown, is_split=is_split)
    yield from run_each(seeds, small, one, _crashed)


def _one(seed: int, small: bool, is_refusal_shown: bool, is_split: bool) -> Iterator[Outcome]:
    torch.set_num_threads(1)
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    yield Outcome(seed, BEGIN)
    stop_after(SECONDS)
    function = random_function(seed)
    if is_refusal_shown:
        logging.getLogger("torch._dynamo").setLevel(logging.WARNING)
        found = sorted(set(refusals(function)))
        yield Outcome(seed, "\n".join(found), function.text())
        return
    judges: Sequence[Any] = (judge, judge_exported)
    if is_split:
        judges = (partial(_in_sections, seed),)
    for judged in judges:
        failure = judged(function)
        if failure is not None:
            break
    if failure is not None and small:
        stop_after(SECONDS * 10)
        function, failure = shrink(function, failure, judged)
    yield Outcome(seed, str(failure or ""), function.shown() if failure else "")


def _in_sections(seed: int, function: Function) -> Failure | None:
    with refused_by_lot(seed):
        return judge(function)


def _crashed(seed: int, end: str, small: bool) -> Outcome:
    return Outcome(seed, f"crash: {end}", random_function(seed).shown())
