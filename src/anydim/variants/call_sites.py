"""The launches of a program that may have other bodies: which there are, what became of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.kernels.schedule import parse_options
from anydim.program.program import Program
from anydim.program.recipe import Recipe
from anydim.program.segment import Site as ProgramSite
from anydim.program.variants import KeptBody, KeptPlace, Variant, shown_sizes, sizes_of
from anydim.runtime import variant_tables
from anydim.runtime.executable import Executable
from anydim.runtime.variant_tables import (
    AS_LAUNCHED,
    Body,
    Callee,
    Choice,
    Key,
    Sizes,
    Span,
    key_of,
)
from anydim.targets.target import Target
from anydim.variants.admission import Admission, Room
from anydim.variants.launch_strategy import Decision
from anydim.variants.strategies import Adaptive, Exact, Strategy
from anydim.variants.workers import Reply

_MOST_LEFT = 1024  # sizes of a place that are known to be served by the generic body
MOST_REJECTED = 4096  # sizes of a place: files of verdicts know them, too
_MOST_SPANS = 2  # of a place that `adaptive` tries
_NEVER_ENOUGH = 1 << 62  # bytes of scratch


@dataclass(frozen=True)
class Event:
    """Something became of a body: it was "compiled", "published", or "rejected" for `reason`.

    The rest is as in `Variant`.
    """

    kind: str
    kernel: str
    sources: tuple[str, ...]
    sizes: Mapping[str, int | tuple[int, int]]
    schedule: str = ""
    ratio: float | None = None
    seconds: float = 0.0
    reason: str = ""

    def __str__(self) -> str:
        why = f", {self.reason}" if self.reason else ""
        return f"{self.kind}: {self.kernel} at {shown_sizes(self.sizes)}{why}"


class Place:
    """The launches of one recipe that share a strategy: their bodies, and what was tried.

    `words` are those of their entries in tables of code.
    """

    def __init__(self, site: ProgramSite, recipe: Recipe, generic: int, decision: Decision) -> None:
        self.site, self.recipe, self.generic, self.decision = site, recipe, generic, decision
        self.words: list[tuple[numpy.ndarray, int]] = []
        self.sites: list[ProgramSite] = []
        self.choice: Choice | None = None
        self.made: dict[Key, Reply] = {}
        self.rejected: set[Key] = set()
        self._left: set[Sizes] = set()  # sizes that the generic body serves, without a question
        self._begun: dict[Strategy, set[Sizes]] = {}  # sizes whose first launch had a body made
        self._full: set[Strategy] = set()  # strategies that had room for no more
        self._admission = Admission()

    # ---- what launches see ---------------------------------------------------------------------

    def open(self, callee: Callee, watching: bool) -> None:
        """Choose by a table from now on."""
        site = variant_tables.Site(
            self.generic, len(self.site.operands), len(self.recipe.sizes) + 1
        )
        self.choice = Choice(site, callee, watching)
        self._store(self.choice.entry)

    def close(self) -> object:
        """The generic body alone from now on; returns what calls in progress may need."""
        before, self.choice = self.choice, None
        self._store(self.generic)
        return before

    def rest(self, resting: bool) -> None:
        """Launch the generic body without a look at the table, or with one again."""
        assert self.choice is not None
        self._store(self.generic if resting else self.choice.entry)

    def add(self, body: Body, reply: Reply) -> object:
        """One body more, and one less where there are too many; returns what `close` does."""
        assert self.choice is not None
        key, leaf = body.sizes, self.decision.at(body.sizes)
        used = {} if isinstance(key, Span) else self._used(leaf)
        less: list[Key] = []
        if isinstance(leaf, (Adaptive, Exact)) and len(used) >= leaf.limit and key not in used:
            less.append(min(used, key=lambda sizes: used[sizes]))
        if not isinstance(key, Span):
            self._admission.took(key, max(self._came().values(), default=0))
            self._left.discard(key)
            self.choice.forget(key)
        before = self.choice.change([body], less)
        self.made[key] = reply
        for gone in less:
            del self.made[gone]
            self._admission.drop(gone)
        self._store(self.choice.entry)
        return before

    def has_room(self, sizes: Sizes) -> bool:
        """Whether sizes without a body get one at this launch: the first `limit` that come do."""
        leaf = self.decision.at(sizes)
        if not isinstance(leaf, Exact) or sizes in self.rejected or self._admission.dropped(sizes):
            return False
        begun = self._begun.setdefault(leaf, set())
        if sizes not in begun and len(begun.union(self._used(leaf))) >= leaf.limit:
            self._full.add(leaf)
            return False
        return True

    def begin(self, sizes: Sizes) -> None:
        """A body for sizes that there is room for is made."""
        self._begun[self.decision.at(sizes)].add(sizes)

    @property
    def counts(self) -> bool:
        """Whether sizes that come often get a body."""
        return bool(self._full) or any(isinstance(e, Adaptive) for e in self.decision.leaves)

    @property
    def full(self) -> bool:
        """Whether no size gets a body at its first launch any more."""
        return self._full.issuperset(e for e in self.decision.leaves if isinstance(e, Exact))

    def watch(self) -> object:
        """Have native code count the sizes of launches without a body, and call nobody."""
        assert self.choice is not None
        before = self.choice.watch()
        self._store(self.choice.entry)
        return before

    def leave(self, sizes: Sizes) -> object:
        """These sizes are served by the generic body, and counted; returns what `close` does."""
        assert self.choice is not None
        less = self._left if len(self._left) >= _MOST_LEFT else set()
        before = self.choice.change([Body(sizes, 0, AS_LAUNCHED, 1, _NEVER_ENOUGH)], less)
        self._left = self._left - less | {sizes}
        self._store(self.choice.entry)
        return before

    def _store(self, entry: int) -> None:
        """One store a launch, which calls in progress see or do not see."""
        for table, word in self.words:
            table[word] = entry

    # ---- what was counted ----------------------------------------------------------------------

    def seen(self, after: int) -> dict[Sizes, int]:
        """Sizes that came so often at least and have no body, and about how often."""
        if self.choice is None:
            return {}
        left = {sizes: self.choice.hits(sizes) for sizes in self._left}
        often = {sizes: hits for sizes, hits in left.items() if hits >= after}
        return {**self.choice.seen(after), **often}

    def reject(self, key: Key) -> None:
        """Ask for no such body again; of too many, all are forgotten."""
        if len(self.rejected) >= MOST_REJECTED:
            self.rejected.clear()
        self.rejected.add(key)

    def wanted(self) -> Iterator[tuple[Key, Adaptive | Exact]]:
        """Sizes that come often enough for a body, the most often first, as far as there is room.

        Where more come often, a span of them all, too.
        """
        came = sorted(self._came().items(), key=lambda row: -row[1])
        rooms: dict[Strategy, Room] = {}
        often: dict[Strategy, list[Sizes]] = {}
        crowded: set[Adaptive | Exact] = set()
        for sizes, frequency in came:
            leaf = self.decision.at(sizes)
            if not isinstance(leaf, (Adaptive, Exact)) or sizes in self.rejected:
                continue
            if leaf not in rooms:
                rooms[leaf] = Room(leaf.limit, self._used(leaf).values())
            if frequency < self._admission.needed(sizes, leaf.after):
                continue
            often.setdefault(leaf, []).append(sizes)
            if rooms[leaf].takes(frequency):
                yield sizes, leaf
            else:
                crowded.add(leaf)
        for leaf in filter(lambda leaf: isinstance(leaf, Adaptive), crowded):
            span = self._span([*often[leaf], *self._used(leaf)])
            if span is not None and self.decision.at(span) == leaf:
                yield span, leaf
        self._age()

    def _span(self, seen: Sequence[Sizes]) -> Span | None:
        """A span of sizes; None where enough was tried."""
        tried = [key for key in (*self.made, *self.rejected) if isinstance(key, Span)]
        if len(tried) >= _MOST_SPANS:
            return None
        low, high = zip(*((min(words), max(words)) for words in zip(*seen)))
        key = key_of(low, high)
        return key if isinstance(key, Span) and key not in tried else None

    def _used(self, leaf: Strategy) -> dict[Sizes, int]:
        """The bodies for single sizes that a strategy has, the oldest first, and their use."""
        keys = [key for key in self.made if not isinstance(key, Span)]
        return {
            key: self._admission.frequency(key, self.hits(key))
            for key in keys
            if self.decision.at(key) == leaf
        }

    def _came(self) -> dict[Sizes, int]:
        """Sizes that came of late and have no body, and about how often."""
        return {k: self._admission.frequency(k, count) for k, count in self.seen(1).items()}

    def _age(self) -> None:
        """Forget half of what came where that decides which bodies there are."""
        limits = [
            leaf for leaf in self.decision.leaves
            if isinstance(leaf, (Adaptive, Exact)) and len(self._used(leaf)) >= leaf.limit
        ]  # fmt: skip
        for leaf in limits[:1]:
            counts: dict[Key, int] = {key: self.hits(key) for key in self.made}
            for sizes, count in self.seen(1).items():
                counts[sizes] = count
            self._admission.age(counts, leaf.limit, leaf.after)

    def hits(self, key: Key) -> int:
        """Launches that a body has served."""
        return 0 if self.choice is None else self.choice.hits(key)

    @property
    def misses(self) -> int:
        """Launches that no body served, while sizes were looked at."""
        if self.choice is None:
            return 0
        return self.choice.misses + sum(self.choice.hits(sizes) for sizes in self._left)

    # ---- telling -------------------------------------------------------------------------------

    @property
    def sources(self) -> tuple[str, ...]:
        """The nodes of its launches."""
        return tuple(site.source for site in self.sites)

    def sizes_of(self, key: Key) -> dict[str, int | tuple[int, int]]:
        """The sizes of a body by name; pairs where it is for all between."""
        return sizes_of((*self.recipe.sizes, "parallel"), key)

    def shown(self, key: Key) -> str:
        """What makes these sizes, for people."""
        return f"{self.site.kernel} at {shown_sizes(self.sizes_of(key))}"

    def event(self, kind: str, key: Key, reply: Reply, reason: str = "") -> Event:
        """What became of a body."""
        schedule = reply.made.schedule if reply.made else ""
        return Event(
            kind, self.site.kernel, self.sources, self.sizes_of(key), schedule, reply.ratio,
            reply.seconds, reason,
        )  # fmt: skip

    def variants(self) -> list[Variant]:
        """Its bodies beside the generic one."""
        return [
            Variant(
                self.site.kernel, self.sources, self.sizes_of(key), reply.made.schedule,
                reply.ratio, reply.seconds, self.hits(key), self.misses,
            )
            for key, reply in list(self.made.items())
            if reply.made is not None
        ]  # fmt: skip

    def kept(self, launches: Mapping[tuple[int, int], int]) -> KeptPlace:
        """Its bodies as a file has them; `launches` are numbers by table and word."""
        bodies = []
        for key, reply in list(self.made.items()):
            made, span = reply.made, isinstance(key, Span)
            low, high = (key.low, key.high) if isinstance(key, Span) else (key, key)
            if made is None or (made.extent and not span):
                continue
            ratio = None if reply.ratio is None else round(1000 * reply.ratio)
            launched = (made.parallel, made.grain, made.scratch, made.schedule)
            bodies.append(KeptBody(low, high, made.symbol, *launched, made.extent, ratio))
        numbers = tuple(launches[id(table), word] for table, word in self.words)
        names = (*self.recipe.sizes, "parallel")
        about = (self.site.kernel, self.sources, numbers, len(self.site.operands), names)
        return KeptPlace(*about, tuple(bodies))

    def serving(self, sizes: Sizes) -> str:
        """Which body serves launches of these sizes now."""
        spans = (key for key in self.made if isinstance(key, Span) and sizes in key)
        key = sizes if sizes in self.made else next(spans, None)
        made = None if key is None else self.made[key].made
        if key is None or made is None:
            return "generic"
        kind = "span" if isinstance(key, Span) else "exact"
        return f"{kind} {made.schedule}"


def places_of(
    program: Program, executable: Executable[Any], target: Target, strategies: Sequence[Strategy]
) -> list[Place]:
    """The launches of each recipe that other bodies can be made from, in any process.

    `strategies` are those of all sites of the host, in their order. Launches of setups, which run
    once for distinct sizes, have their generic body.
    """
    once = {id(site) for part in program.segments for site in part.sites[: part.first_launch]}
    made = {template.schedule for template in target.templates}
    sites, found = iter(zip(program.host_sites, strategies)), dict[Any, Place]()
    for entries, names in executable.interface.entries:
        table = executable.entries[entries]
        for word, name in enumerate(names):
            site, strategy = next(sites)
            recipe = None if site.recipe is None else program.recipes[site.recipe]
            if recipe is None or not recipe.schedule or id(site) in once:
                continue
            if parse_options(recipe.schedule)[0] not in made:
                continue
            words = (*site.sizes, site.parallel)
            decision = Decision(strategy, words)
            key = (site.recipe, strategy, words if len(decision.leaves) > 1 else ())
            if key not in found:
                found[key] = Place(site, recipe, int(table[word]), decision)
            place = found[key]
            if place.generic != int(table[word]) or name != site.kernel:
                raise InternalError(f"the table of code has another kernel than '{site.kernel}'")
            place.words.append((table, word))
            place.sites.append(site)
    return list(found.values())
