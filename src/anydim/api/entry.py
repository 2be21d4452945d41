"""`anydim.compile`: loads the program from the program cache, or compiles it.

compile            entry.py            arguments to a request; the program cache
  build_model      compile_source.py   source to a model: variations, strings, devices, fallback
    run_pipeline   compiler/pipeline.py   source to graph, passes, native code
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from anydim.api import program_cache
from anydim.api.compile_options import Facts, Options, Request, apply_request, strategy_here
from anydim.api.model import Model
from anydim.api.program_cache import Entry
from anydim.base import log, settings
from anydim.base.errors import OptionError, UserError
from anydim.base.keywords import check_keywords, public
from anydim.base.read_files import FileRead, reads_noted
from anydim.base.reports import report_unexpected, user_callback
from anydim.base.user_values import function_of, is_auto, path_of, short_repr
from anydim.compiler.variants.strategies import GENERIC
from anydim.runtime.frames import trim_system
from anydim.runtime.program.compile_report import CompileReport, Deferred

if TYPE_CHECKING:
    from anydim.api.compile_options import Dims
    from anydim.api.model import CompileProgress
    from anydim.compiler.passes.options import KernelOptions
    from anydim.compiler.pipeline import Compiled
    from anydim.compiler.variants.strategies import Strategy
    from anydim.deploy.container import Container
    from anydim.runtime.devices.device import Device
    from anydim.runtime.devices.engines.engine import Engine
    from anydim.runtime.program.limits import MemoryLimit


Function = TypeVar("Function", bound=Callable[..., Any])


def gather_options(function: Function) -> Function:
    """Decorate `compile`: call it with the source, and all other arguments as `Options`."""

    @wraps(function)
    def call(source: Any, dims: Any = None, *, options: Any = None, **more: Any) -> Any:
        return function(source, options=_options(dims, options, more))

    return cast(Function, call)


@report_unexpected
@public
@gather_options
def compile(
    source: Any,
    dims: Dims | Any = None,
    *,
    options: Options | KernelOptions | None = None,
    dynamic_shapes: Any = None,
    threads: int | str = "auto",
    progress: CompileProgress | None = None,
    schedules: KernelOptions | None = None,
    operators: Any = None,
    precision: Mapping[str, str] | str | None = None,
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
    external_data: str | None = None,
    ragged: Mapping[str, str] | str | None = None,
    tolerance: float | None = None,
    inputs: Any = None,
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
        options: The other arguments as one `ad.Options`; arguments given here override its fields.
        dynamic_shapes: The free axes of a torch module, as of `torch.export.export`; for an
            exported program: those that it was exported with, which name its dims.
        threads: Threads of a call. `"auto"`: the cores of the process's affinity within its
            container quota, or OMP_NUM_THREADS.
        progress: Called with `(stage, done, total)`.
        schedules: Schedules of kernels, as `define` makes of its options (docs/definitions.md).
        operators: Definitions of operators of an ONNX model: the path of a `.tc` file with a line
            `# domain: my.ops`, a list of paths, or a mapping, `{"my.ops": "mine.tc"}`.
        precision: `"exact"`: correctly rounded division; `"fast"`: division by multiplication with
            reciprocals; `"tf32"`: fast, and devices may round factors of float32 products;
            `"bfloat16"`: fast, and processors with such instructions round factors of products
            with constants; `"bfloat16x3"`, `"bfloat16x2"`: fast, and processors with tiles (AMX)
            multiply sums of three or two bfloat16; `"int8"`: fast, and these factors are integers
            of 8 bits (docs/numerics.md). `"auto"`: the fastest of these, without tf32,
            whose error on `inputs` is at most `tolerance`. `{"/head/*": "exact", "*": "bfloat16"}`:
            by patterns of nodes, the first that matches. None: as in `schedules`, else exact.
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
        external_data: Where links to external data of an ONNX file may lead: `"inside"` the folder
            of the given path, or of the file that it leads to, or anywhere, `"follow"`. None: the
            setting `external_data`.
        ragged: Dims whose size differs from row to row of a batch, with the dim of the rows:
            `{"seq": "batch"}`, or `"auto"`. Inputs and results with such dims are lists of rows or
            `ad.Ragged`; the result of a row is that of the model for this row alone, without
            padding. Inputs that mark padding may be omitted (docs/guides/ragged.md).
        tolerance: For `precision="auto"`: the largest difference from float64, over the largest
            magnitude of a result. None: 1e-3.
        inputs: For `precision="auto"`: inputs of a call by name, or a list of such calls.

    Returns:
        The compiled model.

    Raises:
        ModelError: The model is invalid or not supported.
        OptionError: An argument is invalid.
        MemoryLimitError: The model needs more memory than the limit.
        DeviceError: A device is missing or refuses its part.
    """
    assert isinstance(options, Options)  # `gather_options` put all other arguments into it
    given = options
    if is_auto(given.precision) or given.inputs is not None or given.tolerance is not None:
        return _choose_precision(source, given)
    known = strategy_here(given.strategy)
    if isinstance(source, os.PathLike):
        path_of("source", source)
    if not isinstance(source, (str, os.PathLike, bytes, bytearray)):
        with suppress(UserError):  # the compiler raises it again, after errors of the arguments
            source = (
                import_module("anydim.compiler.frontends.table")
                .frontend_of(source)
                .snapshot(source)
            )
    request = Request(source, given, known)
    entry = program_cache.entry(request)
    if entry is None:
        return _build_model(request)
    found = None if entry.is_compiled_elsewhere() else _load_model(entry, request)
    if found is None:
        with entry.locked_entry():
            found = _load_model(entry, request) or _exchange_weights(entry, request)
            if found is None:
                with reads_noted() as files:
                    return _build_model(request, entry, files)
    return found


