"""The bodies of a model's sites while it runs: made as its strategy says, and counted.

Calls find a body in native code. Python comes in where a launch misses one under `exact`, and
after a call now and then under `adaptive`, to wake the thread that has bodies made.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy

from anydim.base import settings
from anydim.base.errors import InternalError, OptionError
from anydim.base.records import dataclass
from anydim.kernels.schedule import parse_options
from anydim.program.program import Program
from anydim.program.recipe import Recipe
from anydim.program.segment import Site as ProgramSite
from anydim.runtime import choices
from anydim.runtime.choices import Body, Callee, Choice, Sizes
from anydim.runtime.cores import available_cores
from anydim.runtime.executable import NEVER, Executable
from anydim.sizes import Box
from anydim.targets.target import Target
from anydim.variants.ledger import Ledger, Verdict, ledger, name_of
from anydim.variants.strategies import Adaptive, Buckets, Exact, Strategy
from anydim.variants.workers import Order, Reply, Team, workers

LOG = logging.getLogger("anydim.variants")
_MISSED = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_FIRST_LOOK, _LAST_LOOK = 8, 1 << 16  # calls between two looks at what was seen
_WINDOW = 64  # calls that are watched after a rest
_MOST_REJECTED = 4096  # sizes of a place: files of verdicts know them, too


@dataclass(frozen=True)
class Variant:
    """A body beside the generic one of a kernel: for which sizes, and what became of it.

    `sources` are the nodes whose launches it serves. `ratio` is its share of the generic body's
    time, None where nobody measured; `seconds` is what it took to make and try. `hits` are launches
    that it served, and only about right where several threads count.
    """

    kernel: str
    sources: tuple[str, ...]
    sizes: Mapping[str, int]
    schedule: str
    ratio: float | None
    seconds: float
    hits: int

    def __str__(self) -> str:
        plain = {name: value for name, value in self.sizes.items() if name.isidentifier()}
        sizes = ", ".join(f"{name}={value}" for name, value in (plain or self.sizes).items())
        share = "not measured" if self.ratio is None else f"{self.ratio:.2f} of the generic time"
        return f"{self.kernel} at {sizes}: {self.schedule}, {share}, {self.hits} hits"


class Place:
    """The launches of one recipe: the words of their entries, their bodies, and what was tried."""

    def __init__(self, site: ProgramSite, recipe: Recipe, generic: int) -> None:
        self.site, self.recipe, self.generic = site, recipe, generic
        self.words: list[tuple[numpy.ndarray, int]] = []
        self.sites: list[ProgramSite] = []
        self.choice: Choice | None = None
        self.made: dict[Sizes, Reply] = {}
        self.rejected: set[Sizes] = set()
        self._used: dict[Sizes, tuple[int, int]] = {}  # hits, and when they last were others

    def open(self, callee: Callee, watching: bool) -> None:
        """Choose by a table from now on."""
        site = choices.Site(self.generic, len(self.site.operands), len(self.recipe.sizes) + 1)
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

    def add(self, body: Body, reply: Reply, limit: int | None, clock: int) -> object:
        """One body more, and one less where there are too many; returns what `close` does."""
        assert self.choice is not None
        less = []
        if limit is not None and len(self.choice.bodies) >= limit:
            less.append(self._oldest(clock))
        before = self.choice.change([body], less)
        self.made[body.sizes], self._used[body.sizes] = reply, (0, clock)
        for gone in less:
            del self.made[gone], self._used[gone]
        self._store(self.choice.entry)
        return before

    def reject(self, sizes: Sizes) -> None:
        """Ask for no body of these sizes again; of too many, all are forgotten."""
        if len(self.rejected) >= _MOST_REJECTED:
            self.rejected.clear()
        self.rejected.add(sizes)

    def hits(self, sizes: Sizes) -> int:
        """Launches that a body has served."""
        return 0 if self.choice is None else self.choice.hits(sizes)

    def shown(self, sizes: Sizes) -> str:
        """What makes these sizes, for people."""
        given = ", ".join(f"{n}={v}" for n, v in zip(self.recipe.sizes, sizes))
        return f"{self.site.kernel} at {given}"

    def _store(self, entry: int) -> None:
        """One store a launch, which calls in progress see or do not see."""
        for table, word in self.words:
            table[word] = entry

    def busy(self, clock: int) -> int:
        """How many bodies were used since this was asked, or since they are there."""
        before = dict(self._used)
        self._look(clock)
        return sum(1 for sizes, used in self._used.items() if used != before[sizes] or not used[0])

    def _oldest(self, clock: int) -> Sizes:
        """The body that was not used for the longest time."""
        self._look(clock)
        return min(self._used, key=lambda sizes: self._used[sizes][1])

    def _look(self, clock: int) -> None:
        for sizes, (hits, _) in list(self._used.items()):
            if self.hits(sizes) != hits:
                self._used[sizes] = (self.hits(sizes), clock)


class Serving:
    """What a strategy keeps for one executable."""

    def __init__(
        self, program: Program, executable: Executable[Any], target: Target, strategy: Strategy
    ) -> None:
        self.strategy, self._executable, self._target = strategy, executable, target
        self.places = _places(program, executable, target)
        self.compiles = 0
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._waiting: dict[tuple[int, Sizes], Future[Reply]] = {}
        self._clock = 0
        self._calls = _FIRST_LOOK  # until the next look
        self._resting = False
        self._callback = _MISSED(self._missed)
        self._failed: dict[int, BaseException] = {}  # by thread
        self._team: Team | None = None
        self._ledger: Ledger = ledger(name_of(target))
        missed = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        if isinstance(strategy, (Exact, Adaptive)):
            exact = isinstance(strategy, Exact)
            for number, place in enumerate(self.places):
                place.open(Callee(missed if exact else 0, number), watching=not exact)
            executable.served = self._raise_failed if exact else self._wake
            executable.until_served = NEVER if exact else _FIRST_LOOK
        if isinstance(strategy, Buckets):
            for place in self.places:
                place.open(Callee(), watching=False)

    def close(self) -> None:
        """The generic bodies alone from now on."""
        self._executable.served = None
        self._executable.until_served = NEVER
        for place in self.places:
            if place.choice is not None:
                self._executable.retire((place.close(), self._callback))

    # ---- what a call does ----------------------------------------------------------------------

    def _wake(self) -> None:
        """After some calls under `adaptive`: look, or watch again after a rest."""
        if self._resting:
            self._rest(False)
            self._executable.until_served = _WINDOW
        else:
            self._executable.until_served = self._calls
            aside(self)

    def _rest(self, resting: bool) -> None:
        """Sizes of launches without other bodies are counted, or cost nothing for a while."""
        self._resting = resting
        for place in self.places:
            if place.choice is not None and not place.choice.bodies:
                place.rest(resting)

    def _raise_failed(self) -> None:
        """After a call under `exact` that should have waited for code and could not."""
        self._executable.until_served = 0 if self._failed else NEVER
        failed = self._failed.pop(threading.get_ident(), None)
        if failed is not None:
            raise failed

    def _missed(self, number: int, address: int) -> int:
        """A launch under `exact` whose sizes have no body: make one, and wait for it."""
        try:
            place = self.places[number]
            count = len(place.recipe.sizes) + 1
            sizes = tuple((ctypes.c_int64 * count).from_address(address))
            if sizes in place.rejected or place.choice is None:
                return 0
            if settings.forbid_compile:
                raise OptionError(
                    f"{place.site.source or place.site.kernel}: {place.shown(sizes)} asks for "
                    "code, and forbid_compile is set", "prepare(...) these sizes before",
                )  # fmt: skip
            self._make(number, sizes, None).result()
            return 0 if place.choice is None else place.choice.row(sizes)
        except BaseException as error:  # of a callback: nobody above would see it
            self._failed[threading.get_ident()] = error
            self._executable.until_served = 0
            return 0

    # ---- making --------------------------------------------------------------------------------

    def prepare(self, sizes: Mapping[str, int]) -> int:
        """Bodies for all launches at sizes of dims, as far as these tell them; how many are new."""
        most = self.strategy.most if isinstance(self.strategy, Adaptive) else None
        orders: dict[tuple[int, Sizes], Future[Reply]] = {}
        for number, place in enumerate(self.places):
            for site in place.sites if place.choice is not None else ():
                key = self.key(site, sizes)
                if key is not None and key not in place.made and key not in place.rejected:
                    orders[number, key] = self._make(number, key, most)
        for order in orders.values():
            order.result()
        return sum(1 for number, key in orders if key in self.places[number].made)

    def ask(self, number: int, sizes: Sizes) -> Future[Reply]:
        """Have a body of a place searched for, whatever is known; it is published if it pays."""
        return self._make(number, sizes, self.most, anew=True)

    @property
    def most(self) -> float:
        """The share of the generic body's time that a body may take."""
        return self.strategy.most if isinstance(self.strategy, Adaptive) else Adaptive.most

    def ask_whole(
        self, number: int, samples: tuple[tuple[Sizes, float], ...], guards: tuple[Sizes, ...],
        seconds: float,
    ) -> Future[Reply]:  # fmt: skip
        """Have a schedule for all sizes of a place searched for; nothing is published."""
        order = Order(
            self.places[number].recipe, (), self._target.name, self.most, "", seconds, samples,
            guards, self._executable.threads,
        )  # fmt: skip
        return self._hired().ask(order)

    def keep_whole(self, number: int, verdict: Verdict) -> None:
        """Remember a schedule for all sizes; one that was there before was better by its share."""
        recipe, threads = self.places[number].recipe, self._executable.threads
        before = self._ledger.tuned(threads).get(recipe.subject)
        if before is not None and before.schedule == recipe.schedule:
            verdict = replace(verdict, ratio=verdict.ratio * before.ratio)
        self._ledger.keep_tuned(recipe.subject, threads, verdict)

    @property
    def box(self) -> Box:
        """The sizes that the program is for."""
        return self._executable.signature.box

    @property
    def tuners(self) -> int:
        """Processes that search at once."""
        return self._hired().count

    def hire(self, team: Team) -> None:
        """Have others search."""
        self._team = team

    def _hired(self) -> Team:
        return self._team or workers(False, available_cores())

    def key(self, site: ProgramSite, dims: Mapping[str, int]) -> Sizes | None:
        """What a launch is asked for at sizes of dims; None where they do not tell it."""
        wanted = (*site.sizes, site.parallel)
        if any(size.symbols - dims.keys() for size in wanted):
            return None
        return tuple(size.evaluate(dims) for size in wanted)

    def look(self) -> Iterator[Future[Reply]]:
        """Under `adaptive`: have made what came often; what is being made."""
        if not isinstance(self.strategy, Adaptive):
            return
        found = False
        for number, place in enumerate(self.places):
            if place.choice is None:
                continue
            often = [
                (count, sizes) for sizes, count in place.choice.seen(self.strategy.after).items()
                if sizes not in place.rejected
            ]  # fmt: skip
            if not often:
                continue
            for _, sizes in sorted(often, reverse=True)[: self._room(place, self.strategy.limit)]:
                found = True
                yield self._make(number, sizes, self.strategy.most)
        self._calls = _FIRST_LOOK if found else min(2 * self._calls, _LAST_LOOK)
        if not found and self._calls > _WINDOW:
            self._rest(True)

    def _room(self, place: Place, limit: int) -> int:
        """How many bodies there may be more, those counted that served nothing since last time."""
        with self._lock:
            self._clock += 1
            return limit - place.busy(self._clock)

    def _make(
        self, number: int, sizes: Sizes, most: float | None, anew: bool = False
    ) -> Future[Reply]:
        """A body on its way, one for all who ask at once; it is published when it is there.

        What the ledger has is not tried again, unless it is asked for `anew`.
        """
        key, place = (number, sizes), self.places[number]
        if self._process != os.getpid():  # whoever worked on bodies stayed in the parent
            self._process, self._lock, self._waiting = os.getpid(), threading.Lock(), {}
        with self._lock:
            found = self._waiting.get(key)
            if found is not None:
                return found
            done = self._waiting[key] = Future()
        try:
            known = self._known(place, sizes, most, anew)
            if known is not None and most is not None and known.ratio > most:
                self._take(number, sizes, Reply(ratio=known.ratio), done)
                return done
            LOG.debug("make: %s", place.shown(sizes))
            threads = self._executable.threads
            order = Order(place.recipe, sizes, self._target.name, most, threads=threads)
            if known is not None:
                order = replace(order, most=None, schedule=known.schedule)
            ordered = (self._hired() if anew else workers(most is not None)).ask(order)
        except Exception as error:  # whoever asks for this later would wait without end
            self._take(number, sizes, Reply(problem=str(error)), done)
            return done

        def take(asked: Future[Reply]) -> None:
            reply = asked.result()
            self._take(number, sizes, replace(reply, ratio=known.ratio) if known else reply, done)

        ordered.add_done_callback(take)
        return done

    def _known(self, place: Place, sizes: Sizes, most: float | None, anew: bool) -> Verdict | None:
        """What was found before, where it is asked for."""
        asks = most is not None and not anew
        return self._ledger.find(place.recipe.digest, sizes) if asks else None

    def _take(self, number: int, sizes: Sizes, reply: Reply, done: Future[Reply]) -> None:
        """Publish what was made, or remember that nothing is worth it."""
        place = self.places[number]
        try:
            if reply.tried and reply.ratio is not None:
                verdict = Verdict(reply.tried[-1][0], reply.ratio)
                self._ledger.keep(place.recipe.digest, sizes, verdict)
            self._publish(place, sizes, reply)
        except Exception:  # whatever it is, the generic body serves
            LOG.exception("a body cannot be loaded: %s", place.shown(sizes))
            place.reject(sizes)
        finally:
            with self._lock:
                self._waiting.pop((number, sizes), None)
            done.set_result(reply)

    def _publish(self, place: Place, sizes: Sizes, reply: Reply) -> None:
        made = reply.made
        if made is None or self._target.load is None or place.choice is None:
            LOG.info("rejected: %s%s", place.shown(sizes), reply.problem and f", {reply.problem}")
            place.reject(sizes)
            return
        code = self._target.load(made.objects, [made.symbol])
        address = code.address(made.symbol)
        body = Body(sizes, address, made.parallel, made.grain, made.scratch, code)
        with self._lock:
            self._clock += 1
            self.compiles += 1
            limit = getattr(self.strategy, "limit", None)
            before = place.add(body, reply, limit, self._clock)
        self._executable.retire(before)
        LOG.info("published: %s", place.shown(sizes))

    # ---- telling -------------------------------------------------------------------------------

    def variants(self) -> tuple[Variant, ...]:
        """Every body beside the generic ones."""
        return tuple(
            Variant(
                place.site.kernel, tuple(site.source for site in place.sites),
                dict(zip((*place.recipe.sizes, "parallel"), sizes)),
                reply.made.schedule, reply.ratio, reply.seconds, place.hits(sizes),
            )
            for place in self.places
            for sizes, reply in list(place.made.items())
            if reply.made is not None
        )  # fmt: skip


