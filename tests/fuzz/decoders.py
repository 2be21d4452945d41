"""The law of continuous batching: a row of a decoder has what it has alone, fed the same chunks.

    python -m tests.fuzz --decoders

Random decoders (one or two layers, grouped heads, both layouts of caches, learned, rotary or given
positions, causal, windowed and given masks) run random sessions: rows join, leave, forget, and get
chunks of any size, some of them none. Each result of a row is compared to the bit with that of the
row in steps of its own, and with the reference of the graph for a batch of this row with the caches
it had; so are its new caches. Free room of slabs is filled with NaN, so that a result that reads it
is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import numpy

import anydim as ad
from anydim.api.cached_rows import CachedRows
from anydim.compiler.frontends.builder import Builder, Value
from anydim.sizes import Size, as_size
from tests.fuzz.case import Arrays, Case
from tests.fuzz.judge import Expected, Failure, said
from tests.fuzz.maker import Domain
from tests.fuzz.runner import Outcome, run_judged

STEPS, ROWS, TABLE = 12, 5, 400
CHUNKS = (0, 1, 1, 1, 2, 3, 7, 17)


class _Decoder:
    """A random decoder: tokens [b, s] and caches -> logits, caches, and some other results."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.numbers = numpy.random.default_rng(seed)
        self.g = g = Builder("decoder")
        self.b, self.s, self.past = g.dim("b"), g.dim("s"), g.dim("past", 0, 300)
        self.groups, self.shared = random.choice((1, 2, 3)), random.choice((1, 1, 2))
        self.width, self.words = random.choice((2, 4, 8)), random.choice((5, 33))
        self.of_values = random.choice((self.width, self.width, 3))  # the width of values
        self.heads = self.groups * self.shared
        self.first = random.random() < 0.5  # the axis of the cache comes before the heads
        self.positions = random.choice(("none", "learned", "rotary", "given"))
        self.mask = random.choice(("causal", "causal", "window", "given", "none"))
        self.domains: dict[str, Domain] = {}

    def case(self, seed: int) -> Case:
        random, g = self.random, self.g
        ids = g.input("ids", ad.int64, (self.b, self.s))
        self.domains["ids"] = Domain("index", as_size(self.words))
        x = g.gather(self.drawn(self.words, self.size), ids, axis=0)
        at = g.range(start=self.past, count=self.s, step=1, dtype=ad.int64)
        if self.positions == "given":
            at = g.input("at", ad.int64, (self.b, self.s))
            self.domains["at"] = Domain("index", as_size(TABLE))
        if self.positions in ("given", "learned"):
            x = x + g.gather(self.drawn(TABLE, self.size), at, axis=0)
        for layer in range(random.choice((1, 1, 2))):
            x = x + self.attention(g.layer_norm(x, *self.scale(), axis=-1), layer)
            x = x + g.tanh(x @ self.drawn(self.size, self.size))
        g.output("logits", x @ self.drawn(self.size, self.words))
        if random.random() < 0.3:
            g.output("pooled", g.reduce_max(x, axes=(2,)))
        return Case(g.graph(), self.domains, (), random.choice((1, 1, 2)), seed)

    @property
    def size(self) -> int:
        return self.heads * self.width

    def drawn(self, *shape: int) -> Value:
        return self.g.constant(self.numbers.standard_normal(shape, numpy.float32) / 2)

    def scale(self) -> tuple[Value, Value]:
        return self.drawn(self.size), self.drawn(self.size)

    def appended(self, name: str, new: Value) -> Value:
        """The cache with new elements [b, s, groups, width], as [b, groups, past + s, width]."""
        g = self.g
        sizes = (self.past, self.groups) if self.first else (self.groups, self.past)
        cache = g.input(name, ad.float32, (self.b, *sizes, new.shape[-1]))
        if not self.first:
            new = g.transpose(new, perm=(0, 2, 1, 3))
        whole = g.concat(cache, new, axis=1 if self.first else 2)
        g.output(f"new_{name}", whole)
        return g.transpose(whole, perm=(0, 2, 1, 3)) if self.first else whole

    def attention(self, x: Value, layer: int) -> Value:
        g, b, s = self.g, self.b, self.s
        count = self.past + s
        query, key, value = (
            g.reshape(x @ self.drawn(self.size, heads * width), shape=(b, s, heads, width))
            for heads, width in (
                (self.heads, self.width), (self.groups, self.width), (self.groups, self.of_values)
            )
        )  # fmt: skip
        if self.positions == "rotary":
            query, key = self.rotated(query), self.rotated(key)
        keys, values = (
            self.repeated(self.appended(f"{name}_{layer}", new), count)
            for name, new in (("keys", key), ("values", value))
        )
        scores = g.transpose(query, perm=(0, 2, 1, 3)) @ g.transpose(keys, perm=(0, 1, 3, 2))
        weights = g.softmax(self.masked(scores * 0.5, layer), axis=-1)
        if self.random.random() < 0.2:
            g.output(f"weights_{layer}", weights)
        mixed = g.transpose(weights @ values, perm=(0, 2, 1, 3))
        wide = self.heads * self.of_values
        return g.reshape(mixed, shape=(b, s, wide)) @ self.drawn(wide, self.size)

    def repeated(self, x: Value, count: Size) -> Value:
        """One head for each that shares it."""
        if self.shared == 1:
            return x
        g, width = self.g, x.shape[-1]
        shape = (self.b, self.groups, self.shared, count, width)
        wide = g.expand(g.unsqueeze(x, axes=(2,)), shape=shape)
        return g.reshape(wide, shape=(self.b, self.heads, count, width))

    def rotated(self, x: Value) -> Value:
        """Pairs of numbers turned by an angle that grows with the position."""
        g, half = self.g, self.width // 2
        at = g.range(start=self.past, count=self.s, step=1, dtype=ad.float32)
        angle = g.unsqueeze(at, axes=(1,)) * g.constant(
            0.1 ** numpy.arange(half, dtype=numpy.float32)
        )
        sine, cosine = (g.unsqueeze(f(angle), axes=(1,)) for f in (g.sin, g.cos))
        low, high = x[:, :, :, :half], x[:, :, :, half:]
        return g.concat(low * cosine - high * sine, high * cosine + low * sine, axis=-1)

    def masked(self, scores: Value, layer: int) -> Value:
        g, count = self.g, self.past + self.s
        if self.mask == "none":
            return scores
        if self.mask == "given":
            if not layer:
                self.known = g.input("attention_mask", ad.int64, (self.b, count))
            real = g.equal(g.reshape(self.known, shape=(self.b, 1, 1, count)), 1)
            return g.where(real, scores, g.constant(numpy.float32(-1e9)))
        rows = g.unsqueeze(
            g.range(start=self.past, count=self.s, step=1, dtype=ad.int64), axes=(1,)
        )
        columns = g.range(start=0, count=count, step=1, dtype=ad.int64)
        seen = g.less_equal(columns, rows)
        if self.mask == "window":
            seen = seen & g.greater(columns, rows - 5)
        return g.where(seen, scores, g.constant(numpy.float32(-1e9)))


