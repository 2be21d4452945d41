"""Model methods that need a compiler: variants of kernels and strategies (docs/strategies.md).

Modules that compile variants are imported only if a model has some.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydim.base.errors import OptionError
from anydim.base.keywords import public
from anydim.base.text import suggestion
from anydim.base.user_values import (
    flag_of,
    function_of,
    number_within,
    path_of,
    short_repr,
    text_of,
)
from anydim.compiler.variants.strategies import GENERIC, Adaptive, Strategy, strategy_of
from anydim.runtime.program.callable_program import CallableProgram
from anydim.sizes import given_sizes

if TYPE_CHECKING:  # a model without variants needs none of it
    from anydim.compiler.targets.target import Target
    from anydim.compiler.variants.call_sites import Event
    from anydim.compiler.variants.deferred import Later
    from anydim.compiler.variants.expected_gain import Gain
    from anydim.compiler.variants.serving import Serving
    from anydim.compiler.variants.tuning import Tuned
    from anydim.compiler.variants.workers import Team
    from anydim.runtime.program.plan import Plan
    from anydim.runtime.program.recording import Recorded, Recording
    from anydim.runtime.program.site_recording import RecordedSite
    from anydim.runtime.program.variants import StoredSite, Variant

TUNED = Adaptive(limit=64)  # strategy of a model after tuning
PREPARED = Adaptive(limit=64, after=1 << 30)  # the same, but compiles no variant for new sizes


@public
class Fitted(CallableProgram):
    """A model whose sites may have variants."""

    _made_by: str  # name of the target
    _serving: Serving | None = None
    _has_host_sites: bool = True  # launches that can have variants
    _formed: Strategy = GENERIC  # the strategy it was compiled with
    _strategies: Mapping[str, Strategy] = {}
    _listener: Callable[[Event], None] | None = None
    _later: Later | None = None  # timer of a strategy with patience
    _given: Strategy = GENERIC

    def serve_by(
        self, strategy: Strategy | str, strategies: Mapping[str, Strategy | str] | None = None
    ) -> None:
        """Change the strategy.

        Args:
            strategy: As in `anydim.compile`.
            strategies: Strategies by patterns of node or kernel names, the first match counts:
                `{"*/attention/*": "exact()", "window_reduction": "adaptive()"}`.

        Raises:
            OptionError: A strategy is invalid, a dim is unknown, or a pattern matches nothing.
        """
        known, given = self._resolve_strategy(strategy), _mapping(strategies)
        named = {
            text_of("pattern", name): self._resolve_strategy(each) for name, each in given.items()
        }
        plain = {known, *named.values()} <= {GENERIC, self._formed}
        if not plain and not self._has_host_sites:
            problem = f"all of {self.name} is on devices, where launches have no variants"
            raise OptionError(problem, "omit the strategy")
        if named:
            self._parts(known, named)
        with _starting(os.getpid()):
            if self._serving is not None:
                self._serving.close()
            self._serving, self._later = None, None
            self._given, self._strategies = self._formed if plain else known, named
            if known.patience and not named:
                later: type[Later] = import_module("anydim.compiler.variants.deferred").Later
                self._later = later(self.executable, known.patience, self._start)
            elif not plain:
                self._begin()
        if self._serving is not None:
            self._serving.prepare_buckets()

    def _target(self) -> Target:
        target: Target = import_module("anydim.compiler.targets.targets").target(self._made_by)
        return target

    def _parts(self, known: Strategy, named: Mapping[str, Strategy]) -> list[Strategy]:
        found: list[Strategy] = import_module(
            "anydim.compiler.variants.launch_strategy"
        ).strategies_of(self.program.host_sites, known, named, self.program.sites)
        return found

    def _make_serving(
        self, known: Strategy, parts: list[Strategy], notify: Callable[[Event], None]
    ) -> Serving:
        """The state of a strategy; `parts` are the strategies of all host sites."""
        make: type[Serving] = import_module("anydim.compiler.variants.serving").Serving
        return make(self.program, self.executable, self._target(), known, parts, notify)

    def _begin(self) -> None:
        parts = self._parts(self._given, self._strategies)
        self._serving = self._make_serving(self._given, parts, self._notify)

    def _start(self, later: Later | None = None) -> None:
        """Start a deferred strategy now, if `later` is still the current one."""
        with _starting(os.getpid()):
            if self._later is not None and later in (None, self._later):
                self.executable.served, self._later = None, None
                self._begin()

    def _resolve_strategy(self, given: Any) -> Strategy:
        """Validate a strategy and its dims; fills in buckets from profiles."""
        known = strategy_of(given)
        for leaf in known.leaves():
            if leaf.formed and known != self._formed:
                raise OptionError(
                    f"{self.name}: {leaf} applies to a whole model, and is set in compile",
                    f"ad.compile(..., strategy={str(leaf)!r})",
                )
        for name in sorted(known.names.difference(self.dims.names)):
            hint = suggestion(name, self.dims.names) or f"there is {self.dims}"
            raise OptionError(f"{self.name}: {known} names dim '{name}'", hint)
        if not any(leaf.profile for leaf in known.leaves()):
            return known
        filled: Strategy = import_module("anydim.compiler.variants.profiled").with_cuts(
            known, self._read_recorded
        )
        return filled

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

    def kept_bodies(self) -> list[tuple[StoredSite, tuple[tuple[bytes, ...], ...]]]:
        """The variants as a file stores them, with their object files."""
        return [] if self._serving is None else self._serving.stored_sites()

    def on_variant(self, tell: Callable[[Event], None] | None) -> None:
        """Report variants that are compiled, published or rejected.

        Args:
            tell: Called with each event on the thread that handles it; it must return soon. None:
                stop reporting.
        """
        function_of("tell", tell)
        self._listener = tell

    def _notify(self, event: Event) -> None:
        if self._listener is not None:
            self._listener(event)

    def _bodies_text(self) -> list[str]:
        lines = []
        if self._later is not None:
            lines += [f"strategy {self.strategy}: it starts once the model has served for a while"]
        if self._serving is not None:
            lines += [f"strategy {self.strategy}"]
            lines += [f"    {name}: {each}" for name, each in self._strategies.items()]
            lines += [f"    {line}" for line in self._serving.lines()]
        return lines

    def plan(self, *, lengths: Any = None, **sizes: Any) -> Plan:
        """Kernels, variants, work and bytes of a call at given sizes; runs nothing.

        Args:
            lengths: The sizes of the rows of a ragged batch; by dim, if several differ.
            **sizes: Sizes of the dims. A structure input, by its name, determines several:
                `plan(t=forest)`.

        Returns:
            The plan; `bytes`, `json()` and `document()` have its parts.

        Raises:
            DimError: A dim or size is invalid.
        """
        found = super().plan(lengths=lengths, **sizes)
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
        watch = import_module("anydim.compiler.variants.watching").Watch(
            self.name, made, self.input_dims
        )
        make: type[Recording] = import_module("anydim.runtime.program.recording").Recording
        return make(path_of("path", path), self.executable, watch).start()

    def prepare_recorded(
        self, path: str | os.PathLike[str], seconds: float = 60.0, mebibytes: float = 64.0,
        progress: Callable[[int, int, float], None] | None = None,
    ) -> int:  # fmt: skip
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
        rows, end = self._read_recorded(path), time.monotonic() + _amount(seconds)
        most, tell = _amount(mebibytes, "mebibytes") * (1 << 20), progress or _quiet
        function_of("progress", progress)
        self._make_room(PREPARED)
        made: Any = import_module("anydim.compiler.variants.tuning")
        wanted = made.wanted_launches(self._serving, rows, self._recorded_sites(path))
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
        rows, sites = self._read_recorded(path), self._recorded_sites(path)
        wanted = import_module("anydim.compiler.variants.tuning").wanted_launches
        serving = self._serving or self._idle()
        found: list[Gain] = import_module("anydim.compiler.variants.expected_gain").gains(
            serving, wanted(serving, rows, sites)
        )
        return found

    def _idle(self) -> Serving:
        """A `Serving` that compiles no variants."""
        none: list[Strategy] = [GENERIC] * len(self.program.host_sites)
        return self._make_serving(GENERIC, none, lambda event: None)

    def tune(
        self, path: str | os.PathLike[str], seconds: float = 300.0,
        progress: Callable[[int, int, float], None] | None = None, team: Team | None = None,
    ) -> Tuned:  # fmt: skip
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
        end = time.monotonic() + _amount(seconds)
        self._read_recorded(path)  # fail early
        function_of("progress", progress)
        self._make_room(TUNED)
        tell, made = progress or _quiet, import_module("anydim.compiler.variants.tuning")
        found: Tuned = self._run_search(made.tune_whole, path, end, tell, team)
        again = self._made() if found.whole and self._made is not None else self
        if not isinstance(again, Fitted):
            return found
        if again.strategy != self.strategy:
            again.serve_by(self.strategy)
        return found.with_more(again._run_search(made.tune, path, end, tell, team))

    def _make_room(self, other: Adaptive) -> None:
        """Use a strategy that accepts found variants, with at least the limit of `other`."""
        now = self.strategy
        if now.background and now.limit < other.limit:
            self.serve_by(now.at_once(other.limit))
        elif now in (GENERIC, self._formed) or (other == TUNED and not now.background):
            self.serve_by(other)
        self._start()

    def _run_search(
        self, search: Callable[..., Tuned], path: str | os.PathLike[str], end: float,
        tell: Callable[[int, int, float], None], team: Team | None,
    ) -> Tuned:  # fmt: skip
        """Run a search at recorded sizes until a deadline."""
        self._start()
        serving = self._serving
        assert serving is not None
        if team is not None:
            serving.hire(team)
        rows, sites = self._read_recorded(path), self._recorded_sites(path)
        wanted = import_module("anydim.compiler.variants.tuning").wanted_launches(
            serving, rows, sites
        )
        return search(serving, wanted, rows, max(0.0, end - time.monotonic()), tell)

    def _read_recorded(self, path: str | os.PathLike[str]) -> list[Recorded]:
        """The recorded rows with this model's dims, most expensive first."""
        found = import_module("anydim.runtime.program.recording").read_recorded(
            [path_of("path", path)]
        )
        rows = [row for row in found if set(row.dims) == set(self.input_dims)]
        if not rows:
            names = ", ".join(self.input_dims) or "none"
            hint = f"model.record(path) writes them; its dims are {names}"
            raise OptionError(f"{path} has no sizes of {self.name}", hint)
        return rows

    def _recorded_sites(self, path: str | os.PathLike[str]) -> list[RecordedSite]:
        """The recorded lines of this model's launches."""
        read: Any = import_module("anydim.runtime.program.site_recording").read_sites
        return [row for row in read([path_of("path", path)]) if row.model == self.name]

    @property
    def input_dims(self) -> tuple[str, ...]:
        """The dims that input shapes determine, in the order of a recording."""
        solve: Any = import_module("anydim.runtime.program.binding").solve
        return tuple(source.dim for source in solve(self.executable.signature, frozenset()))


def _amount(given: Any, name: str = "seconds") -> float:
    return number_within(name, given, 0, sys.float_info.max, f"give {name}, 0 or more")


def _mapping(given: Any) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        hint = 'give a mapping, such as {"*attention*": "exact()"}'
        raise OptionError(f"strategies is {short_repr(given)}", hint)
    return given


@cache
def _starting(process: int) -> threading.Lock:
    """The lock for starting a strategy; a forked child has its own."""
    return threading.Lock()


def _quiet(done: int, launches: int, share: float) -> None:
    """Ignore progress."""
