"""Layers over time, sorting and marking, sizes that data decides, loops and branches.

Places and marks are only taken of exact values; numbers in order move no more than what they are
made of.
"""

from __future__ import annotations

import anydim as ad
from anydim.base.dtypes import boolean
from anydim.compiler.frontends.builder import Builder, Value
from anydim.sizes import as_size
from tests.fuzz.maker import Maker

_GATES = {"rnn": (1, ("tanh",)), "gru": (3, ("sigmoid", "tanh")),
          "lstm": (4, ("sigmoid", "tanh", "tanh"))}  # fmt: skip


def recurrent(m: Maker) -> tuple[Value, ...]:
    """One direction of a layer of few units."""
    kind = m.one(tuple(_GATES))
    gates, activations = _GATES[kind]
    hidden, width = m.one((1, 3, 8, 17)), m.one((1, 4, 16))
    x = m.pick(lambda v: v.dtype == ad.float32 and len(v.shape) == 3 and bool(v.shape[2].constant))
    if x is None:
        x = m.input((m.size(), m.size(), as_size(width)), ad.float32)
    ways = m.one((1, 1, 2))
    w = m.constant((ways, gates * hidden, x.shape[2].constant or 1), ad.float32)
    contracting = 0.5 / hidden**0.5  # else a hundred iterations make any rounding the whole result
    r = m.constant((ways, gates * hidden, hidden), ad.float32, contracting)
    bias = [m.constant((ways, 2 * gates * hidden), ad.float32)] if m.chance(0.6) else []
    return tuple(
        getattr(m.builder, kind)(
            x, w, r, *bias, given=("bias",) * len(bias), direction=ways - 1,
            reverse=m.chance(0.4), activations=tuple((name, 0.0, 0.0) for name in activations),
        )
    )  # fmt: skip


def _ordered(m: Maker, exact: bool, high: int = 4) -> Value:
    """A value of numbers with axes."""
    found = m.pick(
        lambda v: (
            v.dtype != boolean and 1 <= len(v.shape) <= high and (v.name in m.exact or not exact)
        )
    )
    return m.input(m.shape(1, min(high, 3)), ad.float32) if found is None else found


def sort(m: Maker) -> Value | tuple[Value, ...]:
    """Numbers in order; their places too where rounding moves nothing."""
    x = _ordered(m, m.chance(0.5))
    axis = m.random.randrange(len(x.shape))
    made, places = m.builder.sort(x, axis=axis, descending=m.chance(0.4))
    return _with_places(m, x, made, places)


def top_k(m: Maker) -> Value | tuple[Value, ...] | None:
    x = _ordered(m, m.chance(0.5))
    axes = [axis for axis, size in enumerate(x.shape) if size.constant]
    if not axes:
        return None
    axis = m.one(axes)
    k = m.random.randint(0, x.shape[axis].constant or 0)
    made, places = m.builder.top_k(x, k=k, axis=axis, largest=m.chance(0.6))
    return _with_places(m, x, made, places)


def _with_places(m: Maker, x: Value, made: Value, places: Value) -> Value | tuple[Value, ...]:
    if not m.is_exact(x):
        return made
    m.exact.update((made.name, places.name))
    return made, places


def product(m: Maker) -> Value | None:
    if m.specials:  # in float32 alone, a part of a product may be infinite
        return None
    x = m.float(1, 3)
    axis = m.random.randrange(len(x.shape))
    return m.builder.cum_prod(x, axis=axis, exclusive=m.chance(0.4), reverse=m.chance(0.4))


def nonzero(m: Maker) -> Value:
    made = m.builder.nonzero(_ordered(m, True, 3))
    m.exact.add(made.name)
    return made


def compress(m: Maker) -> Value:
    """The slices that a comparison, or an input, marks."""
    x = _ordered(m, False, 3)
    axis = m.random.randrange(len(x.shape))
    marks = m.input((x.shape[axis],), boolean)
    return m.keep_exact(m.builder.compress(x, marks, axis), x)


def unique(m: Maker) -> tuple[Value, ...]:
    """Of integers: equal numbers that are shaken are not equal any more."""
    x = m.pick(lambda v: v.dtype.is_integer and v.name in m.exact and 1 <= len(v.shape) <= 2)
    x = m.input(m.shape(1, 2), ad.int64) if x is None else x
    axis = m.random.randrange(len(x.shape)) if m.chance(0.4) else None
    made = m.builder.unique(x, axis, m.chance(0.7))
    m.exact.update(value.name for value in made)
    return made


def loop(m: Maker) -> tuple[Value, ...]:
    """A state that each iteration changes, and what it was at the end of each."""
    start = m.float(0, 3)
    weight = m.mate(start, narrow=True)
    function = m.one(("tanh", "sigmoid", "relu", "sin"))

    def body(b: Builder, iteration: object, state: Value) -> Value:
        changed = getattr(b, function)(b.add(state, weight))
        b.stack(b.neg(changed))
        return changed

    trips = m.one((0, 1, 3, *m.dims))
    return tuple(m.builder.loop(body, start, trips=trips))


def branch(m: Maker) -> Value:
    """One of two functions, as an input says."""
    x, flag = m.float(0, 4), m.input((), boolean)
    first, second = m.random.sample(("tanh", "neg", "abs", "sin", "identity", "relu"), 2)
    return m.builder.branch(
        flag, lambda b: getattr(b, first)(x), lambda b: getattr(b, second)(b.add(x, x))
    )


FAMILY = (
    (1, recurrent), (1, sort), (0.8, top_k), (0.5, product), (0.6, nonzero), (0.8, compress),
    (0.6, unique), (0.8, loop), (0.6, branch),
)  # fmt: skip