def decoder_case(seed: int) -> Case:
    """The case of a seed."""
    return _Decoder(seed).case(seed)


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of the cases of these seeds, in order."""
    return run_judged(seeds, small, decoder_case, judge)


def judge(case: Case) -> Failure | None:
    """The first step at which a row differs."""
    try:
        for reason in differences(case):
            return Failure("decoder", reason)
    except Exception as error:
        return Failure("decoder step", said(error))
    return None


def differences(case: Case) -> Iterator[str]:
    """Yield what differs between rows of a random session and rows alone."""
    random = Random(case.seed)
    options: Any = {
        "ragged": {"s": "b"},
        "threads": case.threads,
        "room": random.choice((1, 4, 64)),
    }
    model, other = (ad.cached(case.graph, **options) for _ in range(2))
    assert isinstance(model, CachedRows) and isinstance(other, CachedRows)
    if not model.in_place:
        yield "the caches are copied"
    alone: dict[int, int] = {}
    carried: dict[int, Arrays] = {}
    for number in range(STEPS):
        while (len(alone) < ROWS and random.random() < 0.5) or not alone:
            row = model.join()
            alone[row], carried[row] = other.join(), _empty(case)
        if len(alone) > 1 and random.random() < 0.3:
            row = random.choice(list(alone))
            model.leave(row)
            other.leave(alone.pop(row))
            del carried[row]
        for row in alone:
            if random.random() < 0.1:
                length = random.randint(0, model.length(row))
                model.forget(row, length)
                other.forget(alone[row], length)
                carried[row] = _cut(model, carried[row], length)
        _poison(model)
        chosen = [row for row in alone if random.random() < 0.8]
        random.shuffle(chosen)
        given = {row: _chunk(case, random.choice(CHUNKS), number * 100 + row) for row in chosen}
        made = model.step(given)
        for place, row in enumerate(chosen):
            single = other.step({alone[row]: given[row]})
            expected = _expected(case, given[row], carried[row])
            found = {name: value[place][None] for name, value in made.items()}
            for name, value in single.items():
                if value[0].tobytes() != found[name].tobytes():
                    yield f"step {number}: row {row} has other bits in '{name}' than alone"
            held = {name: view[None].copy() for name, view in model.held(row).items()}
            found |= {each.result: held[each.input] for each in model.caches}
            yield from filter(None, [expected.difference(found)])
            carried[row] = held


def _chunk(case: Case, count: int, seed: int) -> Mapping[str, numpy.ndarray]:
    numbers = numpy.random.default_rng((case.seed, seed))
    return {
        name: numbers.integers(0, domain.extent.constant or 1, count)
        for name, domain in case.domains.items()
    }  # fmt: skip


def _empty(case: Case) -> Arrays:
    """Caches of one row without elements."""
    kinds = {name: case.graph.types[name] for name in case.graph.inputs}
    return {
        name: numpy.zeros([size.evaluate({"b": 1, "s": 0, "past": 0}) for size in kind.shape],
                          numpy.float32)
        for name, kind in kinds.items() if kind.dtype is ad.float32
    }  # fmt: skip


def _cut(model: CachedRows, caches: Arrays, length: int) -> Arrays:
    axes = {each.input: each.axis for each in model.caches}
    return {name: array.take(range(length), axes[name]) for name, array in caches.items()}


def _poison(model: CachedRows) -> None:
    """Fill with NaN what no row holds."""
    slabs = model._slabs
    kept = {row: {n: v.copy() for n, v in slabs.view(row).items()} for row in slabs.rows}
    for array in slabs.arrays.values():
        array[:] = numpy.nan
    for row, caches in kept.items():
        for name, view in slabs.view(row).items():
            view[...] = caches[name]


def _expected(case: Case, given: Mapping[str, numpy.ndarray], caches: Arrays) -> Expected:
    """The reference for a batch of one row."""
    inputs = {**{name: array[None] for name, array in given.items()}, **caches}
    if "attention_mask" in case.graph.inputs:
        kind = case.graph.types["attention_mask"]
        axis = next(n for n, each in enumerate(case.graph.types["keys_0"].shape)
                    if str(each) == "past")  # fmt: skip
        count = len(given["ids"]) + caches["keys_0"].shape[axis]
        inputs["attention_mask"] = numpy.ones((1, count), kind.dtype.numpy)
    return Expected.of(case.graph, {name: inputs[name] for name in case.graph.inputs})
