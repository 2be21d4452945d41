"""`anydim.compile`: loads the program from the program cache, or compiles it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydim import program_cache
from anydim.base import log
from anydim.base.errors import UserError
from anydim.base.keywords import public
from anydim.base.missing_package import missing_module
from anydim.base.read_files import FileState, reads_noted
from anydim.base.reports import reported, theirs
from anydim.base.user_values import function_of, path_of
from anydim.compile_request import Facts, Request, absolute, applied, strategy_here
from anydim.model import CompileProgress, Model
from anydim.program.compile_report import CompileReport, Deferred
from anydim.program_cache import Entry
from anydim.runtime.frames import trim_system
from anydim.variants.strategies import GENERIC

if TYPE_CHECKING:
    from anydim.compiler import Compiled
    from anydim.devices.device import Device
    from anydim.devices.engines.engine import Engine
    from anydim.passes.options import Options
    from anydim.program.limits import MemoryLimit
    from anydim.sizes import Dim
    from anydim.variants.strategies import Strategy


@reported
@public
def compile(
    source: Any,
    dims: Mapping[str, Dim | int | tuple[int, int | None] | Mapping[int, Any]] | None = None,
    *,
    threads: int | str = "auto",
    progress: CompileProgress | None = None,
    options: Options | None = None,
    operators: Any = None,
    precision: str | None = None,
    target: str | None = None,
    arenas: int | None = None,
    wait: float | None = None,
    memory_limit: MemoryLimit | int | str | None = None,
    on_overflow: str = "error",
    strategy: Strategy | str | None = None,
    devices: Mapping[str, str | Device | Engine] | None = None,
    placement: Mapping[str, str] | str | None = None,
    strategies: Mapping[str, Strategy | str] | None = None,
    profile: str | os.PathLike[str] | None = None,
    profile_seconds: float = 60.0,
    profile_mebibytes: float = 64.0,
    fallback: str | None = None,
) -> Model:
    """Compile a model once for every size inside the bounds of its dims.

    `source` is the path of an ONNX file, its bytes, an onnx.ModelProto, a Builder, a Graph, or the
    path of a text with the name of a definition in it: `kernels.tc:matmul`.
    `dims` gives bounds to the model's dims: a Dim, a pair (1, 512), or one size, 128; those left
    out run from 0 with no upper bound. Names are those of the file; a dim without one is given by
    its input and axis, `{"x": {2: (32, 736)}}` or `{"x.2": (32, 736)}`. `ad.inspect` lists them.
    An input whose shape the file does not declare has the rank that `{"x": 3}` gives, or that of
    each call, which compiles it; so does the first call that gives a value for an initializer that
    the file lists among its inputs.
    `threads` cores serve a call; "auto" is as many as this process may use: those that it is pinned
    to, within the quota of its container, or what OMP_NUM_THREADS says.
    `progress(stage, done, total)` is told what is being done.
    `options` are schedules that kernels shall have, as `passes/options.py` says. `operators` says
    which definitions implement operators of an ONNX model: the path of a `.tc` file that names its
    domain (`# domain: my.ops`), a list of those, or a mapping such as `{"my.ops": "mine.tc"}`.
    `precision` is "exact", every division rounded correctly, "fast", or "tf32", with which devices
    may round factors of float32 products too (docs/numerics.md); None is what the options say,
    which is "exact" where they say nothing. `target` makes the code: "llvm", or "c" by way of
    a C compiler (docs/new-target.md); None is what `settings.target` says.
    `arenas` calls run at once, each with an arena of its own; others wait for one to end, `wait`
    seconds at most, then raise BusyError. None: any number of calls; without end.
    `memory_limit`, such as "512 MiB", is the most bytes that a call may take of its own
    (docs/memory.md): a model that may need more inside the bounds of its dims is refused; where
    dims have no bounds, or with `ad.MemoryLimit("512 MiB", per_call=True)`, the calls that would.
    A size above its bound is a DimError; with `on_overflow="grow"` it runs, arenas grow, and a
    warning says so once: the code is made without upper bounds then, and bounds of dims are what
    is expected. A Builder's dims have none of their own then; `dims` gives what is expected.
    `strategy` says which code serves which size, and when it is made (docs/strategies.md):
    "generic", "exact(limit=64)", "adaptive", "buckets(seq=[16, 32])", "where('m <= 4', exact())",
    'library("openblas")', "pad(seq=16)".
    None is what `settings.strategy` says: better code for sizes that come often, once a model has
    served for seconds.
    `strategies` says it for parts, by patterns of the names of nodes or kernels.
    `profile` is a file that `record` wrote: bodies that pay for the sizes there are made now, the
    costliest first, as `prepare_recorded` says, within so many seconds and mebibytes of code.
    `devices` says what the names stand for that nodes are on (docs/devices.md), such as
    `{"accel": "opencl:0"}`: names of devices, or open ones; two names may be of one.
    `placement` says which nodes are on which, by patterns of their names and operators, such as
    `{"backbone/*": "accel", "NonMaxSuppression": "cpu"}`; the rest, with "auto" everything, goes
    where the estimated time is least. Without it the graph says, or where it does not, "auto" does.
    A node may go to another engine whole, by name: `{"Conv*": "onnxruntime"}`, or "openvino".
    `fallback="onnxruntime"` lets the installed onnxruntime run nodes of an ONNX model that cannot
    be imported; `explain` names them. A model that a bug of anydim keeps from being compiled runs
    there whole, with a warning.
    Raises ModelError for a model that cannot be taken, OptionError for options that do not fit,
    MemoryLimitError for a model that needs more memory than it may, DeviceError for a device that
    there is not or that does not take its part.
    """
    function_of("progress", progress)
    progress = theirs(progress)
    wanted: dict[str, Any] = {
        "threads": threads, "options": options, "precision": precision, "target": target,
        "arenas": arenas, "wait": wait, "memory_limit": memory_limit, "on_overflow": on_overflow,
        "strategy": strategy, "strategies": strategies, "devices": devices,
        "placement": placement,
        "profile": None if profile is None else os.path.abspath(path_of("profile", profile)),
        "profile_seconds": profile_seconds,
        "profile_mebibytes": profile_mebibytes,
        "fallback": fallback,
    }  # fmt: skip
    known = strategy_here(strategy)
    made_in = sys.modules.get("anydim.frontends.builder")
    if made_in is not None and isinstance(source, made_in.Builder):
        with suppress(UserError):  # the compiler raises it again, after errors of the arguments
            source = source.graph()  # a snapshot
    request = Request(source, dims, known, operators=operators, progress=progress, **wanted)
    entry = program_cache.entry(request)
    if entry is None:
        return _built(request, wanted)
    found = _found(entry, request, wanted)
    if found is None:
        with entry.locked_entry():
            found = _found(entry, request, wanted)
            if found is None:
                with reads_noted() as files:
                    return _built(request, wanted, entry, files)
    return found


def _built(
    request: Request, wanted: Mapping[str, Any], entry: Entry | None = None,
    files: Mapping[str, FileState] | None = None,
) -> Model:  # fmt: skip
    """Compile a model, and store it on disk at `entry`."""
    model, facts = _compiler().built(request)
    if entry is not None and facts is not None:
        save = partial(model._write, names=("native",), tell=request.advance)
        bytes = model.executable.constant_bytes
        kept = entry.keep(lambda path, more: save(path, facts=more), facts, files or {}, bytes)
        if kept and _is_lasting(request) and model._serving is None:
            report = replace(model.report, stages={}, kernels={})
            model.serve_by(GENERIC)
            model.executable.dismiss()
            del model, save  # graphs, kernels and weights
            trim_system()
            found = _found(entry, request, wanted, report)
            return found or _built(request, wanted)  # it was removed meanwhile
    _log(model.name, facts)
    model._made = _again(request, wanted, model)
    return model


def _is_lasting(request: Request) -> bool:
    """Whether the source can be compiled again, for queries that saved programs cannot answer."""
    return request.path is not None or isinstance(request.source, bytes)


def _found(
    entry: Entry, request: Request, wanted: Mapping[str, Any], made: CompileReport | None = None
) -> Model | None:
    """Load the model of a stored program, if any; `made` is the report of its compilation."""
    known = entry.find()
    if known is None:
        return None
    found, facts, seconds = known

    @cache
    def compiled() -> Compiled:
        entry.check_unchanged()
        made: Compiled = _compiler().compiled(request)
        return made

    report = replace(
        made or CompileReport({"load": seconds}, cached=1),
        stages=Deferred(lambda: compiled().report.stages),
        kernels=Deferred(lambda: compiled().report.kernels),
    )
    model = Model(
        found.executable, lambda: found.story, compiled, report, found.lists,
        origin=lambda: _compiler().origin(request),
        kept=None if found.variants() else found.container,  # with generic kernels only
    )  # fmt: skip
    applied(request, model, facts)
    model._made = _again(request, wanted)
    if made is None:
        log.info("%s: loaded its program from the cache; %.3f s", model.name, seconds)
        request.advance("done", 1, 1)
    _log(model.name, facts)
    return model


def _log(name: str, facts: Facts | None) -> None:
    for line in facts.findings if facts is not None else ():
        log.warning("%s: %s", name, line)


def _compiler() -> Any:
    """The module that compiles; LLVM is loaded concurrently with the Python modules."""
    try:
        loaded = import_module("anydim.targets.llvm.llvm_api").begin_loading()
        made = import_module("anydim.compile_source")
    except ModuleNotFoundError as error:
        raise missing_module("compile", error) from error
    loaded()
    return made


def _again(
    request: Request, wanted: Mapping[str, Any], model: Model | None = None
) -> Callable[[], Model]:
    """A function to compile the same in another process, from the path or else the graph."""
    if request.path is not None:
        return partial(compile, request.path, request.dims,
                       operators=absolute(request.operators), **wanted)  # fmt: skip
    found = None if model is None else _compiler().graph_of(request, model)
    if found is None:
        return partial(compile, request.source, request.dims, operators=request.operators, **wanted)
    return partial(compile, *found, **wanted)
