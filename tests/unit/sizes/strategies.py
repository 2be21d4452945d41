"""Random size expressions with a meaning of their own to check against, and small boxes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from anydim.base.errors import DimError
from anydim.sizes import Box, Condition, Dim, Size, condition, maximum, minimum

NAMES = ("a", "b", "n")
checked = settings(
    derandomize=True,
    deadline=None,
    max_examples=150,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True)
class Pair:
    """A size and the plain Python function it must agree with."""

    size: Size
    meaning: Callable[[Mapping[str, int]], int]


def leaf() -> st.SearchStrategy[Pair]:
    symbols = st.sampled_from(NAMES).map(lambda n: Pair(Size.symbol(n), lambda env: env[n]))
    numbers = st.integers(-9, 9).map(lambda c: Pair(Size.constant_of(c), lambda env: c))
    return symbols | numbers


def _binary(parts: tuple[str, Pair, Pair]) -> Pair:
    function, x, y = parts
    left, right = x.meaning, y.meaning
    if function in ("//", "%") and y.size.constant == 0:
        function = "+"
    make: dict[str, Callable[[], Pair]] = {
        "+": lambda: Pair(x.size + y.size, lambda e: left(e) + right(e)),
        "-": lambda: Pair(x.size - y.size, lambda e: left(e) - right(e)),
        "*": lambda: Pair(x.size * y.size, lambda e: left(e) * right(e)),
        "//": lambda: Pair(x.size // y.size, lambda e: left(e) // right(e)),
        "%": lambda: Pair(x.size % y.size, lambda e: left(e) % right(e)),
        "min": lambda: Pair(minimum(x.size, y.size), lambda e: min(left(e), right(e))),
        "max": lambda: Pair(maximum(x.size, y.size), lambda e: max(left(e), right(e))),
    }
    return make[function]()


def pairs(leaves: int = 6) -> st.SearchStrategy[Pair]:
    functions = st.sampled_from(("+", "-", "*", "//", "%", "min", "max"))

    def larger(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
        choices = st.tuples(_comparisons(inner), inner, inner).map(_choice)
        return st.tuples(functions, inner, inner).map(_binary) | choices

    return st.recursive(leaf(), larger, max_leaves=leaves)


@dataclass(frozen=True)
class Question:
    """A condition and the plain Python function it must agree with."""

    condition: Condition
    meaning: Callable[[Mapping[str, int]], bool]


RELATIONS = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def _compared(parts: tuple[str, Pair, Pair]) -> Question:
    relation, x, y = parts
    holds = RELATIONS[relation]
    found = condition(x.size, relation, y.size)
    return Question(found, lambda env: holds(x.meaning(env), y.meaning(env)))


def _joined(parts: tuple[str, Question, Question]) -> Question:
    function, x, y = parts
    one, other = x.meaning, y.meaning
    make: dict[str, Callable[[], Question]] = {
        "and": lambda: Question(x.condition & y.condition, lambda e: one(e) & other(e)),
        "or": lambda: Question(x.condition | y.condition, lambda e: one(e) | other(e)),
        "not": lambda: Question(~x.condition, lambda e: not one(e)),
    }
    return make[function]()


def _comparisons(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Question]:
    return st.tuples(st.sampled_from(tuple(RELATIONS)), inner, inner).map(_compared)


def questions(leaves: int = 3) -> st.SearchStrategy[Question]:
    joins, compared = st.sampled_from(("and", "or", "not")), _comparisons(pairs(leaves))
    joined = st.tuples(joins, compared, compared).map(_joined)
    return compared | joined | st.tuples(joins, joined, joined).map(_joined)


def _choice(parts: tuple[Question, Pair, Pair]) -> Pair:
    question, x, y = parts
    holds, then, otherwise = question.meaning, x.meaning, y.meaning
    return Pair(
        question.condition.where(x.size, y.size),
        lambda env: (otherwise(env), then(env))[holds(env)],
    )


def sizes(leaves: int = 6) -> st.SearchStrategy[Size]:
    return pairs(leaves).map(lambda pair: pair.size)


@st.composite
def boxes(draw: st.DrawFn, constrained: bool = False) -> Box:
    dims = []
    for name in NAMES:
        lo = draw(st.integers(0, 3))
        dims.append(Dim(name, lo, lo + draw(st.integers(0, 4))))
    constraints = ()
    if constrained:
        low = {dim.name: dim.lo for dim in dims}
        constraints = tuple(
            size - size.evaluate(low)  # holds with equality at the lower corner at least
            for size in draw(st.lists(sizes(3), max_size=2))
            if defined(size, low) is not None
        )
    return Box(tuple(dims), constraints)


def points(box: Box) -> Iterator[dict[str, int]]:
    """Every size assignment of a small box."""
    ranges = [range(dim.lo, dim.hi + 1) for dim in box.dims if dim.hi is not None]
    for values in product(*ranges):
        env = dict(zip(box.names, values))
        if box.contains(env):
            yield env


def defined(size: Size, env: Mapping[str, int]) -> int | None:
    """The value, or None where a divisor is 0."""
    try:
        return size.evaluate(env)
    except DimError:
        return None
