"""Promise: dims are found that give the sizes of a launch; a body for sizes is the generic one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy
import pytest

from anydim.base.errors import InternalError
from anydim.compiler.kernels.knobs import VERSION
from anydim.compiler.kernels.launch import Launch
from anydim.compiler.kernels.schedule import parse_schedule, version_of
from anydim.compiler.kernels.template import Misfit, Template
from anydim.compiler.targets.targets import target
from anydim.compiler.variants.candidates import (
    by_text,
    fitting,
    generic_candidate,
    neighbours,
    options_of,
    size_site,
)
from anydim.compiler.variants.search import search
from anydim.compiler.variants.solved_dims import dims_that_give
from anydim.compiler.variants.trial import Trials
from anydim.sizes import parse
from tests.unit.compiler.variants.models import generic_program


@pytest.mark.parametrize(
    ("texts", "dims"),
    [
        (("b", "h", "h*w"), {"b": 2, "h": 3, "w": 5}),
        (("b*s", "(b*s + 7)//8"), {"b": 1, "s": 24}),
        (("2*h + 1", "h"), {"h": 4}),
        (("max(h - 1, 0)", "h"), {"h": 0}),
        (("8", "n"), {"n": 0}),
    ],
)
def test_dims_are_found_that_give_sizes(texts: tuple[str, ...], dims: dict[str, int]) -> None:
    sizes = [parse(text) for text in texts]
    values = [size.evaluate(dims) for size in sizes]
    assert dims_that_give(sizes, values) == dims


@pytest.mark.parametrize(
    ("texts", "values"),
    [(("n", "2*n"), (3, 7)), (("2*n",), (3,)), (("n + 4",), (3,)), (("8",), (9,))],
)
def test_sizes_that_no_dims_give(texts: tuple[str, ...], values: tuple[int, ...]) -> None:
    assert dims_that_give([parse(text) for text in texts], values) is None


def test_bodies_give_the_bits_of_the_generic_one() -> None:
    code = target("llvm")
    program = generic_program()
    for site in program.sites:
        assert site.recipe is not None
        recipe = program.recipes[site.recipe]
        for height in (0, 3, 10):
            dims = {"b": 2, "h": height, "q": 7}
            key = tuple(size.evaluate(dims) for size in (*site.sizes, site.parallel))
            known = size_site(recipe, code.templates, key)
            assert known is not None
            trials, made = Trials(known, code, rounds=1), generic_candidate(known, code.templates)
            assert made.schedule == site.schedule and trials.run(made).ratio is not None
            for other in fitting(known, code.templates):
                assert other.schedule != site.schedule
                assert trials.run(other).ratio is not None
            assert made.parallel == key[-1] and made.grain == site.grain.evaluate(dims)
            assert len(made.kernel.sizes) == len(site.sizes)


def test_sizes_of_another_number_have_no_body() -> None:
    program = generic_program()
    recipe = program.recipes[0]
    assert size_site(recipe, target("llvm").templates, (1, 2)) is None
    numbers = tuple(numpy.arange(len(recipe.sizes) + 1).tolist())
    assert size_site(recipe, target("llvm").templates, numbers) is None


def test_a_bug_in_a_template_is_no_schedule_that_does_not_fit() -> None:
    code, program = target("llvm"), generic_program()
    site, dims = program.sites[0], {"b": 1, "h": 5, "q": 5}
    key = tuple(size.evaluate(dims) for size in (*site.sizes, site.parallel))
    known = size_site(program.recipes[0], code.templates, key)
    assert known is not None
    (name, *_) = options_of(site.schedule, code.templates)

    def broken(fault: Exception) -> list[Template]:
        def lower(*given: object) -> Launch:
            raise fault

        return [replace(template, lower=lower) for template in code.templates]

    with pytest.raises(InternalError, match="two and two"):
        list(neighbours(known, broken(InternalError("two and two")), site.schedule, name))
    misfit = broken(Misfit("of another form"))
    assert list(neighbours(known, misfit, site.schedule, name)) == []


def test_versions_are_neighbours() -> None:
    code, program = target("llvm"), generic_program()
    site, dims = program.sites[0], {"b": 1, "h": 5, "q": 5}
    key = tuple(size.evaluate(dims) for size in (*site.sizes, site.parallel))
    known = size_site(program.recipes[0], code.templates, key)
    assert known is not None
    assert options_of(site.schedule, code.templates)[0] == VERSION
    found = [c.schedule for c in neighbours(known, code.templates, site.schedule, VERSION)]
    names = [version_of(parse_schedule(text)) for text in found]
    assert names == [name for name, _ in site.versions]
    assert options_of("narrow()", code.templates) == []


def test_a_search_tries_each_schedule_once_and_texts_give_them_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A clock that counts how often it is asked, so that a search ends soon."""
    clock = itertools.count()
    now = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr("anydim.compiler.variants.search.time", now)
    code, program = target("llvm"), generic_program()
    site, dims = program.sites[0], {"b": 1, "h": 5, "q": 5}
    key = tuple(size.evaluate(dims) for size in (*site.sizes, site.parallel))
    known = size_site(program.recipes[0], code.templates, key)
    assert known is not None
    tried = search(known, code, 12.0)
    schedules = [each.candidate.schedule for each in tried]
    assert site.schedule in schedules and len(schedules) == len(set(schedules)) > 4
    for each in tried:
        again = by_text(known, code.templates, each.candidate.schedule)
        assert again is not None and again.kernel.name == each.candidate.kernel.name
    assert by_text(known, code.templates, "window_reduction(lanes=3, vectors=1)") is None
    assert [each.candidate.schedule for each in search(known, code, 0.0)] == [site.schedule]
    some = [
        schedules[-1],
        site.schedule,
        "window_reduction(lanes=3, vectors=1)",
        "window_reduction()",
    ]
    again = [each.candidate.schedule for each in search(known, code, 60.0, found=some)]
    assert schedules[-1] in again and set(again) <= set(schedules) and len(again) < len(schedules)
