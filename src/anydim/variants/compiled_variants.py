"""What a model offers that was compiled here: bodies beside the generic ones (docs/strategies.md).

What makes them is imported where a model is to have some.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydim.base.errors import OptionError
from anydim.base.keywords import public
from anydim.base.text import suggestion
from anydim.base.user_values import flag_of, function_of, path_of, shown, text_of
from anydim.program.callable_program import Held
from anydim.sizes import given_sizes
from anydim.variants import strategies
from anydim.variants.strategies import GENERIC, Adaptive, Strategy, strategy_of

if TYPE_CHECKING:  # a model with one body a site needs none of it
    from anydim.program.plan import Plan
    from anydim.program.recording import Recorded, Recording
    from anydim.program.site_recording import RecordedSite
    from anydim.program.variants import KeptPlace, Variant
    from anydim.variants.call_sites import Event
    from anydim.variants.expected_gain import Gain
    from anydim.variants.serving import Serving
    from anydim.variants.tuning import Tuned
    from anydim.variants.workers import Team

TUNED = Adaptive(limit=64)  # what a model is served by whose bodies were searched for
PREPARED = Adaptive(limit=64, after=1 << 30)  # the same, and no body is made for what comes


@public
class Fitted(Held):
    """A model whose sites may have other bodies."""

    _made_by: str  # the name of the target
    _serving: Serving | None = None
    _has_host_sites: bool = True  # launches that can have other bodies
    _formed: Strategy = GENERIC  # what said how it was compiled
    _strategies: Mapping[str, Strategy] = {}
    _listener: Callable[[Event], None] | None = None
    _later: object = None  # what a strategy that waits is asked to begin by
    _given: Strategy = GENERIC

    def serve_by(
        self, strategy: Strategy | str, strategies: Mapping[str, Strategy | str] | None = None
    ) -> None:
        """Change the strategy.

        Args:
            strategy: As in `anydim.compile`.
            strategies: Strategies by patterns of node or kernel names, the first match counts:
                `{"*/attention/*": "exact()", "sliding": "adaptive()"}`.

        Raises:
            OptionError: A strategy is invalid, a dim is unknown, or a pattern matches nothing.
        """
        known, given = self._resolved(strategy), _mapping(strategies)
        named = {text_of("pattern", name): self._resolved(each) for name, each in given.items()}
        plain = {known, *named.values()} <= {GENERIC, self._formed}
        if not plain and not self._has_host_sites:
            problem = f"all of {self.name} is on devices, where each launch has one body"
            raise OptionError(problem, "leave the strategy away")
        if named:
            self._parts(known, named)
        with _starting(os.getpid()):
            if self._serving is not None:
                self._serving.close()
            self._serving, self._later = None, None
            self._given, self._strategies = self._formed if plain else known, named
            if isinstance(known, Adaptive) and known.patience and not named:
                later: Any = import_module("anydim.variants.deferred")
                self._later = later.Later(self.executable, known.patience, self._start)
            elif not plain:
                self._begin()
        if self._serving is not None:
            self._serving.prepare_buckets()

    def _target(self) -> Any:
        return import_module("anydim.targets.targets").target(self._made_by)

    def _parts(self, known: Strategy, named: Mapping[str, Strategy]) -> list[Strategy]:
        deciding: Any = import_module("anydim.variants.launch_strategy")
        found: list[Strategy] = deciding.strategies_of(
            self.program.host_sites, known, named, self.program.sites
        )
        return found

    def _begin(self) -> None:
        made: Any = import_module("anydim.variants.serving")
        known, code = self._given, self._target()
        parts = self._parts(known, self._strategies)
        self._serving = made.Serving(self.program, self.executable, code, known, parts, self._told)

    def _start(self, later: object = None) -> None:
        """A strategy that waits begins now, if it is still the one that asks."""
        with _starting(os.getpid()):
            if self._later is not None and later in (None, self._later):
                self.executable.served, self._later = None, None
                self._begin()

    def _resolved(self, given: Any) -> Strategy:
        """A strategy whose dims there are, with buckets for what was recorded."""
        known = strategy_of(given)
        for leaf in known.leaves():
            if leaf.formed and known != self._formed:
                raise OptionError(
                    f"{self.name}: {leaf} is chosen when a model is compiled, for all of it",
                    f"ad.compile(..., strategy={str(leaf)!r})",
                )
        for name in sorted(known.names.difference(self.dims.names)):
            hint = suggestion(name, self.dims.names) or f"there is {self.dims}"
            raise OptionError(f"{self.name}: {known} names dim '{name}'", hint)
        if not any(
            isinstance(leaf, strategies.Buckets) and leaf.profile for leaf in known.leaves()
        ):
            return known
        made: Strategy = import_module("anydim.variants.profiled").with_cuts(known, self._recorded)
        return made

    @property
    def strategy(self) -> Strategy:
        """The strategy that determines the variants."""
        return self._given

    @property
    def strategies(self) -> Mapping[str, Strategy]:
        """The strategies of parts, by patterns of names."""
        return dict(self._strategies)

    def variants(self) -> tuple[Variant, ...]:
        """The variants besides the generic ones: sizes, hits, and measured share of the generic
        time.
        """
        return () if self._serving is None else self._serving.variants()

    def kept_bodies(self) -> list[tuple[KeptPlace, tuple[tuple[bytes, ...], ...]]]:
        """The bodies that there are, as a file has them, and the objects of each."""
        return [] if self._serving is None else self._serving.kept()

    def on_variant(self, tell: Callable[[Event], None] | None) -> None:
        """Report variants that are compiled, published or rejected.

        Args:
            tell: Called with each event on the thread that handles it; it must return soon. None:
                stop reporting.
        """
        function_of("tell", tell)
        self._listener = tell

    def _told(self, event: Event) -> None:
        if self._listener is not None:
            self._listener(event)

    def _bodies_text(self) -> list[str]:
        lines = []
        if self._later is not None:
            lines += [f"strategy {self.strategy}: it waits until the model has served a while"]
        if self._serving is not None:
            lines += [f"strategy {self.strategy}"]
            lines += [f"    {name}: {each}" for name, each in self._strategies.items()]
            lines += [f"    {line}" for line in self._serving.lines()]
        return lines

    def plan(self, **sizes: int) -> Plan:
        """Kernels, variants, work and bytes of a call at given sizes; runs nothing.

        Args:
            **sizes: Sizes of the dims.

        Returns:
            The plan; `bytes`, `json()` and `document()` have its parts.

        Raises:
            DimError: A dim or size is invalid.
        """
        found = super().plan(**sizes)
        return found if self._serving is None else found.with_bodies(self._serving.serving)

    def prepare(self, **sizes: int) -> int:
        """Compile now the variants that the strategy would make for a size.

        Args:
            **sizes: Sizes of the dims.

        Returns:
            Number of new variants.

        Raises:
            DimError: A dim or size is invalid.
        """
        given = given_sizes(self.name, sizes)
        self._check_names(given)
        self._start()
        return 0 if self._serving is None else self._serving.prepare(given)

    def record(self, path: str | os.PathLike[str], sites: bool = False) -> Recording:
        """Record the sizes and times of calls in a file, until `stop` of the result.

        The result is also a context manager. Lines are appended every ten seconds and at the end;
        several processes may write to one file.

            with model.record("sizes.jsonl"):
                serve(model)

        Args:
            path: The file.
            sites: Also record launches: sizes and counts of each kernel, and the variants used.
                Data-dependent sizes then cost a lookup per launch.

        Raises:
            OptionError: The file cannot be written.
        """
        if not flag_of("sites", sites):
            return super().record(path)
        self._start()
        made = self._serving or self._idle()
        watch = import_module("anydim.variants.watching").Watch(self.name, made, self.told)
        recording: Any = import_module("anydim.program.recording").Recording
        begun: Recording = recording(path_of("path", path), self.executable, watch).start()
        return begun

    def prepare_recorded(
        self,
        path: str | os.PathLike[str],
        seconds: float = 60.0,
        mebibytes: float = 64.0,
        progress: Callable[[int, int, float], None] | None = None,
    ) -> int:
        """Compile variants that pay for recorded sizes, the costliest launches first.

        Under `generic` no other variants follow. Other strategies continue; `adaptive` then keeps
        at least 64 variants per kernel.

        Args:
            path: A file of `record`.
            seconds: Time limit.
            mebibytes: Limit of the code size, in MiB.
            progress: Called with `(done, launches, share of time saved)`.

        Returns:
            Number of new variants.

        Raises:
            OptionError: The file cannot be read, or has no sizes of this model.
        """
        rows, end = self._recorded(path), time.monotonic() + _seconds(seconds)
        most, tell = _seconds(mebibytes, "mebibytes") * (1 << 20), progress or _quiet
        function_of("progress", progress)
        self._make_room(PREPARED)
        made: Any = import_module("anydim.variants.tuning")
        wanted = made.wanted(self._serving, rows, self._recorded_sites(path))
        count: int = made.prepare(self._serving, wanted, end - time.monotonic(), most, tell)
        return count

    def gains(self, path: str | os.PathLike[str]) -> list[Gain]:
        """Gain of a run at recorded sizes from what tuning and trials have found.

        Args:
            path: A file of `record`.

        Returns:
            The gains, by launch.

        Raises:
            OptionError: The file cannot be read, or has no sizes of this model.
        """
        rows, sites = self._recorded(path), self._recorded_sites(path)
        made: Any = import_module("anydim.variants.expected_gain")
        wanted = import_module("anydim.variants.tuning").wanted
        serving = self._serving or self._idle()
        found: list[Gain] = made.gains(serving, wanted(serving, rows, sites))
        return found

    def _idle(self) -> Serving:
        """One that makes nothing."""
        made: Any = import_module("anydim.variants.serving")
        none, code = [GENERIC] * len(self.program.host_sites), self._target()
        serving: Serving = made.Serving(
            self.program, self.executable, code, GENERIC, none, lambda event: None
        )
        return serving

    def tune(
        self,
        path: str | os.PathLike[str],
        seconds: float = 300.0,
        progress: Callable[[int, int, float], None] | None = None,
        team: Team | None = None,
    ) -> Tuned:
        """Search for faster code at recorded sizes.

        First, for each kernel, a schedule for all sizes; every later compilation on this kind of
        machine with the same thread count uses it. Then variants for single sizes, which serve
        from now on. Results are stored on disk.

        Args:
            path: A file of `record`.
            seconds: Time limit.
            progress: Called with `(done, searches, share of time saved)`.
            team: Other machines for the search: a `RayTeam` (`variants/ray_search.py`).

        Returns:
            What was found.

        Raises:
            OptionError: The file cannot be read, or has no sizes of this model.
        """
        end = time.monotonic() + _seconds(seconds)
        self._recorded(path)  # before anything is made
        function_of("progress", progress)
        self._make_room(TUNED)
        tell, made = progress or _quiet, import_module("anydim.variants.tuning")
        found: Tuned = self._searched(made.tune_whole, path, end, tell, team)
        again = self._made() if found.whole and self._made is not None else self
        if not isinstance(again, Fitted):
            return found
        if again.strategy != self.strategy:
            again.serve_by(self.strategy)
        return found.with_more(again._searched(made.tune, path, end, tell, team))

    def _make_room(self, other: Adaptive) -> None:
        """Serve by a strategy that takes what is found: as many bodies as `other` does at least."""
        now = self.strategy
        if isinstance(now, Adaptive) and now.limit < other.limit:
            self.serve_by(replace(now, limit=other.limit, patience=0.0))
        elif now in (GENERIC, self._formed) or (other == TUNED and not isinstance(now, Adaptive)):
            self.serve_by(other)
        self._start()

    def _searched(
        self, search: Callable[..., Tuned], path: str | os.PathLike[str], end: float,
        tell: Callable[[int, int, float], None], team: Team | None,
    ) -> Tuned:  # fmt: skip
        """What a search of launches at recorded sizes finds until a time."""
        self._start()
        serving = self._serving
        assert serving is not None
        if team is not None:
            serving.hire(team)
        rows, sites = self._recorded(path), self._recorded_sites(path)
        wanted = import_module("anydim.variants.tuning").wanted(serving, rows, sites)
        return search(serving, wanted, rows, max(0.0, end - time.monotonic()), tell)

    def _recorded(self, path: str | os.PathLike[str]) -> list[Recorded]:
        """The rows of this model's dims, the costliest first."""
        found = import_module("anydim.program.recording").read_recorded([path_of("path", path)])
        rows = [row for row in found if set(row.dims) == set(self.told)]
        if not rows:
            hint = f"model.record(path) writes them; its dims are {', '.join(self.told) or 'none'}"
            raise OptionError(f"{path} has no sizes of {self.name}", hint)
        return rows

    def _recorded_sites(self, path: str | os.PathLike[str]) -> list[RecordedSite]:
        """The lines of launches."""
        read: Any = import_module("anydim.program.site_recording").read_sites
        return [row for row in read([path_of("path", path)]) if row.model == self.name]

    @property
    def told(self) -> tuple[str, ...]:
        """The dims that inputs tell, in the order of a recording."""
        solve: Any = import_module("anydim.program.binding").solve
        return tuple(source.dim for source in solve(self.executable.signature, frozenset()))


def _seconds(given: Any, name: str = "seconds") -> float:
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not number or not 0 <= given < math.inf:
        raise OptionError(f"{name} is {shown(given)}", f"give {name}, 0 or more")
    return float(given)


def _mapping(given: Any) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        hint = 'give a mapping, such as {"*attention*": "exact()"}'
        raise OptionError(f"strategies is {shown(given)}", hint)
    return given


@cache
def _starting(process: int) -> threading.Lock:
    """What is held while a strategy begins; a child of a fork has its own."""
    return threading.Lock()


def _quiet(done: int, launches: int, share: float) -> None:
    """For those who want no progress."""