def _choose_precision(source: Any, given: Options) -> Model:
    """Compile in all precisions, and keep the fastest that the tolerance permits."""
    if not is_auto(given.precision):
        name = "inputs" if given.tolerance is None else "tolerance"
        raise OptionError(
            f"{name} is given, and precision is {short_repr(given.precision)}",
            'errors are measured with precision="auto"',
        )
    plain = given.changed(inputs=None, tolerance=None)

    def compile_in(source: Any, precision: str) -> Model:
        made: Model = compile(source, options=plain.changed(precision=precision))
        return made

    chosen: Model = import_module("anydim.api.precision_choice").compile_chosen(
        compile_in, source, given
    )
    return chosen


def _options(dims: Any, options: Any, more: Mapping[str, Any]) -> Options:
    """The options of a call; `options` that are not `ad.Options` are schedules."""
    check_keywords(compile, more)
    base = options if isinstance(options, Options) else Options(schedules=options)
    given = base.changed(**more) if dims is None else base.changed(dims=dims, **more)
    function_of("progress", given.progress)
    if given.external_data is not None:
        settings.check_knob("external_data", given.external_data, "argument 'external_data'")
    profile = given.profile
    return given.changed(
        progress=user_callback(given.progress),
        profile=None if profile is None else os.path.abspath(path_of("profile", profile)),
    )


def _build_model(
    request: Request, entry: Entry | None = None, files: Mapping[str, FileRead] | None = None
) -> Model:
    """Compile a model, and store it on disk at `entry`."""
    prepared = _compiler().prepare(request)
    if prepared is not None:
        made = compile(prepared.graph, options=prepared.options)
        if prepared.complex_names or prepared.written or prepared.structure is not None:
            adapter = import_module("anydim.runtime.program.adapter").TensorAdapter
            made = made._adapted(adapter(
                made.executable.signature, prepared.complex_names, prepared.state,
                prepared.written, made.lists, prepared.structure,
            ))  # fmt: skip
        return made if prepared.around is None else prepared.around(made)
    model, facts = _compiler().build_model(request)
    if entry is not None and facts is not None:
        save, record = _program_writer(request, model)
        bytes = model.executable.constant_bytes
        kept = entry.keep(save, facts, files or {}, bytes, record)
        if kept and _is_lasting(request) and model._serving is None:
            report = replace(model.report, stages={}, kernels={})
            model.serve_by(GENERIC)
            model.executable.dismiss()
            del model, save  # graphs, kernels and weights
            trim_system()
            found = _load_model(entry, request, report)
            return found or _build_model(request)  # it was removed meanwhile
    _log_findings(model.name, facts)
    model._made = _compile_again(request, model)
    return model


