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
from anydim.base.collector import collector_paused
from anydim.base.errors import OptionError, UserError
from anydim.base.keywords import public
from anydim.base.missing_package import missing_module
from anydim.base.read_files import FileState, reads_noted
from anydim.base.reports import reported, user_callback
from anydim.base.user_values import function_of, path_of
from anydim.compile_request import Facts, Request, absolute, applied, strategy_here
from anydim.frontends.torch_sources import is_torch
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
    dims: Mapping[str, Dim | int | tuple[int, int | None] | Mapping[int, Any]] | Any = None,
    *,
    dynamic_shapes: Any = None,
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
    ragged: Mapping[str, str] | str | None = None,
) -> Model:
    """Compile a model once for every size within the bounds of its dims.

    Args:
        source: Path of an ONNX file, its bytes, an `onnx.ModelProto`, a `Builder`, a `Graph`, or
            path and name of a definition: `kernels.tc:matmul`. Or, with torch installed, a
            `torch.export.ExportedProgram`, the path of a file of it (`.pt2`), or a module, which is
            exported.
        dims: Bounds of dims: a `Dim`, a pair `(1, 512)`, or one size. Other dims run from 0
            without upper bound. Names are those of the file (`ad.inspect` lists them); a dim
            without a name is given by input and axis, `{"x": {2: (32, 736)}}` or `{"x.2": (32,
            736)}`. `{"x": 3}` gives the rank of an input without a declared shape; otherwise each
            rank is compiled at its first call, as is a call with a value for an initializer among
            the inputs. For a torch module: the example arguments of the export, a tuple, or a
            mapping by name.
        dynamic_shapes: The free axes of a torch module, as of `torch.export.export`; for an
            exported program: those that it was exported with, which name its dims.
        threads: Threads of a call. `"auto"`: the cores of the process's affinity within its
            container quota, or OMP_NUM_THREADS.
        progress: Called with `(stage, done, total)`.
        options: Schedules of kernels, a text or a mapping (docs/definitions.md, Options).
        operators: Definitions of operators of an ONNX model: the path of a `.tc` file with a line
            `# domain: my.ops`, a list of paths, or a mapping, `{"my.ops": "mine.tc"}`.
        precision: `"exact"`: correctly rounded division; `"fast"`: division by multiplication with
            reciprocals; `"tf32"`: fast, and devices may round factors of float32 products
            (docs/numerics.md). None: as in `options`, else exact.
        target: `"llvm"`, or `"c"` through a C compiler. None: the setting `target`.
        arenas: Most concurrent calls, each with its own arena. None: no limit.
        wait: Seconds that a further call waits for an arena. None: no limit.
        memory_limit: Most bytes of memory of a call, a number or a text such as `"512 MiB"`. A
            model that may need more within its bounds is refused; without bounds, or with
            `ad.MemoryLimit("512 MiB", per_call=True)`, single calls are refused (docs/memory.md).
        on_overflow: `"error"`: a size above its bound raises DimError. `"grow"`: it runs, with one
            warning; the code is compiled without upper bounds, and a Builder's dims must have
            none.
        strategy: Which variants exist, and when they are compiled: `"generic"`,
            `"exact(limit=64)"`, `"adaptive"`, `"buckets(seq=[16, 32])"`, `"where('m <= 4',
            exact())"`, `'library("openblas")'`, `"pad(seq=16)"` (docs/strategies.md). None: the
            setting `strategy`.
        devices: Devices of the names that nodes are placed on, `{"accel": "opencl:0"}`: names of
            devices, or open devices (docs/devices.md). Two names may refer to one device.
        placement: Devices by patterns of node names or operators, `{"backbone/*": "accel",
            "NonMaxSuppression": "cpu"}`, or `"auto"`. Other nodes go to the fastest device, copies
            included. `{"Conv*": "onnxruntime"}` delegates nodes to an engine. None: as in the
            graph, else auto.
        strategies: Strategies by patterns of node or kernel names.
        profile: File of `Model.record`: variants that pay for its sizes are compiled first, as by
            `Model.prepare_recorded`.
        profile_seconds: Time limit of `profile`, in seconds.
        profile_mebibytes: Code size limit of `profile`, in MiB.
        fallback: `"onnxruntime"`: the installed onnxruntime runs nodes that cannot be imported,
            and models that raise an InternalError, with a warning.
        ragged: Dims whose size differs from row to row of a batch, with the dim of the rows:
            `{"seq": "batch"}`, or `"auto"`. Inputs and results with such dims are lists of rows or
            `ad.Ragged`; the result of a row is that of the model for this row alone, without
            padding. Inputs that mark padding may be omitted (docs/guides/ragged.md).

    Returns:
        The compiled model.

    Raises:
        ModelError: The model is invalid or not supported.
        OptionError: An argument is invalid.
        MemoryLimitError: The model needs more memory than the limit.
        DeviceError: A device is missing or refuses its part.
    """
    function_of("progress", progress)
    progress = user_callback(progress)
    wanted: dict[str, Any] = {
        "threads": threads, "options": options, "precision": precision, "target": target,
        "arenas": arenas, "wait": wait, "memory_limit": memory_limit, "on_overflow": on_overflow,
        "strategy": strategy, "strategies": strategies, "devices": devices,
        "placement": placement,
        "profile": None if profile is None else os.path.abspath(path_of("profile", profile)),
        "profile_seconds": profile_seconds,
        "profile_mebibytes": profile_mebibytes,
        "fallback": fallback,
        "ragged": dict(ragged) if isinstance(ragged, Mapping) else ragged,
    }  # fmt: skip
    if is_torch(source):
        torch_dims = None if operators is not None else dims
        return _of_torch(source, torch_dims, dynamic_shapes, {**wanted, "progress": progress})
    if dynamic_shapes is not None:
        raise OptionError(
            "dynamic_shapes was given for a source that is no program of torch",
            "they are for torch modules; give `dims` for other sources",
        )
    known = strategy_here(strategy)
    made_in = sys.modules.get("anydim.frontends.builder")
    if made_in is not None and isinstance(source, made_in.Builder):
        with suppress(UserError):  # the compiler raises it again, after errors of the arguments
            source = source.graph()  # a snapshot
    request = Request(source, dims, known, operators=operators, progress=progress, **wanted)
    entry = program_cache.entry(request)
    if entry is None:
        return _built(request, wanted)
    found = None if entry.is_compiled_elsewhere() else _found(entry, request, wanted)
    if found is None:
        with entry.locked_entry():
            found = _found(entry, request, wanted)
            if found is None:
                with reads_noted() as files:
                    return _built(request, wanted, entry, files)
    return found


def _of_torch(source: Any, dims: Any, dynamic_shapes: Any, wanted: Mapping[str, Any]) -> Model:
    """Compile the graph of a program of torch."""
    with collector_paused(lasting=True):
        try:
            opening = import_module("anydim.frontends.torch.opening")
        except ModuleNotFoundError as error:
            raise missing_module("compile", error) from error
        opened = opening.opened(source, dims, dynamic_shapes)
        model = compile(opened.graph, **wanted)
    made: Model = import_module("anydim.stateful_model").around(model, opened)
    return made


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
    return partial(compile, *found, **{**wanted, "ragged": None})  # the graph is over rows
