"""Call sites that may have variants: their variants, launch counts and rejected sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.compiler.kernels.schedule import parse_options
from anydim.compiler.targets.target import Target
from anydim.compiler.variants.admission import Admission, Capacity
from anydim.compiler.variants.launch_strategy import Decision
from anydim.compiler.variants.strategies import Strategy
from anydim.compiler.variants.workers import Reply
from anydim.runtime import variant_tables
from anydim.runtime.executable import Executable
from anydim.runtime.program.program import Program
from anydim.runtime.program.recipe import Recipe
from anydim.runtime.program.segment import Site as ProgramSite
from anydim.runtime.program.variants import (
    StoredSite,
    StoredVariant,
    Variant,
    shown_sizes,
    sizes_of,
)
from anydim.runtime.variant_tables import (
    AS_LAUNCHED,
    Callee,
    Choice,
    Key,
    Sizes,
    Span,
    VariantEntry,
    key_of,
)

_MAX_MARKED = 1024  # sizes of a call site marked for the generic kernel
MAX_REJECTED = 4096  # sizes of a call site; verdicts are also in the ledger file
_MAX_SPANS = 2  # per call site that `adaptive` tries
_NEVER_FITS = 1 << 62  # bytes of scratch: never matches


@dataclass(frozen=True)
class Event:
    """An event of a variant: "compiled", "published", or "rejected" for `reason`.

    The other fields are as in `Variant`.
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


