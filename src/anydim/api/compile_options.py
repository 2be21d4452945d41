"""What `anydim.compile` accepts besides the source, as one record."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING, Any, ClassVar

from anydim.base.records import dataclass
from anydim.base.user_values import absolute

if TYPE_CHECKING:
    from anydim.api.model import CompileProgress
    from anydim.compiler.passes.options import KernelOptions
    from anydim.compiler.variants.strategies import Strategy
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
        "profile_seconds", "profile_mebibytes",
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
    precision: str | None = None
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

    def __hash__(self) -> int:
        return hash((self.threads, self.precision, self.target, self.on_overflow))

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
        return not any(getattr(self, name) for name in self.UNKEPT)


def _absolute(operators: Any) -> Any:
    """Make paths of definitions absolute."""
    if isinstance(operators, (str, os.PathLike)):
        return absolute(operators)
    if isinstance(operators, Mapping):
        return {domain: _absolute(path) for domain, path in operators.items()}
    return [_absolute(path) for path in operators] if isinstance(operators, list) else operators