def _places(program: Program, executable: Executable[Any], target: Target) -> list[Place]:
    """The launches of each recipe that other bodies can be made from, in any process."""
    made = {template.schedule for template in target.templates}
    sites, found = iter(program.sites), dict[int, Place]()
    for entries, names in executable.interface.entries:
        table = executable.entries[entries]
        for word, name in enumerate(names):
            site = next(sites)
            recipe = None if site.recipe is None else program.recipes[site.recipe]
            if recipe is None or site.recipe is None or not recipe.schedule:
                continue
            if parse_options(recipe.schedule)[0] not in made:
                continue
            place = found.setdefault(site.recipe, Place(site, recipe, int(table[word])))
            if place.generic != int(table[word]) or name != site.kernel:
                raise InternalError(f"the table of code has another kernel than '{site.kernel}'")
            place.words.append((table, word))
            place.sites.append(site)
    return list(found.values())


# ---- the thread that has bodies made -------------------------------------------------------------


class _Aside:
    """One thread for all models of the process; it lives while there is something to do."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._wanted: list[Serving] = []
        self._runs = False

    def __call__(self, serving: Serving) -> None:
        if self._process != os.getpid():
            self._start()
        with self._lock:
            if serving not in self._wanted:
                self._wanted.append(serving)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="anydim-adaptive", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._wanted:
                    self._runs = False
                    return
                serving = self._wanted.pop(0)
            try:
                for made in list(serving.look()):
                    made.result()
            except Exception:  # another call wakes it again, and the generic bodies serve
                LOG.exception("no bodies are looked for at this time")


aside: Callable[[Serving], None] = _Aside()
