"""What `anydim.compile` accepts, as one request: a source and its options; applied to a model.

A request passes from `entry.py` to `compile_source.py`, which calls `compiler/pipeline.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from anydim.base import settings
from anydim.base.records import dataclass
from anydim.base.user_values import absolute, path_of
from anydim.compiler.variants.strategies import GENERIC, USUAL, Strategy, strategy_of
from anydim.runtime.cores import available_cores
from anydim.runtime.frames import Callers

if TYPE_CHECKING:
    from anydim.api.model import CompileProgress, Model
    from anydim.compiler.passes.options import KernelOptions
    from anydim.runtime.devices.device import Device
    from anydim.runtime.devices.engines.engine import Engine
    from anydim.runtime.program.limits import MemoryLimit
    from anydim.sizes import Dim

    Dims = Mapping[str, Dim | int | tuple[int, int | None] | Mapping[int, Any]]


@dataclass(frozen=True)
class Options:
    """How a model is compiled and run: the arguments of `ad.compile` besides the source.

    One record serves many models: `ad.compile(source, options=fast)`; `fast.changed(threads=1)` has
    another value of a field. Values are checked when a model is compiled.

    The meaning of each field is that of the argument of its name (`help(ad.compile)`).
    """

    # fields of a program after its compilation: programs on disk do not depend on them
    AFTERWARDS: ClassVar[frozenset[str]] = frozenset((
        "progress", "arenas", "wait", "memory_limit", "strategy", "strategies", "profile",
        "profile_seconds", "profile_mebibytes", "tolerance", "inputs",
    ))  # fmt: skip
    # a program with such options is compiled in every process
    UNKEPT: ClassVar[tuple[str, ...]] = ("devices", "placement", "fallback", "dynamic_shapes")

    dims: Dims | Any = None
    _: KW_ONLY
    dynamic_shapes: Any = None
    threads: int | str = "auto"
    progress: CompileProgress | None = field(default=None, compare=False, repr=False)
    schedules: KernelOptions | None = None
    operators: Any = None
    precision: Mapping[str, str] | str | None = None
    target: str | None = None
    arenas: int | None = None
    wait: float | None = None
    memory_limit: MemoryLimit | int | str | None = None
    on_overflow: str = "error"
    strategy: Strategy | str | None = None
    devices: Mapping[str, str | Device | Engine] | None = None
    placement: Mapping[str, str] | str | None = None
    strategies: Mapping[str, Strategy | str] | None = None
    profile: str | os.PathLike[str] | None = None
    profile_seconds: float = 60.0
    profile_mebibytes: float = 64.0
    fallback: str | None = None
    external_data: str | None = None
    ragged: Mapping[str, str] | str | None = None
    tolerance: float | None = None
    inputs: Any = field(default=None, compare=False, repr=False)

    def __hash__(self) -> int:
        return hash((self.threads, str(self.precision), self.target, self.on_overflow))

    def changed(self, **fields: Any) -> Options:
        """The same with other values of some fields."""
        return Options(**{**vars(self), **fields})

    def as_picklable(self) -> Options:
        """The same for another process: absolute paths of operators, no progress."""
        ragged = dict(self.ragged) if isinstance(self.ragged, Mapping) else self.ragged
        operators = _absolute(self.operators)
        return self.changed(progress=None, operators=operators, ragged=ragged)

    @property
    def program_fields(self) -> dict[str, Any]:
        """The fields that a compiled program depends on, by name."""
        left_out = (*self.AFTERWARDS, *self.UNKEPT)
        return {name: value for name, value in vars(self).items() if name not in left_out}

    @property
    def may_be_kept(self) -> bool:
        """Whether a program with these options can be stored on disk."""
        return not any(_is_given(getattr(self, name)) for name in self.UNKEPT)


def _is_given(value: Any) -> bool:
    """Whether an option is there and not empty; a wrong one, which may have no truth, is."""
    try:
        return bool(value)
    except Exception:  # an array, or an object that raises
        return True


def _absolute(operators: Any) -> Any:
    """Make paths of definitions absolute."""
    if isinstance(operators, (str, os.PathLike)):
        return absolute(path_of("operators", operators))
    if isinstance(operators, Mapping):
        return {domain: _absolute(path) for domain, path in operators.items()}
    if isinstance(operators, list):  # its lists are refused by `operators_of`
        return [each if isinstance(each, list) else _absolute(each) for each in operators]
    return operators


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
    """What a compilation determines besides the program, stored with it in the program cache.

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


def apply_request(request: Request, model: Model, facts: Facts) -> None:
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
    apply_strategy(request, model, served)


def apply_strategy(request: Request, model: Model, strategy: Strategy) -> None:
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
