"""A request to compile: a source and options; application of options that need a model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from anydim.api.compile_options import Options
from anydim.api.model import Model
from anydim.base import settings
from anydim.base.records import dataclass
from anydim.base.user_values import absolute
from anydim.compiler.variants.strategies import GENERIC, USUAL, Strategy, strategy_of
from anydim.runtime.cores import available_cores
from anydim.runtime.frames import Callers


@dataclass(frozen=True)
class Request:
    """A source and the options of its compilation.

    `known` is the strategy that `options.strategy` resolves to on this machine.
    """

    source: Any
    options: Options
    known: Strategy

    def changed(self, source: Any, **fields: Any) -> Request:
        """A request for another source, with other values of some options."""
        return replace(self, source=source, options=self.options.changed(**fields))

    @property
    def path(self) -> str | None:
        """The path of a source file; None for a source in memory."""
        named = isinstance(self.source, (str, os.PathLike))
        return absolute(self.source) if named else None

    def advance(self, stage: str, done: int, total: int) -> None:
        """Report progress to the callback, if any."""
        if self.options.progress is not None:
            self.options.progress(stage, done, total)


@dataclass(frozen=True)
class Facts:
    """Facts of a compilation other than the program.

    `expected` are bounds that sizes may exceed (`on_overflow="grow"`), `host_sites` is whether
    launches on the host can have variants, `findings` are lines for the log.
    """

    expected: Mapping[str, int] = field(default_factory=dict)
    host_sites: bool = False
    findings: tuple[str, ...] = ()


def strategy_here(given: Any) -> Strategy:
    """The given strategy, or the configured one where it applies.

    A strategy that compiles in the background is not a default on a single core, which it would
    share with the calls. Raises OptionError.
    """
    if given is not None:
        return strategy_of(given)
    text = settings.strategy  # the default needs no parser
    known = USUAL if text == settings.USUAL_STRATEGY else strategy_of(text)
    alone = settings.forbid_compile or available_cores() < 2
    return GENERIC if alone and known.background else known


def applied(request: Request, model: Model, facts: Facts) -> None:
    """Apply callers, limits, strategy and prepared sizes of a request to a model."""
    model.executable.admit(Callers(request.options.arenas, request.options.wait))
    model.executable.watched.expect(facts.expected)
    if request.options.memory_limit is not None:
        model.limit_memory(request.options.memory_limit)
    served = request.known
    model._formed = served if served.formed else GENERIC
    model._has_host_sites = facts.host_sites
    if request.options.strategy is None and not (served.formed or facts.host_sites):
        served = GENERIC  # launches of devices have one variant each
    serve(request, model, served)


def serve(request: Request, model: Model, strategy: Strategy) -> None:
    """Set the strategy, with variants for recorded sizes if a profile is given."""
    given = request.options
    model.serve_by(strategy, given.strategies)
    if given.profile is not None:
        model.prepare_recorded(
            given.profile, given.profile_seconds, given.profile_mebibytes,
            lambda done, launches, share: request.advance(
                "variants for recorded sizes", done, launches
            ),
        )  # fmt: skip