class CallSite:
    """The launches of one recipe that share a strategy: their variants, and rejected sizes.

    `slots` are the positions of their entries in code tables.
    """

    def __init__(self, site: ProgramSite, recipe: Recipe, generic: int, decision: Decision) -> None:
        self.site, self.recipe, self.generic, self.decision = site, recipe, generic, decision
        self.slots: list[tuple[numpy.ndarray, int]] = []
        self.sites: list[ProgramSite] = []
        self.choice: Choice | None = None
        self.made: dict[Key, Reply] = {}
        self.rejected: set[Key] = set()
        self._marked: set[Sizes] = set()  # sizes that the generic kernel serves without a callback
        self._begun: dict[Strategy, set[Sizes]] = {}  # sizes whose first launch requested a variant
        self._full: set[Strategy] = set()  # strategies at their limit
        self._admission = Admission()

    # ---- code tables ----------------------------------------------------------------------------

    def open(self, callee: Callee, watching: bool) -> None:
        """Select variants by a table from now on."""
        site = variant_tables.Site(
            self.generic, len(self.site.operands), len(self.recipe.sizes) + 1
        )
        self.choice = Choice(site, callee, watching)
        self._store(self.choice.entry)

    def close(self) -> object:
        """Use only the generic kernel from now on; returns objects that running calls may need."""
        before, self.choice = self.choice, None
        self._store(self.generic)
        return before

    def rest(self, resting: bool) -> None:
        """Bypass the table and launch the generic kernel, or use the table again."""
        assert self.choice is not None
        self._store(self.generic if resting else self.choice.entry)

    def add(self, body: VariantEntry, reply: Reply) -> object:
        """Add a variant, and evict one above the limit; returns the same as `close`."""
        assert self.choice is not None
        key, leaf = body.sizes, self.decision.at(body.sizes)
        used = {} if isinstance(key, Span) else self._used(leaf)
        less: list[Key] = []
        if leaf.limit and len(used) >= leaf.limit and key not in used:
            less.append(min(used, key=lambda sizes: used[sizes]))
        if not isinstance(key, Span):
            self._admission.record_variant(key, max(self._recent().values(), default=0))
            self._marked.discard(key)
            self.choice.forget(key)
        before = self.choice.change([body], less)
        self.made[key] = reply
        for gone in less:
            del self.made[gone]
            self._admission.drop(gone)
        self._store(self.choice.entry)
        return before

    def has_capacity(self, sizes: Sizes) -> bool:
        """Whether sizes get a variant at their first launch: the first `limit` distinct ones do."""
        leaf = self.decision.at(sizes)
        if not leaf.blocking or sizes in self.rejected or self._admission.had_variant(sizes):
            return False
        begun = self._begun.setdefault(leaf, set())
        if sizes not in begun and len(begun.union(self._used(leaf))) >= leaf.limit:
            self._full.add(leaf)
            return False
        return True

    def begin(self, sizes: Sizes) -> None:
        """Record that a variant for these sizes is being compiled."""
        self._begun[self.decision.at(sizes)].add(sizes)

    @property
    def counts(self) -> bool:
        """Whether frequent sizes get a variant."""
        return bool(self._full) or any(e.background for e in self.decision.leaves)

    @property
    def full(self) -> bool:
        """Whether no new size gets a variant at its first launch."""
        return self._full.issuperset(e for e in self.decision.leaves if e.blocking)

    def watch(self) -> object:
        """Let native code count sizes of launches without a variant, without callbacks."""
        assert self.choice is not None
        before = self.choice.watch()
        self._store(self.choice.entry)
        return before

    def leave(self, sizes: Sizes) -> object:
        """Serve these sizes by the generic kernel, and count them; returns the same as `close`."""
        assert self.choice is not None
        less = self._marked if len(self._marked) >= _MAX_MARKED else set()
        before = self.choice.change([VariantEntry(sizes, 0, AS_LAUNCHED, 1, _NEVER_FITS)], less)
        self._marked = self._marked - less | {sizes}
        self._store(self.choice.entry)
        return before

    def _store(self, entry: int) -> None:
        """Store the entry of each launch atomically; running calls see the old or the new one."""
        for table, slot in self.slots:
            table[slot] = entry

    # ---- counters -----------------------------------------------------------------------------

    def unserved_sizes(self, after: int) -> dict[Sizes, int]:
        """Sizes without a variant with at least `after` launches, and their approximate counts."""
        if self.choice is None:
            return {}
        left = {sizes: self.choice.hits(sizes) for sizes in self._marked}
        frequent = {sizes: hits for sizes, hits in left.items() if hits >= after}
        return {**self.choice.frequent_sizes(after), **frequent}

    def reject(self, key: Key) -> None:
        """Mark sizes as rejected; clears the marks when there are too many."""
        if len(self.rejected) >= MAX_REJECTED:
            self.rejected.clear()
        self.rejected.add(key)

    def frequent_sizes(self) -> Iterator[tuple[Key, Strategy]]:
        """Sizes frequent enough for a variant, most frequent first, within the capacity.

        If frequent sizes exceed the capacity, also a span that covers them.
        """
        recent = sorted(self._recent().items(), key=lambda row: -row[1])
        capacities: dict[Strategy, Capacity] = {}
        frequent: dict[Strategy, list[Sizes]] = {}
        exceeded: set[Strategy] = set()
        for sizes, frequency in recent:
            leaf = self.decision.at(sizes)
            if not leaf.limit or sizes in self.rejected:
                continue
            if leaf not in capacities:
                capacities[leaf] = Capacity(leaf.limit, self._used(leaf).values())
            if frequency < self._admission.launches_needed(sizes, leaf.after):
                continue
            frequent.setdefault(leaf, []).append(sizes)
            if capacities[leaf].admits(frequency):
                yield sizes, leaf
            else:
                exceeded.add(leaf)
        for leaf in filter(lambda leaf: leaf.background, exceeded):
            span = self._span([*frequent[leaf], *self._used(leaf)])
            if span is not None and self.decision.at(span) == leaf:
                yield span, leaf
        self._age()

    def _span(self, sizes: Sequence[Sizes]) -> Span | None:
        """A span that covers the sizes; None if enough spans were tried."""
        tried = [key for key in (*self.made, *self.rejected) if isinstance(key, Span)]
        if len(tried) >= _MAX_SPANS:
            return None
        low, high = zip(*((min(values), max(values)) for values in zip(*sizes)))
        key = key_of(low, high)
        return key if isinstance(key, Span) and key not in tried else None

    def _used(self, leaf: Strategy) -> dict[Sizes, int]:
        """The variants for single sizes of a strategy, oldest first, and their frequencies."""
        keys = [key for key in self.made if not isinstance(key, Span)]
        return {
            key: self._admission.frequency(key, self.hits(key))
            for key in keys
            if self.decision.at(key) == leaf
        }

    def _recent(self) -> dict[Sizes, int]:
        """Recent sizes without a variant, and their approximate frequencies."""
        return {
            k: self._admission.frequency(k, count) for k, count in self.unserved_sizes(1).items()
        }

    def _age(self) -> None:
        """Halve recorded frequencies for a strategy at its limit."""
        limits = [
            leaf for leaf in self.decision.leaves
            if leaf.limit and len(self._used(leaf)) >= leaf.limit
        ]  # fmt: skip
        for leaf in limits[:1]:
            counts: dict[Key, int] = {key: self.hits(key) for key in self.made}
            for sizes, count in self.unserved_sizes(1).items():
                counts[sizes] = count
            self._admission.age(counts, leaf.limit, leaf.after)

    def hits(self, key: Key) -> int:
        """Count of launches that a variant served."""
        return 0 if self.choice is None else self.choice.hits(key)

    @property
    def misses(self) -> int:
        """Count of launches without a variant while counting."""
        if self.choice is None:
            return 0
        return self.choice.misses + sum(self.choice.hits(sizes) for sizes in self._marked)

    # ---- reporting -----------------------------------------------------------------------------

    @property
    def sources(self) -> tuple[str, ...]:
        """The source nodes of the launches."""
        return tuple(site.source for site in self.sites)

    def sizes_of(self, key: Key) -> dict[str, int | tuple[int, int]]:
        """The sizes of a variant by name; pairs (low, high) for a span."""
        return sizes_of((*self.recipe.sizes, "parallel"), key)

    def describe(self, key: Key) -> str:
        """The kernel and these sizes as text for users."""
        return f"{self.site.kernel} at {shown_sizes(self.sizes_of(key))}"

    def event(self, kind: str, key: Key, reply: Reply, reason: str = "") -> Event:
        """An event of a variant."""
        schedule = reply.made.schedule if reply.made else ""
        return Event(
            kind, self.site.kernel, self.sources, self.sizes_of(key), schedule, reply.ratio,
            reply.seconds, reason,
        )  # fmt: skip

    def variants(self) -> list[Variant]:
        """The variants of this call site."""
        return [
            Variant(
                self.site.kernel, self.sources, self.sizes_of(key), reply.made.schedule,
                reply.ratio, reply.seconds, self.hits(key), self.misses,
            )
            for key, reply in list(self.made.items())
            if reply.made is not None
        ]  # fmt: skip

    def stored_site(self, launches: Mapping[tuple[int, int], int]) -> StoredSite:
        """The variants as a file stores them; `launches` are launch numbers by table and slot."""
        bodies = []
        for key, reply in list(self.made.items()):
            made, span = reply.made, isinstance(key, Span)
            low, high = (key.low, key.high) if isinstance(key, Span) else (key, key)
            if made is None or (made.extent and not span):
                continue
            ratio = None if reply.ratio is None else round(1000 * reply.ratio)
            launched = (made.parallel, made.grain, made.scratch, made.schedule)
            bodies.append(StoredVariant(low, high, made.symbol, *launched, made.extent, ratio))
        numbers = tuple(launches[id(table), slot] for table, slot in self.slots)
        names = (*self.recipe.sizes, "parallel")
        about = (self.site.kernel, self.sources, numbers, len(self.site.operands), names)
        return StoredSite(*about, tuple(bodies))

    def serving(self, sizes: Sizes) -> str:
        """Name of the variant that serves launches of these sizes now."""
        spans = (key for key in self.made if isinstance(key, Span) and sizes in key)
        key = sizes if sizes in self.made else next(spans, None)
        made = None if key is None else self.made[key].made
        if key is None or made is None:
            return "generic"
        kind = "span" if isinstance(key, Span) else "exact"
        return f"{kind} {made.schedule}"


