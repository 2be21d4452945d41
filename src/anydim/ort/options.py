"""SessionOptions and RunOptions with every attribute of onnxruntime's and its default.

The default determines an attribute's type. Assigning another type or an unknown name raises, as in
onnxruntime. `unmet` lists the requested options that have no effect.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from copy import deepcopy
from enum import IntEnum
from typing import Any

from anydim.api.compile_options import Options
from anydim.base import settings
from anydim.base.user_values import short_repr
from anydim.ort.errors import ObjectRefused, TypeRefused, Unimplemented
from anydim.ort.values import OrtValue
from anydim.runtime.stopping import Stop
from anydim.runtime.threads import MOST, known_threads

PEER = "onnxruntime"
FALLBACK_ENTRY = "anydim.fallback"


class GraphOptimizationLevel(IntEnum):
    """The level of graph optimisation. anydim always applies all of it."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Whether independent nodes may run at once. anydim runs them in order, each on all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """The order in which nodes run. anydim chooses it."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


_READ: dict[type, Callable[[Any], Any]] = {bool: bool, int: int}


class _Attributes:
    """Attributes that a class declares with defaults, checked on assignment."""

    def __setattr__(self, name: str, value: Any) -> None:
        kind = type(self)
        if name not in kind.__annotations__:
            raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
        super().__setattr__(name, _read(kind.__name__, name, value, type(getattr(kind, name))))


def _read(owner: str, name: str, value: Any, kind: type) -> Any:
    if isinstance(value, kind):
        return value
    try:
        return _READ[kind](value)
    except (KeyError, TypeError, ValueError):
        raise TypeRefused(
            f"{owner}.{name}: got {short_repr(value)}, expected {kind.__name__}"
        ) from None


class _Entries:
    """Configuration entries as strings; unknown keys are kept, as in onnxruntime."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.held: dict[str, str] = {}

    def add(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeRefused(f"{self.owner}: a configuration entry is two texts")
        self.held[key] = value

    def get(self, key: str) -> str:
        if key not in self.held:
            raise ObjectRefused(f"{self.owner} does not have configuration with key: {key}")
        return self.held[key]


class SessionOptions(_Attributes):
    """Options of a session. Threads, log levels, profiling and sizes of free dims take effect."""

    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    inter_op_num_threads: int = 0
    intra_op_num_threads: int = 0
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    optimized_model_filepath: str = ""
    profile_file_prefix: str = "onnxruntime_profile_"
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    compile_options: Options = Options()  # of anydim.compile; threads and sizes above come first

    def __init__(self) -> None:
        self.__dict__.update(
            entries=_Entries("SessionOptions"), sizes_by_name={}, sizes_by_denotation={},
            initializers={}, libraries=[],
        )  # fmt: skip

    entries: _Entries
    sizes_by_name: dict[str, int]
    sizes_by_denotation: dict[str, int]
    initializers: dict[str, OrtValue]
    libraries: list[str]

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set an entry; `anydim.fallback` is the only one with an effect."""
        self.entries.add(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """The value of an entry; RuntimeError if it was not added."""
        return self.entries.get(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix the size of the dim of this name."""
        self.sizes_by_name[str(name)] = int(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Fix the size of the axes with this denotation."""
        self.sizes_by_denotation[str(denotation)] = int(size)

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """Replace an initializer of the file by this value."""
        self.initializers[str(name)] = value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[OrtValue]) -> None:
        """Replace initializers of the file by these values."""
        for name, value in zip(names, values):
            self.add_initializer(name, value)

    def register_custom_ops_library(self, path: str) -> None:
        """Raise NotImplemented: its kernels need onnxruntime. A fallback receives the path."""
        if not self.fallback:
            raise Unimplemented(
                f"the library {os.fspath(path)} has kernels for onnxruntime, which anydim cannot"
                " run",
                "write the operators as definitions (anydim.compile's `operators`), or set the"
                f" session configuration entry '{FALLBACK_ENTRY}' to '{PEER}' first",
            )
        self.libraries.append(os.fspath(path))

    def add_provider(self, name: str, options: Any = None) -> None:
        """Accepted and ignored: sessions run on the CPU."""

    def has_providers(self) -> bool:
        """Whether providers were added: always False, as they are ignored."""
        return False

    @property
    def fallback(self) -> str:
        """The engine for files that anydim rejects: 'onnxruntime', or ''."""
        return self.entries.held.get(FALLBACK_ENTRY, settings.ort_fallback)

    @property
    def threads(self) -> int:
        """Threads of a run: the requested count, or the number of available cores."""
        if self.intra_op_num_threads > 0:
            return min(self.intra_op_num_threads, MOST)
        return known_threads(self.compile_options.threads)

    def copy(self) -> SessionOptions:
        """A copy of the options."""
        made = SessionOptions()
        shared = (*self.initializers.values(), self.compile_options)
        made.__dict__.update(deepcopy(self.__dict__, {id(v): v for v in shared}))
        return made

    def unmet(self) -> list[str]:
        """Descriptions of the requested options that have no effect."""
        return [text for text, holds in _UNMET if holds(self)]


_UNMET: tuple[tuple[str, Callable[[SessionOptions], bool]], ...] = (
    (
        "graph_optimization_level ORT_DISABLE_ALL: graphs are always optimised",
        lambda o: o.graph_optimization_level == GraphOptimizationLevel.ORT_DISABLE_ALL,
    ),
    (
        "execution_mode ORT_PARALLEL: nodes run in order, each on all threads",
        lambda o: o.execution_mode == ExecutionMode.ORT_PARALLEL,
    ),
    (
        "optimized_model_filepath: no optimised ONNX file is written; anydim.compile(...).save"
        " saves the compiled model",
        lambda o: bool(o.optimized_model_filepath),
    ),
    (
        "use_per_session_threads False: every session has threads of its own",
        lambda o: not o.use_per_session_threads,
    ),
)


class RunOptions(_Attributes):
    """Options of one run. `terminate` stops the runs that use them and prevents new ones."""

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False

    def __init__(self) -> None:
        self.__dict__.update(entries=_Entries("RunOptions"), stop=Stop())

    entries: _Entries
    stop: Stop

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "terminate":
            (self.stop.request if self.terminate else self.stop.clear)()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Set an entry; `memory.enable_memory_arena_shrinkage` takes effect."""
        self.entries.add(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """The value of an entry; RuntimeError if it was not added."""
        return self.entries.get(key)

    def add_active_adapter(self, adapter: Any) -> None:
        """Raise NotImplemented: parameters cannot be exchanged between runs."""
        raise Unimplemented("adapters of parameters are not supported")

    @property
    def shrinks(self) -> bool:
        """Whether cached memory is released to the system after the run."""
        return bool(self.entries.held.get("memory.enable_memory_arena_shrinkage"))
