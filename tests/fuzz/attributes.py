"""Attributes of operators given as other things: `python -m tests.fuzz --attributes`.

One attribute of a case of `tests/ops`, or an item of it, is another kind of number, a size, or has
no meaning. The operator is refused by a UserError, or makes a graph that says what it computes; an
equal number of another kind makes the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import numpy as np

from anydim.base.errors import InternalError, UserError
from anydim.compiler.graph.operator import OPERATORS
from anydim.compiler.graph.reader import read_graph
from anydim.compiler.graph.text import print_graph
from anydim.sizes import as_size
from tests.fuzz.runner import Outcome, run_texts
from tests.fuzz.wrong_calls import Spiteful
from tests.ops.case import Case
from tests.ops.cases import CASES
from tests.ops.test_operators import build, evaluate_at, feed

SIZES = {"n": 4, "m": 3}
WITH = [(name, number) for name, cases in CASES.items() for number in range(len(cases))
        if OPERATORS[name].attributes and name != "call_levels"]  # fmt: skip
"""Of call_levels, the plan is the compiler's own."""


class _NoTruth:
    """A number whose truth and order nobody knows."""

    def __bool__(self) -> bool:
        raise ValueError("the truth is ambiguous")

    __lt__ = __le__ = __gt__ = __ge__ = __index__ = __bool__


def equal_forms(value: Any) -> list[Any]:
    """The same value as another kind of thing."""
    if isinstance(value, bool):
        return [np.bool_(value), int(value)]
    if isinstance(value, int):
        small = [np.int32(value), np.uint8(value)] if 0 <= value < 256 else []
        return [as_size(value), *([np.int64(value)] if abs(value) < 1 << 63 else []), *small]
    if isinstance(value, float):
        return [np.float64(value), *([int(value)] if value.is_integer() else [])]
    if isinstance(value, tuple):
        return [list(value), np.array(value).tolist(), iter(value)] if value else [[]]
    return []


def others(value: Any) -> list[Any]:
    """Things that mean something else, or nothing."""
    made = [None, True, False, -1, 0, 1, 7, 1 << 70, 0.5, 2.0, float("nan"), "x", (), (1,), (0, 0),
            as_size("n"), as_size("n") - 2, as_size("q"), np.int64(-3), np.float32(1.5),
            np.array([1, 2]), Spiteful(), _NoTruth(), object(), len, {}, {"a": 1}, b"x", 1j,
            np.dtype("int64"), Ellipsis, (None,), ("n",), [[1]]]  # fmt: skip
    if isinstance(value, tuple):
        made += [value[:-1], (*value, *value[-1:]), value[::-1]]
    return made


def changed(chance: Random, value: Any) -> tuple[Any, bool]:
    """Another value, and whether it has the same meaning."""
    if isinstance(value, tuple) and value and chance.random() < 0.7:
        place = chance.randrange(len(value))
        item, same = changed(chance, value[place])
        return (*value[:place], item, *value[place + 1 :]), same
    forms = equal_forms(value)
    if forms and chance.random() < 0.4:
        return chance.choice(forms), True
    return chance.choice(others(value)), False


def drawn(seed: int) -> tuple[str, Case, str, bool]:
    """An operator, its case with one attribute changed, which one, and whether it is the same."""
    chance = Random(seed)
    name, number = chance.choice(WITH)
    case, known = CASES[name][number], dict(OPERATORS[name].attributes)
    given = {**known, **{k.removesuffix("_type"): v for k, v in case.attributes.items()}}
    key = chance.choice(sorted(known))
    value, same = changed(chance, given.get(key))
    attributes = {k.removesuffix("_type"): v for k, v in case.attributes.items()}
    return name, replace(case, attributes={**attributes, key: value}), key, same


@cache
def _usual(name: str, number: int) -> Any:
    return result(name, CASES[name][number])


def result(name: str, case: Case) -> Any:
    """The results of a case at one size, by name."""
    graph = build(name, case)
    text = print_graph(graph)
    if print_graph(read_graph(text, graph.constants)) != text:
        raise AssertionError("the text of the graph is another")
    found = evaluate_at(graph, feed(graph, case, OPERATORS[name].domain, SIZES), SIZES)
    for output, array in found.items():
        kind = graph.types[output]
        wanted = tuple(size.evaluate(SIZES) for size in kind.shape)
        if array.shape != wanted or array.dtype != kind.dtype.numpy:
            raise AssertionError(f"{output} is {array.dtype}{array.shape}, declared as {kind}")
    return {each: array.tobytes() for each, array in found.items()}


def fault(seed: int) -> str:
    """What is wrong with the outcome of a changed attribute; '' for nothing."""
    name, case, _, same = drawn(seed)
    try:
        found = result(name, case)
    except InternalError as error:
        return f"internal: {error}"
    except UserError as error:
        return "" if str(error) else "an error without a text"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    number = Random(seed).choice(WITH)[1]
    return "another result" if same and found != _usual(name, number) else ""


def described(seed: int) -> str:
    """The case as a line."""
    name, case, key, same = drawn(seed)
    return f"{name}({', '.join(case.inputs)}), {key}={_shown(case.attributes[key])}, same: {same}"


def _shown(value: Any) -> str:
    try:
        return repr(value)[:200]
    except Exception:
        return f"a {type(value).__name__}"


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of these seeds, in order."""
    return run_texts(seeds, small, fault, described)
