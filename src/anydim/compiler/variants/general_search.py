"""Search for a general schedule of a site: the fastest one on sample sizes, by their weights.

Recorded sizes are samples; all other sizes get the same schedule. So it must not slow other sizes
much: `guards` are additional sizes that are checked. The results keep the bits of the previous
schedule.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.compiler.kernels.knobs import VERSION
from anydim.compiler.kernels.launch import Launch
from anydim.compiler.kernels.schedule import ANY, parse_options, print_schedule
from anydim.compiler.kernels.template import schedule_from_text, template_of
from anydim.compiler.passes.recipes import parse_machine
from anydim.compiler.targets.target import Target
from anydim.compiler.variants.candidates import SizedSite, size_site, version_names
from anydim.compiler.variants.search import SURE, faster
from anydim.compiler.variants.trial import GUARDED, Trials
from anydim.runtime.program.recipe import Recipe
from anydim.runtime.variant_tables import Sizes

_HOPELESS = 1.06  # of the best time: a schedule above it after two samples is abandoned


@dataclass(frozen=True)
class ScoredSchedule:
    """A schedule and its time ratio to the previous one, over all samples; None: not usable."""

    schedule: str
    ratio: float | None
    problem: str = ""


class _Samples:
    """A site at several sizes with weights, heaviest first."""

    def __init__(
        self, recipe: Recipe, weights: Sequence[tuple[Sizes, float]], guards: Sequence[Sizes],
        target: Target, threads: int,
    ) -> None:  # fmt: skip
        self.templates = target.templates
        rows = sorted(weights, key=lambda row: -row[1])
        made = [(size_site(recipe, target.templates, sizes), weight) for sizes, weight in rows]
        kept = [(site, weight) for site, weight in made if site is not None and weight > 0]
        self._rows = [(Trials(site, target, threads=threads), weight) for site, weight in kept]
        self._rows = [(trials, weight) for trials, weight in self._rows if trials.possible]
        others = [size_site(recipe, target.templates, sizes) for sizes in guards]
        self._guards = [Trials(o, target, threads=threads) for o in others if o is not None]
        self.site: SizedSite | None = kept[0][0] if self._rows else None

    def launch(self, text: str) -> Launch | None:
        """The launch of a schedule; None if it does not fit the site."""
        site = self.site
        assert site is not None
        machine, constants = parse_machine(site.recipe.machine), frozenset(site.recipe.constants)
        box = site.graph.box
        try:
            template, schedule = schedule_from_text(
                text, self.templates, site.group, box, machine, constants
            )
            return template.lower(site.group, schedule, box, machine, constants)
        except (OptionError, ValueError, ZeroDivisionError):  # incompatible option values
            return None

    def score(self, launch: Launch, most: float, rounds: int = 0) -> ScoredSchedule:
        """Score a launch; stops early if it is far above `most`."""
        total = weights = 0.0
        for number, (trials, weight) in enumerate(self._rows):
            ratio, problem = trials.try_launch(launch, rounds)
            if ratio is None:
                return ScoredSchedule(launch.schedule, None, problem)
            total, weights = total + weight * ratio, weights + weight
            if number and total / weights > _HOPELESS * most:
                break
        return ScoredSchedule(launch.schedule, total / weights)

    def passes_guards(self, launch: Launch) -> bool:
        """Whether a launch is fast enough at the guard sizes, with the same bits."""
        found = [trials.try_launch(launch, SURE)[0] for trials in self._guards if trials.possible]
        return all(ratio is not None and ratio <= GUARDED for ratio in found)


def search_whole(
    recipe: Recipe, weights: Sequence[tuple[Sizes, float]], guards: Sequence[Sizes],
    target: Target, threads: int, seconds: float,
) -> list[ScoredSchedule]:  # fmt: skip
    """Try schedules for `seconds`; the best one, measured again and guarded, is last.

    Empty if none of the sizes can be tried.
    """
    end = time.monotonic() + seconds
    samples = _Samples(recipe, weights, guards, target, threads)
    if samples.site is None:
        return []
    best = ScoredSchedule(recipe.schedule, 1.0)
    tried = list(_search(samples, best, end))
    good = sorted((each for each in tried if each.ratio is not None), key=lambda e: e.ratio or 0)
    for each in good[:3]:
        launch = samples.launch(each.schedule)
        if launch is None or each.ratio is None or each.ratio >= 1:
            continue
        sure = samples.score(launch, 1.0, SURE)
        if sure.ratio is not None and sure.ratio < 1 and samples.passes_guards(launch):
            return [*tried, sure]
    return [*tried, best]


def _search(samples: _Samples, best: ScoredSchedule, end: float) -> Iterator[ScoredSchedule]:
    """Coordinate search: neighbours of the best schedule so far, one option after another.

    Repeats while a pass improves, until no schedule is left to try.
    """
    taken = {best.schedule}
    before = None
    while best is not before:
        before = best
        for option, values in _options(samples, best.schedule).items():
            at = best.schedule
            for value in values:
                if time.monotonic() > end:
                    return
                found = _score_text(samples, _change_option(at, option, value), best, taken)
                if found is not None:
                    best = faster(best, found)
                    yield found


def _options(samples: _Samples, schedule: str) -> dict[str, tuple[int | str, ...]]:
    """The values to try of each option; versions where none changes bits at any size."""
    template = template_of(samples.templates, parse_options(schedule)[0])
    found: dict[str, tuple[int | str, ...]]
    found = {name: knob.everywhere for name, knob in template.knobs.items() if knob.everywhere}
    if template.same_bits:
        names = version_names(samples.launch(_change_option(schedule, VERSION, ANY)))
        found[VERSION] = (*names, ANY) if names else ()
    return found


def _score_text(
    samples: _Samples, text: str, best: ScoredSchedule, taken: set[str]
) -> ScoredSchedule | None:
    """Score a schedule; None if it is invalid or was tried before."""
    launch = samples.launch(text)
    if launch is None or launch.schedule in taken:
        return None
    taken.add(launch.schedule)
    assert best.ratio is not None
    return samples.score(launch, best.ratio)


def _change_option(schedule: str, option: str, value: int | str) -> str:
    """The schedule with one option changed."""
    kind, options = parse_options(schedule)
    return print_schedule(kind(**{**options, option: value}))