def call_sites_of(
    program: Program, executable: Executable[Any], target: Target, strategies: Sequence[Strategy]
) -> list[CallSite]:
    """Group the launches that can have variants by recipe and strategy.

    `strategies` are those of all host sites, in order. Launches of setups, which run once for
    distinct sizes, keep their generic kernel.
    """
    once = {id(site) for part in program.segments for site in part.sites[: part.first_launch]}
    made = {template.schedule for template in target.templates}
    sites, found = iter(zip(program.host_sites, strategies)), dict[Any, CallSite]()
    for entries, names in executable.interface.entries:
        table = executable.entries[entries]
        for slot, name in enumerate(names):
            site, strategy = next(sites)
            recipe = None if site.recipe is None else program.recipes[site.recipe]
            if recipe is None or not recipe.schedule or id(site) in once:
                continue
            if parse_options(recipe.schedule)[0] not in made:
                continue
            sizes = (*site.sizes, site.parallel)
            decision = Decision(strategy, sizes)
            key = (site.recipe, strategy, sizes if len(decision.leaves) > 1 else ())
            if key not in found:
                found[key] = CallSite(site, recipe, int(table[slot]), decision)
            call_site = found[key]
            if call_site.generic != int(table[slot]) or name != site.kernel:
                raise InternalError(f"the code table has another kernel than '{site.kernel}'")
            call_site.slots.append((table, slot))
            call_site.sites.append(site)
    return list(found.values())
