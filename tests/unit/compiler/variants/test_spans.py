"""Promise: a body for a span gives the generic bits at all sizes of it, and takes no other ones."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from dataclasses import replace

import numpy
import pytest

import anydim as ad
from anydim.compiler.targets.targets import target
from anydim.compiler.variants.candidates import (
    Candidate,
    SizedSite,
    fitting,
    generic_candidate,
    neighbours,
    options_of,
    size_site,
)
from anydim.compiler.variants.solved_dims import dims_of_span
from anydim.compiler.variants.trial import Trials
from anydim.runtime.variant_tables import Span
from anydim.sizes import Box, Dim, bounds, parse
from tests.unit.compiler.variants.models import depthwise


def softmax() -> ad.Model:
    g = ad.Builder("softmax")
    x = g.input("x", ad.float32, (g.dim("m"), g.dim("n")))
    g.output("y", g.softmax(x, axis=-1))
    return ad.compile(g.graph(), strategy="generic")


def rows_of_known_length() -> ad.Model:
    """Of these sizes only the parallel range has dims, which kernels are not given."""
    g = ad.Builder("rows")
    x = g.input("x", ad.float32, (g.dim("b"), g.dim("n", 0, 64), 12))
    g.output("y", g.softmax(x, axis=-1))
    return ad.compile(g.graph(), strategy="generic")


def product() -> ad.Model:
    g = ad.Builder("product")
    x = g.input("x", ad.float32, (g.dim("b"), g.dim("m"), 40))
    weights = numpy.random.default_rng(0).standard_normal((40, 7)).astype(numpy.float32)
    g.output("y", g.matmul(x, g.constant(weights)))
    return ad.compile(g.graph(), strategy="generic")


def turned() -> ad.Model:
    g = ad.Builder("turned")
    x = g.input("x", ad.float32, (g.dim("b"), g.dim("m"), g.dim("n")))
    g.output("y", g.exp(x))
    return ad.compile(g.graph(), strategy="generic")


def candidates(site: SizedSite) -> list[Candidate]:
    templates = target("llvm").templates
    first = generic_candidate(site, templates)
    found = [*([first] if first else []), *fitting(site, templates)]
    for option in options_of(site.generic.schedule, templates)[:2]:
        found += neighbours(site, templates, site.generic.schedule, option)
    return found


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize(
    "model", [lambda: depthwise("generic"), softmax, rows_of_known_length, product, turned]
)
@pytest.mark.parametrize("ends", [(1, 4), (5, 19)])
def test_bodies_for_spans_give_the_generic_bits(
    model: Callable[[], ad.Model], ends: tuple[int, int]
) -> None:
    code, program, some = target("llvm"), model().program, random.Random(0)
    box = Box.of(*(Dim(dim.name, *ends) for dim in program.signature.box.dims))
    for site in program.sites:
        words = (*site.sizes, site.parallel)
        low, high = zip(*((end.lo, end.hi) for end in (bounds(word, box) for word in words)))
        assert site.recipe is not None
        recipe = program.recipes[site.recipe]
        known = size_site(recipe, code.templates, Span(low, high))
        if recipe.schedule.startswith("row_phase"):  # its launches leave parts to others
            assert known is None
            continue
        assert known is not None and known.span is not None
        points = [
            {dim.name: some.randint(dim.lo, dim.hi or 0) for dim in known.box.dims}
            for _ in range(4)
        ]  # fmt: skip
        known = replace(known, points=(*known.points, *points))
        same, near = (Trials(known, code, rounds=1, near=near) for near in (False, True))
        for candidate in candidates(known):
            assert "bits" not in near.run(candidate).problem, candidate.schedule
            plain = candidate.schedule.startswith(
                ("window_reduction", "pointwise")
            )  # no sums over lanes
            plain &= "version=" not in candidate.schedule  # strips add in another order
            if plain or candidate.schedule == known.generic.schedule:
                assert "bits" not in same.run(candidate).problem, candidate.schedule
            said = extent(candidate)
            if said is not None:
                values = [[word.evaluate(p) for word in known.span.sizes] for p in known.points]
                assert [said(each) for each in values] == list(candidate.ranges)


def extent(candidate: Candidate) -> Callable[[list[int]], int] | None:
    """What the function of a candidate says at sizes."""
    made, code = candidate.extent, target("llvm")
    if made is None:
        return None
    assert code.load is not None
    objects = code.compile(code.sources([made], code.processor), 1).code.values()
    loaded = code.load(objects, [made.name])
    run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address(made.name))

    def said(values: list[int]) -> int:
        words = numpy.array(values, numpy.int64)
        return int(run(words.ctypes.data)) if loaded else 0

    return said


def test_sizes_that_are_none_of_a_body_are_told_apart() -> None:
    """(h - 1)//2 rows of q in a pool: words in the span, from an h that is not."""
    program, code = depthwise("generic").program, target("llvm")
    site = program.sites[1]
    words = (*site.sizes, site.parallel)
    box = Box.of(Dim("b", 1, 4), Dim("h", 5, 6), Dim("q", 5, 9))
    low, high = zip(*((end.lo, end.hi) for end in (bounds(word, box) for word in words)))
    assert site.recipe is not None
    known = size_site(program.recipes[site.recipe], code.templates, Span(low, high))
    assert known is not None and known.span is not None
    span, asked = known.span, {"b": 2, "h": 6, "q": 5}
    said = next(filter(None, map(extent, candidates(known))))
    assert said([word.evaluate(asked) for word in span.sizes]) > 0
    values = [word.evaluate(asked | {"h": 60}) for word in span.sizes]
    assert said(values) == -1  # whatever the rows of bounds say


@pytest.mark.parametrize(
    ("texts", "low", "high", "told"),
    [
        (("b", "h", "h*w"), (1, 2, 6), (1, 3, 12), {"b": (1, 1), "h": (2, 3), "w": (2, 6)}),
        (("b*s",), (3,), (64,), {"b": (1, 1), "s": (3, 64)}),
        (("2*h + 1",), (4,), (9,), {"h": (2, 4)}),
        (("max(h - 1, 0)",), (0,), (9,), None),
        (("8", "3*n"), (8, 4), (8, 5), None),
    ],
)
def test_words_tell_the_bounds_of_dims(
    texts: tuple[str, ...], low: tuple[int, ...], high: tuple[int, ...],
    told: dict[str, tuple[int, int]] | None,
) -> None:  # fmt: skip
    found = dims_of_span([parse(text) for text in texts], Span(low, high))
    assert (found and {each.name: (each.low, each.high) for each in found}) == told
