"""What a soak does: models that stay are called from several threads, others come and go.

Everything comes again and again: the same models, the same generated graphs, the same sizes. So a
process that keeps nothing of what it has done looks alike whenever it has been through all of it,
and results have the bits that they had the first time.
"""

from __future__ import annotations

import gc
import random
import weakref
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy

import anydim as ad
from anydim.base import settings
from anydim.base.errors import UserError
from bench.light import light_model
from bench.networks import IMAGES, NETWORKS
from bench.networks.sequences import decoder
from examples.detector import detector
from tests.fuzz.generate import random_case

Sizes = dict[str, int]
Arrays = dict[str, numpy.ndarray]


@dataclass(frozen=True)
class Subject:
    """A model of real kind: its source, the sizes it is called at, its threads."""

    source: Callable[[], Any]
    sizes: Mapping[str, tuple[int, ...]]
    threads: int = 1

    def compiled(self) -> ad.Model:
        return ad.compile(self.source(), threads=self.threads)

    def points(self) -> list[Sizes]:
        return [dict(zip(self.sizes, point)) for point in product(*self.sizes.values())]

    def feeds(self, model: ad.Model, point: Sizes) -> Arrays:
        """Inputs of these sizes, always the same: normal numbers, and whole ones of 0 and 1."""
        numbers = numpy.random.default_rng(list(point.values()))
        made = {}
        for spec in model.inputs:
            shape = tuple(size.evaluate(point) for size in spec.shape)
            values = (
                numbers.standard_normal(shape)
                if spec.dtype.is_float
                else numbers.integers(0, 2, shape)
            )
            made[spec.name] = values.astype(spec.dtype.numpy)
        return made


def grower() -> ad.Builder:
    """A loop whose state grows, and a size that data decides."""
    g = ad.Builder("grower")
    m, x = g.input("m", ad.int64, ()), g.input("x", ad.float32, (g.dim("n"), 4))
    end = g.loop(lambda b, t, state: b.concat(state, x * 0.5, axis=0), x, trips=g.find(m, "trips"))
    g.output("end", end)
    g.output("places", g.nonzero(g.reduce_sum(end, axes=(1,))))
    return g


SUBJECTS: dict[str, Subject] = {
    "minilm": Subject(NETWORKS["MiniLM"], {"batch": (1, 3), "seq": (1, 7, 32, 128)}, 2),
    "squeezenet": Subject(
        lambda: light_model("squeezenet", IMAGES), {"b": (1, 2), "h": (64, 97), "w": (64, 33)}, 2
    ),
    "tagger": Subject(NETWORKS["LSTM"], {"t": (1, 9, 40), "b": (1, 2, 5)}),
    "decoder": Subject(
        lambda: decoder(2, 4, 32), {"b": (1, 2), "s": (1, 6), "past": (0, 1, 33)}, 2
    ),
    "detector": Subject(detector, {"n": (0, 1, 5, 40, 500)}),
    "grower": Subject(grower, {"n": (0, 1, 8, 17)}),
}


def bits(results: Mapping[str, Any]) -> int:
    """A number that results of other bits do not share."""
    state = 0
    for name in sorted(results):
        array = numpy.ascontiguousarray(results[name])
        state = zlib.crc32(array.tobytes(), zlib.crc32(f"{name}{array.shape}".encode(), state))
    return state


class SoakError(AssertionError):
    """Results of other bits than the first time, or a model that nobody holds and that lives."""


@dataclass
class Soak:
    """The models that stay (`held`), the bits of `first` results, and how far the work is."""

    folder: Path
    names: tuple[str, ...] = tuple(SUBJECTS)
    graphs: int = 20  # generated graphs, which come in turn
    calls_of_round: int = 12
    callers: int = 3
    calls: int = 0
    compiles: int = 0
    rounds: int = 0
    first: dict[tuple[str, str], int] = field(default_factory=dict)
    held: dict[str, ad.Model] = field(default_factory=dict)

    def begin(self) -> None:
        """Compile the models that stay, and call each at all of its sizes from all threads."""
        for name in self.names:
            self.held[name] = SUBJECTS[name].compiled()
            self.compiles += 1
            points = SUBJECTS[name].points() * self.callers
            self._call_all([(name, point) for point in points])

    def round(self) -> None:
        """Calls of what stays, beside a generated graph, and a model that is saved and loaded."""
        chance = random.Random(self.rounds)
        work = [self._drawn(chance) for _ in range(self.calls_of_round)]
        self._call_all(work, lambda: self._generated(self.rounds))
        self._saved(self.names[self.rounds % len(self.names)], chance)
        self.rounds += 1

    def trim(self) -> None:
        """Let the models give back what they keep for the next calls."""
        for model in self.held.values():
            model.trim()

    def _call_all(
        self, work: list[tuple[str, Sizes]], beside: Callable[[], None] = lambda: None
    ) -> None:
        """Calls from several threads, while this one does something else."""
        with ThreadPoolExecutor(self.callers) as crowd:
            done = crowd.map(lambda one: self._call(one[0], self.held[one[0]], one[1]), work)
            beside()
            list(done)

    def _drawn(self, chance: random.Random) -> tuple[str, Sizes]:
        name = chance.choice(self.names)
        return name, chance.choice(SUBJECTS[name].points())

    def _call(self, name: str, model: ad.Model, point: Sizes) -> None:
        results = model(**SUBJECTS[name].feeds(model, point))
        self._compare(name, str(point), results)

    def _compare(self, name: str, place: str, results: Mapping[str, Any]) -> None:
        self.calls += 1
        came = bits(results)
        if self.first.setdefault((name, place), came) != came:
            raise SoakError(f"{name} at {place}: other bits than the first time")

    def _generated(self, number: int) -> None:
        """Compile a generated graph, every other time without the cache, call it, let it go."""
        seed = number % self.graphs
        case = random_case(seed)
        with settings.override(use_cache=bool(number // self.graphs % 2)):
            model = ad.compile(case.graph, threads=case.threads)
        self.compiles += 1
        for point in case.points:
            inputs = case.inputs(point)
            try:
                if inputs is not None:
                    self._compare(f"graph {seed}", str(point), model(**inputs))
            except UserError:
                continue  # sizes that the graph refuses
        released = weakref.ref(model)
        del model
        self._gone(released)

    def _saved(self, name: str, chance: random.Random) -> None:
        """Compile a model again, save it, load it, call it rightly and wrongly, let it go."""
        path = self.folder / f"{name}.anydim"
        SUBJECTS[name].compiled().save(path)
        self.compiles += 1
        model = ad.load(path)
        self._call(name, model, chance.choice(SUBJECTS[name].points()))
        try:
            model(**{spec.name: numpy.zeros((1,) * 7) for spec in model.inputs})
        except UserError:
            path.unlink()
        else:
            raise SoakError(f"{name} takes inputs of seven axes")

    def _gone(self, released: weakref.ref[ad.Model]) -> None:
        if released() is not None:
            gc.collect()
        if released() is not None:
            raise SoakError("a model that nobody holds is still there")
