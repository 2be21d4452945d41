"""Serves a model's sites with variants, as its strategy determines, and counts launches.

Native code selects the variant of a launch. Python runs where a launch under `exact` has no variant
and capacity remains, and after every n calls under `adaptive`, or `exact` at its limit, to
wake the background thread that requests variants.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from anydim.base import settings
from anydim.base.errors import OptionError
from anydim.base.text import count_of
from anydim.compiler.targets.target import Target
from anydim.compiler.variants.background import run_in_background
from anydim.compiler.variants.call_sites import CallSite, Event, call_sites_of
from anydim.compiler.variants.ledger import Ledger, Verdict, ledger, name_of
from anydim.compiler.variants.shared_schedules import Row, share_schedules
from anydim.compiler.variants.solved_dims import narrow_dim
from anydim.compiler.variants.strategies import Adaptive, Buckets, Exact, Strategy
from anydim.compiler.variants.strategies.buckets import Between
from anydim.compiler.variants.strategies.strategy import SAME
from anydim.compiler.variants.workers import Order, Reply, Team, workers
from anydim.runtime.cores import available_cores
from anydim.runtime.executable import NEVER, Executable
from anydim.runtime.program.program import Program
from anydim.runtime.program.segment import Site as ProgramSite
from anydim.runtime.program.variants import StoredSite, Variant
from anydim.runtime.variant_tables import Callee, Key, Sizes, VariantEntry, key_of
from anydim.sizes import LARGEST, Box, bounds

LOG = logging.getLogger("anydim.variants")
MISSED = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_FIRST_POLL, _LAST_POLL = 8, 1 << 16  # calls between two polls of the counters
_WINDOW = 64  # calls that are counted after a pause
_WAIT_SECONDS = 1.0  # of a search that a caller waits for
_SHARED_SECONDS = 10.0  # of the searches for all buckets of a model; again for other sizes
Tell = Callable[[Event], None]
Request = tuple[int, Key]  # number of a call site, and sizes


class Serving:
    """The variants of one executable under `strategy`; `parts` are the strategies of all its sites.

    `tell` receives events of variants.
    """

    def __init__(
        self, program: Program, executable: Executable[Any], target: Target, strategy: Strategy,
        parts: Sequence[Strategy], tell: Tell,
    ) -> None:  # fmt: skip
        self.strategy, self._executable, self._target = strategy, executable, target
        self._tell = tell
        self.call_sites = call_sites_of(program, executable, target, parts)
        self.compiles = 0
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._waiting: dict[tuple[int, Key], Future[Reply]] = {}
        self._ordered: dict[tuple[int, Key], Future[Reply]] = {}
        self._calls = _FIRST_POLL  # until the next poll
        self._resting = self._is_closed = False
        self._callback = MISSED(self._compile_missing)
        self._failed: dict[int, BaseException] = {}  # by thread
        self._team: Team | None = None
        self._ledger: Ledger = ledger(name_of(target))
        self._watched: list[CallSite] = []  # pause while no variant is worthwhile
        self._open()

    def _open(self) -> None:
        """Install tables at call sites whose strategies need them."""
        missed = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        watching = waiting = False
        for number, call_site in enumerate(self.call_sites):
            kinds = {type(leaf) for leaf in call_site.decision.leaves}
            if kinds & {Exact, Adaptive, Buckets}:
                exact, adaptive = Exact in kinds, Adaptive in kinds
                call_site.open(Callee(missed if exact else 0, number), watching=adaptive)
                watching, waiting = watching or adaptive, waiting or exact
                self._watched += [call_site] if kinds == {Adaptive} else []
        self._polls = watching
        if watching or waiting:
            self._executable.served = self._after_calls
            self._executable.until_served = _FIRST_POLL if watching else NEVER

    def close(self) -> None:
        """Use only generic kernels from now on; cancels orders that have not started."""
        self._is_closed = True
        for ordered in list(self._ordered.values()):
            ordered.cancel()
        self._executable.served = None
        self._executable.until_served = NEVER
        for call_site in self.call_sites:
            if call_site.choice is not None:
                self._executable.retire((call_site.close(), self._callback))

    # ---- hooks of calls -----------------------------------------------------------------------

    def _after_calls(self) -> None:
        """Hook: runs after every n calls while counting, and after a failed request."""
        failed = self._failed.pop(threading.get_ident(), None)
        if not self._polls:
            calls = NEVER
        elif self._resting:
            self._rest(False)
            calls = _WINDOW
        else:
            calls = self._calls
            run_in_background(self)
        self._executable.until_served = 0 if self._failed else calls
        if failed is not None:
            raise failed

    def _rest(self, resting: bool) -> None:
        """Pause or resume the counting of sizes at call sites without variants."""
        self._resting = resting
        for call_site in self._watched:
            if call_site.choice is not None and not call_site.choice.bodies:
                call_site.rest(resting)

    def _compile_missing(self, number: int, address: int) -> int:
        """Callback of a launch under `exact` without a variant for its sizes: compile one and wait.

        At the limit, the generic kernel serves at once.
        """
        try:
            call_site = self.call_sites[number]
            count = len(call_site.recipe.sizes) + 1
            sizes = tuple((ctypes.c_int64 * count).from_address(address))
            with self._own_lock():
                if call_site.choice is None:
                    return 0
                if call_site.choice.row(sizes):  # another call has requested it meanwhile
                    return call_site.choice.row(sizes)
                if not call_site.has_capacity(sizes):
                    self._leave(call_site, sizes)
                    return 0
                if settings.forbid_compile:
                    raise OptionError(
                        f"{call_site.site.source or call_site.site.kernel}: "
                        f"{call_site.describe(sizes)} needs compilation, and forbid_compile is set",
                        "call prepare(...) with these sizes first",
                    )  # fmt: skip
                call_site.begin(sizes)
            self._make(number, sizes, None, waits=True).result()
            return 0 if call_site.choice is None else call_site.choice.row(sizes)
        except BaseException as error:  # exceptions cannot propagate from a callback
            self._failed[threading.get_ident()] = error
            self._executable.until_served = 0
            return 0

    def _leave(self, call_site: CallSite, sizes: Sizes) -> None:
        """Serve sizes by the generic kernel; above the limit, native code counts them."""
        self._executable.retire(call_site.watch() if call_site.full else call_site.leave(sizes))
        if call_site.counts and not self._polls:
            self._polls = True
            self._executable.until_served = _FIRST_POLL

    def _own_lock(self) -> threading.Lock:
        """The lock of this process; a forked child starts without pending work."""
        if self._process != os.getpid():
            self._process, self._lock, self._waiting = os.getpid(), threading.Lock(), {}
            self._ordered = {}
        return self._lock

    # ---- requests ------------------------------------------------------------------------------

    def prepare(self, sizes: Mapping[str, int]) -> int:
        """Compile variants for all launches that these dims determine; return their count."""
        wanted: dict[Request, float | None] = {}
        for number, call_site in enumerate(self.call_sites):
            for site in call_site.sites if call_site.choice is not None else ():
                key = self.key(site, sizes)
                if key is None or not key[-1]:  # an empty range needs no variant
                    continue
                leaf = call_site.decision.at(key)
                if leaf.makes_variants:
                    wanted[number, key] = leaf.most
        return self._all_made(self._not_tried(wanted))

    def prepare_buckets(self) -> int:
        """Compile variants for all buckets; return their count."""
        wanted: dict[Request, float | None] = {}
        for number, call_site in enumerate(self.call_sites):
            for leaf in call_site.decision.leaves if call_site.choice is not None else ():
                for bucket in leaf.combinations():
                    for site in call_site.sites:
                        key = self._span(site, bucket)
                        if key is not None and call_site.decision.at(key) == leaf:
                            wanted[number, key] = Adaptive.most
        return self._all_made(self._not_tried(wanted), True)

    def _not_tried(self, wanted: Mapping[Request, float | None]) -> dict[Request, float | None]:
        sites = self.call_sites
        return {
            (number, key): most for (number, key), most in wanted.items()
            if key not in sites[number].made and key not in sites[number].rejected
        }  # fmt: skip

    def _all_made(self, wanted: Mapping[Request, float | None], share: bool = False) -> int:
        """Compile variants and wait; return the count that exist afterwards.

        With `share`, one search per recipe, at the last of its sizes, examines neighbours of
        schedules; other sizes try its schedules, and fast schedules of similar recipes.
        """
        first = dict(wanted.keys()) if share else {}  # the last sizes of each call site
        early = {each: most for each, most in wanted.items() if each in first.items() or not share}
        replies = self._waited_for(early, {}, _SHARED_SECONDS if share else math.inf)
        rest = {each: most for each, most in wanted.items() if each not in early}
        self._waited_for(rest, self._schedules_to_share(replies) if rest else {}, _SHARED_SECONDS)
        return sum(1 for number, key in wanted if key in self.call_sites[number].made)

    def _waited_for(
        self, wanted: Mapping[Request, float | None], found: Mapping[int, tuple[str, ...]],
        seconds: float,
    ) -> dict[Request, Reply]:  # fmt: skip
        """Compile variants, spend at most `seconds` on searches, and wait."""
        each = min(_WAIT_SECONDS, seconds / max(1, len(wanted)))
        orders = {
            (number, key): self._make(
                number, key, most, waits=True, found=found.get(number, ()), budget=each
            )
            for (number, key), most in wanted.items()
        }
        return {request: order.result() for request, order in orders.items()}

    def _schedules_to_share(self, replies: Mapping[Request, Reply]) -> dict[int, tuple[str, ...]]:
        """Schedules to try at other sizes, from results of this or earlier searches."""
        tried, generic = dict[int, list[Row]](), dict[int, str]()
        for (number, key), reply in replies.items():
            known, generic[number] = (
                self.verdict(number, key),
                self.call_sites[number].recipe.schedule,
            )
            before = [] if known is None else [(known.schedule, known.ratio)]
            tried[number] = [*(reply.tried or before)]
        return share_schedules(tried, generic, Adaptive.most)

    def search(self, number: int, sizes: Sizes) -> Future[Reply]:
        """Search for a variant regardless of the ledger; it is published if fast enough."""
        return self._make(number, sizes, self.most, force=True)

    @property
    def most(self) -> float:
        """Maximum ratio of a variant's time to the generic kernel's."""
        return self.strategy.most or Adaptive.most

    def search_general(
        self, number: int, samples: tuple[tuple[Sizes, float], ...], guards: tuple[Sizes, ...],
        seconds: float,
    ) -> Future[Reply]:  # fmt: skip
        """Search for a general schedule of a call site; publishes no variant."""
        order = Order(
            self.call_sites[number].recipe, (), self._target.name, self.most, "", seconds, samples,
            guards, self._executable.threads,
        )  # fmt: skip
        return self._current_team().submit(order)

    def keep_general(self, number: int, verdict: Verdict) -> None:
        """Store a general schedule, with its ratio relative to the template's own schedule."""
        before, threads = self.general(number), self._executable.threads
        if before is not None:
            verdict = replace(verdict, ratio=verdict.ratio * before.ratio)
        self._ledger.keep_tuned(self.call_sites[number].recipe.subject, threads, verdict)

    def general(self, number: int) -> Verdict | None:
        """The verdict on the general schedule of a call site; None if it is the template's own."""
        recipe = self.call_sites[number].recipe
        found = self._ledger.tuned_schedules(self._executable.threads).get(recipe.subject)
        return found if found is not None and found.schedule == recipe.schedule else None

    def verdict(self, number: int, sizes: Key) -> Verdict | None:
        """The verdict on a variant for sizes of a call site."""
        return self._ledger.find(self.call_sites[number].recipe.digest, sizes)

    @property
    def box(self) -> Box:
        """The box of the program's sizes."""
        return self._executable.signature.box

    @property
    def tuners(self) -> int:
        """Count of concurrent searches."""
        return self._current_team().count

    def retire(self, what: object) -> None:
        """Release an object once no running call can use it."""
        self._executable.retire(what)

    def make(self, number: int, sizes: Sizes) -> Future[Reply]:
        """Compile a variant if fast enough, by the ledger or a search that the caller waits for."""
        return self._make(number, sizes, self.most, waits=True)

    def hire(self, team: Team) -> None:
        """Use a team for searches."""
        self._team = team

    def _current_team(self) -> Team:
        return self._team or workers(False, available_cores())

    def key(self, site: ProgramSite, dims: Mapping[str, int]) -> Sizes | None:
        """The launch sizes for sizes of dims; None if these do not determine them."""
        wanted = (*site.sizes, site.parallel)
        if any(size.symbols - dims.keys() for size in wanted):
            return None
        return tuple(size.evaluate(dims) for size in wanted)

    def _span(self, site: ProgramSite, bucket: Mapping[str, Between]) -> Key | None:
        """The span of launch sizes in a bucket; None if the bucket does not affect the launch."""
        wanted = (*site.sizes, site.parallel)
        names, general = frozenset[str]().union(*(size.symbols for size in wanted)), self.box
        if names.isdisjoint(bucket) or names - set(general.names):
            return None
        dims = [narrow_dim(dim, *bucket.get(dim.name, (dim.lo, dim.hi))) for dim in general.dims]
        if None in dims:
            return None
        box = Box.of(*filter(None, dims), constraints=general.constraints)
        ends = [bounds(size, box) for size in wanted]
        low = tuple(-LARGEST if end.lo is None else max(-LARGEST, end.lo) for end in ends)
        high = tuple(LARGEST if end.hi is None else min(LARGEST, end.hi) for end in ends)
        return key_of(low, high)

    def poll(self) -> Iterator[Future[Reply]]:
        """Request variants for frequent sizes; yields the requests."""
        found = False
        for number, call_site in enumerate(self.call_sites):
            with self._own_lock():
                wanted = list(call_site.frequent_sizes()) if call_site.counts else []
            for sizes, leaf in wanted:
                if leaf.background or not settings.forbid_compile:
                    found = True
                    yield self._make(number, sizes, leaf.most)
        self._calls = _FIRST_POLL if found else min(2 * self._calls, _LAST_POLL)
        if not found and self._calls > _WINDOW:
            self._rest(True)

    def _make(
        self, number: int, sizes: Key, most: float | None, force: bool = False, waits: bool = False,
        found: tuple[str, ...] = (), budget: float = _WAIT_SECONDS,
    ) -> Future[Reply]:  # fmt: skip
        """Request a variant; concurrent requests for it are merged. Publishes it when ready.

        Verdicts in the ledger are final, unless `anew`. If a caller `waits`, workers run at normal
        priority, and a search takes `budget` seconds. `found` are schedules from other sizes
        (`search`).
        """
        key, call_site = (number, sizes), self.call_sites[number]
        with self._own_lock():
            begun = self._waiting.get(key)
            if begun is not None:
                return begun
            done = self._waiting[key] = Future()
        try:
            bits = self._bits(call_site, sizes)
            known = self._stored_verdict(call_site, sizes, most, force, bits)
            if known is not None and most is not None and known.ratio > most:
                self._take(number, sizes, Reply(ratio=known.ratio), done)
                return done
            LOG.debug("make: %s", call_site.describe(sizes))
            threads = self._executable.threads
            order = Order(
                call_site.recipe, sizes, self._target.name, most, threads=threads, bits=bits,
                found=found,
            )  # fmt: skip
            if waits and most is not None:
                order = replace(order, budget=budget)
            if known is not None:
                order = replace(order, most=None, schedule=known.schedule)
            ordered = (self._current_team() if force else workers(not waits)).submit(order)
        except Exception as error:  # a later request would wait forever
            self._take(number, sizes, Reply(problem=str(error)), done)
            return done

        def take(request: Future[Reply]) -> None:
            self._ordered.pop(key, None)
            gone = Reply(problem="the request was cancelled")
            reply = gone if request.cancelled() else request.result()
            self._take(number, sizes, replace(reply, ratio=known.ratio) if known else reply, done)

        self._ordered[key] = ordered
        ordered.add_done_callback(take)
        if self._is_closed:  # meanwhile
            ordered.cancel()
        return done

    def _stored_verdict(
        self, call_site: CallSite, key: Key, most: float | None, force: bool, bits: str
    ) -> Verdict | None:
        """The stored verdict, if searches are needed and it may be used."""
        asks = most is not None and not force
        return self._ledger.find(call_site.recipe.digest, key, bits) if asks else None

    def _bits(self, call_site: CallSite, key: Key) -> str:
        """The permitted bits of a variant; '' for those of the generic kernel."""
        bits: str = getattr(call_site.decision.at(key), "bits", SAME)
        return "" if bits == SAME else bits

    def _take(self, number: int, key: Key, reply: Reply, done: Future[Reply]) -> None:
        """Publish a compiled variant, or record that none is worthwhile."""
        call_site = self.call_sites[number]
        try:
            if reply.tried and reply.ratio is not None:
                verdict = Verdict(reply.tried[-1][0], reply.ratio)
                self._ledger.keep(call_site.recipe.digest, key, verdict, self._bits(call_site, key))
            self._publish(call_site, key, reply)
        except Exception as error:  # on any error the generic kernel serves
            LOG.exception("a variant cannot be loaded: %s", call_site.describe(key))
            self._reject(call_site, key, reply, f"it cannot be loaded: {error}")
        finally:
            with self._lock:
                self._waiting.pop((number, key), None)
            done.set_result(reply)

    def _publish(self, call_site: CallSite, key: Key, reply: Reply) -> None:
        made = reply.made
        if made is None or self._target.load is None or call_site.choice is None:
            slow = "" if reply.ratio is None else f"{reply.ratio:.2f} of the generic time"
            self._reject(call_site, key, reply, reply.problem or slow)
            return
        self._say("compiled", call_site, key, reply)
        symbols = [made.symbol, *filter(None, [made.extent])]
        code = self._target.load(made.objects, symbols)
        address, *extent = map(code.address, symbols)
        launched = (made.parallel, made.grain, made.scratch)
        body = VariantEntry(key, address, *launched, code, extent[0] if extent else 0)
        with self._lock:
            self.compiles += 1
            before = call_site.add(body, reply)
        self._executable.retire(before)
        self._say("published", call_site, key, reply)

    def _reject(self, call_site: CallSite, key: Key, reply: Reply, reason: str) -> None:
        call_site.reject(key)
        self._say("rejected", call_site, key, reply, reason)

    # ---- events --------------------------------------------------------------------------------

    def _say(
        self, kind: str, call_site: CallSite, key: Key, reply: Reply, reason: str = ""
    ) -> None:
        """Log an event and pass it to the listener, whose errors are only logged."""
        event = call_site.event(kind, key, reply, reason)
        LOG.info("%s", event)
        try:
            self._tell(event)
        except Exception:
            LOG.exception("the listener failed on '%s'", event)

    def variants(self) -> tuple[Variant, ...]:
        """All variants."""
        return tuple(variant for call_site in self.call_sites for variant in call_site.variants())

    def stored_sites(self) -> list[tuple[StoredSite, tuple[tuple[bytes, ...], ...]]]:
        """Call sites with variants as a file stores them, and their object files."""
        tables = [
            self._executable.entries[entry] for entry, _ in self._executable.interface.entries
        ]
        slots = [(id(table), entry) for table in tables for entry in range(len(table))]
        launches = {each: number for number, each in enumerate(slots)}
        found = []
        for call_site in self.call_sites:
            objects = {r.made.symbol: r.made.objects for r in call_site.made.values() if r.made}
            kept = call_site.stored_site(launches)
            if kept.bodies:
                found.append((kept, tuple(objects[body.symbol] for body in kept.bodies)))
        return found

    def lines(self) -> Iterator[str]:
        """Lines of text on the variants of each kernel."""
        for call_site in self.call_sites:
            if call_site.choice is None:
                continue
            found = call_site.variants()
            hits = sum(variant.hits for variant in found)
            yield (
                f"{call_site.site.kernel} under {call_site.decision.strategy}: "
                f"{count_of(len(found), 'variant')}, "
                f"{hits} hits, {call_site.misses} misses"
            )
            undetermined = call_site.decision.undetermined
            yield from (
                f"    its sizes do not determine whether {condition}" for condition in undetermined
            )
            yield from (f"    {variant}" for variant in found)

    def serving(self, site: ProgramSite, sizes: Sizes) -> str:
        """The variant that serves a site at sizes (the parallel range last) now."""
        call_site = next(
            (p for p in self.call_sites if any(site is each for each in p.sites)), None
        )
        return "generic" if call_site is None else call_site.serving(sizes)
