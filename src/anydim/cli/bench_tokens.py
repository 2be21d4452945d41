"""`anydim bench --tokens`: how fast a language model reads prompts and generates."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from time import perf_counter
from typing import Any

import numpy

from anydim.base.errors import OptionError
from anydim.base.text import count_of, table
from anydim.cli.language import open_requested
from anydim.cli.options import Request
from anydim.cli.report.console import Console

ROWS = (1, 4, 16)
STEPS = 16  # of a round, each of a token for every row
CHUNK = 128  # tokens of a prompt that a step has, as in a decoder


def bench_tokens(console: Console, request: Request, tokens: int, rounds: int, seed: int) -> None:
    """Print tokens a second: of prompts, and of sequences behind such prompts.

    Raises OptionError for prompts above the context of the model.
    """
    lm = open_requested(console, request)
    if tokens + STEPS > lm.spec.context:
        raise OptionError(f"--tokens {tokens}: sequences of {lm.name} have at most "
                          f"{lm.spec.context}, {STEPS} of them new")  # fmt: skip
    chance = numpy.random.default_rng(seed)
    prompts = chance.integers(0, lm.spec.vocabulary, (max(ROWS), tokens))
    with lm, console.task("measuring") as advance:
        _read(lm.model, prompts[:1])  # arrays of steps are allocated
        found = []
        for number, count in enumerate(ROWS):
            advance(number, len(ROWS), f"{count} rows")
            found.append(_row(lm.model, prompts[:count], rounds))
    console.table(table(("rows", "prompt", "new tokens", "of each row"), found))
    console.note(f"tokens a second, prompts of {count_of(tokens, 'token')}, "
                 f"{STEPS} new ones, medians of {rounds} rounds")  # fmt: skip


def _row(model: Any, prompts: numpy.ndarray, rounds: int) -> Sequence[str]:
    reads, steps = [], []
    for _ in range(rounds):
        read, step = _read(model, prompts)
        reads.append(read)
        steps.append(step)
    count = len(prompts)
    read, new = prompts.size / median(reads), count * STEPS / median(steps)
    return str(count), f"{read:.1f}", f"{new:.1f}", f"{new / count:.1f}"


def _read(model: Any, prompts: numpy.ndarray) -> tuple[float, float]:
    """Seconds of reading prompts one after the other, and of new tokens for all of them."""
    rows = [model.join() for _ in prompts]
    try:
        start = perf_counter()
        for row, prompt in zip(rows, prompts):
            for begin in range(0, len(prompt), CHUNK):
                model.step({row: prompt[begin : begin + CHUNK]})
        middle = perf_counter()
        for _ in range(STEPS):
            model.step({row: prompt[:1] for row, prompt in zip(rows, prompts)})
        return middle - start, perf_counter() - middle
    finally:
        for row in rows:
            model.leave(row)