def _program_writer(request: Request, model: Model) -> tuple[program_cache.Save, bytes]:
    """What writes a model to the program cache, and the record of how its constants are derived."""
    record = model._compiled.derivations
    members: list[Any] = []
    about: dict[str, Any] = {}
    if record:
        made = import_module("anydim.api.structures")
        members, about = (
            [made.Member(made.RECORD, record)],
            {made.SOURCE: made.name_of(request.path)},
        )

    def save(path: str, more: Mapping[str, Any]) -> None:
        model._write(path, ("native",), request.advance, {**more, **about}, members)

    return save, record


def _is_lasting(request: Request) -> bool:
    """Whether the source can be compiled again, for queries that saved programs cannot answer."""
    return request.path is not None or isinstance(request.source, bytes)


def _load_model(entry: Entry, request: Request, made: CompileReport | None = None) -> Model | None:
    """Load the model of a stored program, None if there is none.

    `made` is the report of how this process made it, if it did.
    """
    known = entry.find()
    if known is None:
        return None
    found, facts, seconds = known

    @cache
    def compiled() -> Compiled:
        entry.check_unchanged()
        made: Compiled = _compiler().compile_program(request)
        return made

    report = replace(
        made or CompileReport({"load": seconds}, cached=1),
        stages=Deferred(lambda: compiled().report.stages),
        kernels=Deferred(lambda: compiled().report.kernels),
    )
    model = Model(
        found.executable, lambda: found.story, compiled, report, found.lists,
        origin=lambda: _compiler().origin_of(request),
        kept=None if found.variants() else found.container,  # with generic kernels only
    )  # fmt: skip
    apply_request(request, model, facts)
    model._other = lambda change: _compiler().other_source(request, change)
    model._record = partial(_record_in, found.container)
    model._made = _compile_again(request)
    if made is None:
        log.info("%s: loaded its program from the cache; %.3f s", model.name, seconds)
        request.advance("done", 1, 1)
    _log_findings(model.name, facts)
    return model


def _record_in(container: Container) -> bytes:
    """The record of how the constants of a stored program are derived, if it has one."""
    name = import_module("anydim.deploy.exchange").RECORD
    return bytes(container.verify_member(name)) if name in container.parts else b""


def _exchange_weights(entry: Entry, request: Request) -> Model | None:
    """Make the program of a stored one that differs in weights alone; None if there is none."""
    start = time.perf_counter()
    if not entry.exchange_weights():
        return None
    seconds = time.perf_counter() - start
    found = _load_model(entry, request, CompileReport({"weights": seconds}, cached=1))
    if found is not None:
        log.info("%s: put its weights into a program of the cache; %.3f s", found.name, seconds)
        request.advance("done", 1, 1)
    return found


def _log_findings(name: str, facts: Facts | None) -> None:
    for line in facts.findings if facts is not None else ():
        log.warning("%s: %s", name, line)


def _compiler() -> Any:
    """The module that compiles; LLVM is loaded concurrently with the Python modules."""
    try:
        loaded = import_module("anydim.compiler.targets.llvm.llvm_api").begin_loading()
        made = import_module("anydim.api.compile_source")
    except ModuleNotFoundError as error:
        missing = import_module("anydim.base.missing_package").missing_module
        raise missing("anydim.compile", error) from error
    loaded()
    return made


def _compile_again(request: Request, model: Model | None = None) -> Callable[[], Model]:
    """A function to compile the same in another process, from the path or else the graph."""
    options = request.options.as_picklable()
    if request.path is not None:
        return partial(compile, request.path, options=options)
    found = None if model is None else _compiler().graph_of(request, model)
    if found is None:
        return partial(compile, request.source, options=options)
    graph, dims = found  # the graph is over rows, and has operators inside
    return partial(compile, graph, options=options.changed(dims=dims, ragged=None, operators=None))
