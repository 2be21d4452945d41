"""Oracles: other implementations that compute the results of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy

from anydim.base.records import dataclass

_LONGEST = 200  # characters of an exception that are quoted
Arrays = Mapping[str, numpy.ndarray]
Function = Callable[[Arrays], Arrays]


class NoAnswer(Exception):
    """An oracle cannot compute a call; the text has the reason."""


@dataclass(frozen=True)
class Answer:
    """A result of an oracle: its element type, and values, possibly of a wider float type."""

    dtype: str
    values: numpy.ndarray


@dataclass(frozen=True)
class Oracle:
    """`answer` returns the results by name, or raises NoAnswer, or InputError for a bad input.

    `note` is a remark for readers. An oracle is `independent` if it shares neither the import nor
    the kernels with the compiler. A call may have at most `flops` and `bytes` of work, as a plan
    counts them.
    """

    name: str
    title: str
    note: str
    answer: Callable[[Arrays], Mapping[str, Answer]]
    independent: bool = True
    flops: float = 16e9
    bytes: float = 256 * 2.0**20


def evaluator(reference: Function, dtypes: Mapping[str, str], what: str) -> Oracle:
    """The graph evaluator in float64, on the compiler's graph."""

    def answer(inputs: Arrays) -> Mapping[str, Answer]:
        try:
            found = reference(inputs)
        except (ArithmeticError, ValueError) as error:  # numpy has no negative power of integers
            raise NoAnswer(first_line(error)) from None
        return {name: Answer(dtypes[name], values) for name, values in found.items()}

    note = f"shares the {what} with the compiler: types and it determines sizes"
    title = "anydim's evaluator in float64"
    return Oracle("evaluator", title, note, answer, False, 16e9, 512 * 2.0**20)


def first_line(error: BaseException) -> str:
    """The type and first line of an exception."""
    text = str(error).strip().split("\n", 1)[0]
    whole = f"{type(error).__name__}: {text}"
    return whole if len(whole) <= _LONGEST else f"{whole[:_LONGEST]}..."
