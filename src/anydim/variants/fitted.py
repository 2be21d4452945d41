"""What a model offers that was compiled here: bodies beside the generic ones (docs/strategies.md).

What makes them is imported where a model is to have some.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydim.base.errors import OptionError
from anydim.base.given import function_of, path_of, shown
from anydim.base.text import suggestion
from anydim.program.held import Held
from anydim.sizes import given_sizes
from anydim.targets.targets import target
from anydim.variants.strategies import GENERIC, Adaptive, Buckets, Strategy, strategy_of

if TYPE_CHECKING:  # a model with one body a site needs none of it
    from anydim.program.recording import Recorded
    from anydim.variants.serving import Serving, Variant
    from anydim.variants.tuning import Tuned
    from anydim.variants.workers import Team

TUNED = Adaptive(limit=64)  # what a model is served by whose bodies were searched for


class Fitted(Held):
    """A model whose sites may have other bodies."""

    _made_by: str  # the name of the target
    _serving: Serving | None = None
    _formed: Strategy = GENERIC  # what said how it was compiled

    def serve_by(self, strategy: Strategy | str) -> None:
        """From now on bodies are made and chosen as a strategy says.

        Raises OptionError for what is none, and for buckets of dims that there are not.
        """
        known = strategy_of(strategy)
        if known.formed and known != self._formed:
            raise OptionError(
                f"{self.name}: {known} is chosen when a model is compiled",
                f"ad.compile(..., strategy={str(known)!r})",
            )
        unknown = [
            name for name in (known.sizes if isinstance(known, Buckets) else ())
            if name not in self.dims.names
        ]  # fmt: skip
        if unknown:
            hint = suggestion(unknown[0], self.dims.names) or f"there is {self.dims}"
            raise OptionError(f"{self.name}: buckets name dim '{unknown[0]}'", hint)
        if self._serving is not None:
            self._serving.close()
            self._serving = None
        if known in (GENERIC, self._formed):
            return
        if self.program.devices:
            raise OptionError(
                f"{self.name} has parts on devices: there is one body for each launch"
            )
        made = import_module("anydim.variants.serving").Serving
        self._serving = made(self.program, self.executable, target(self._made_by), known)
        for sizes in known.combinations() if isinstance(known, Buckets) else ():
            self.prepare(**sizes)

    @property
    def strategy(self) -> Strategy:
        """What says which bodies there are, and when they are made."""
        return self._formed if self._serving is None else self._serving.strategy

    def variants(self) -> tuple[Variant, ...]:
        """The bodies beside the generic ones, with their hits and what they take."""
        return () if self._serving is None else self._serving.variants()

    def explain(self) -> str:
        """Kernels, schedules and memory as text; bodies beside the generic ones last."""
        lines = [super().explain(), f"strategy {self.strategy}: bodies for"]
        bodies = [f"    {variant}" for variant in self.variants()]
        return "\n".join([*lines, *bodies]) if bodies else lines[0]

    def prepare(self, **sizes: int) -> int:
        """Make now what the strategy would make for a size; how many bodies are new.

        Raises DimError for what is no size of a dim.
        """
        given = given_sizes(self.name, sizes)
        return 0 if self._serving is None else self._serving.prepare(given)

    def prepare_recorded(self, path: str | os.PathLike[str], seconds: float = 60.0) -> int:
        """Bodies for the sizes that `record` wrote down, the costliest first; how many are new.

        Under "adaptive" those that pay, by what was measured before or is now, within `seconds`.
        Raises OptionError for a file that cannot be read, or has none of this model's sizes.
        """
        rows, count = self._recorded(path), 0
        end = time.monotonic() + _seconds(seconds)
        for row in rows if self._serving is not None else ():
            if time.monotonic() > end:
                break
            count += self.prepare(**row.dims)
        return count

    def tune(
        self,
        path: str | os.PathLike[str],
        seconds: float = 300.0,
        progress: Callable[[int, int, float], None] | None = None,
        team: Team | None = None,
    ) -> Tuned:
        """Search for faster code at the sizes that `record` wrote down, within `seconds`.

        First a schedule for all sizes of each kernel, which every model takes that is compiled from
        now on, on this kind of machine for so many threads; then bodies for single sizes, which
        serve from now on where this is such a model. All of it is kept on disk.
        `progress(done, searches, share)` is told the share of time saved. `team` are others that
        search, such as `ad.ray_team()`. Raises OptionError for a file that cannot be read, or has
        none of this model's sizes.
        """
        rows, end = self._recorded(path), time.monotonic() + _seconds(seconds)
        function_of("progress", progress)
        if not isinstance(self.strategy, Adaptive):
            self.serve_by(TUNED)
        tell, made = progress or _quiet, import_module("anydim.variants.tuning")
        found: Tuned = self._searched(made.tune_whole, rows, end, tell, team)
        again = self._made() if found.whole and self._made is not None else self
        if not isinstance(again, Fitted):
            return found
        if again.strategy != self.strategy:
            again.serve_by(self.strategy)
        return found.with_more(again._searched(made.tune, rows, end, tell, team))

    def _searched(
        self, search: Callable[..., Tuned], rows: Sequence[Recorded], end: float,
        tell: Callable[[int, int, float], None], team: Team | None,
    ) -> Tuned:  # fmt: skip
        """What a search of launches at recorded sizes finds until a time."""
        serving = self._serving
        assert serving is not None
        if team is not None:
            serving.hire(team)
        wanted = import_module("anydim.variants.tuning").wanted(serving, rows, {})
        return search(serving, wanted, rows, max(0.0, end - time.monotonic()), tell)

    def _recorded(self, path: str | os.PathLike[str]) -> list[Recorded]:
        """The rows of this model's dims, the costliest first."""
        found = import_module("anydim.program.recording").read_recorded([path_of("path", path)])
        rows = [row for row in found if set(row.dims) == set(self.told)]
        if not rows:
            hint = f"model.record(path) writes them; its dims are {', '.join(self.told) or 'none'}"
            raise OptionError(f"{path} has no sizes of {self.name}", hint)
        return rows

    @property
    def told(self) -> tuple[str, ...]:
        """The dims that inputs tell, in the order of a recording."""
        solve: Any = import_module("anydim.program.binding").solve
        return tuple(source.dim for source in solve(self.executable.signature, frozenset()))


def _seconds(given: Any) -> float:
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not number or not 0 <= given < math.inf:
        raise OptionError(f"seconds is {shown(given)}", "give seconds, 0 or more")
    return float(given)


def _quiet(done: int, launches: int, share: float) -> None:
    """For those who want no progress."""
