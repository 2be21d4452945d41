"""Compiles a request without the program cache: opens the source, and runs the pipeline on it.

`build_model` gives the model that users call, `compile_program` the native code inside it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydim.api.compile_options import Facts, Request, apply_request, apply_strategy
from anydim.api.model import Model
from anydim.base import settings
from anydim.base.errors import InternalError, OptionError, UserError
from anydim.base.reports import caller_level, report_unexpected
from anydim.base.user_values import short_repr, text_of
from anydim.compiler.frontends.frontend import Prepared
from anydim.compiler.frontends.onnx.file.reading import Opened
from anydim.compiler.frontends.onnx.file.strings import StringParts, StringsInside, cut, own_dims
from anydim.compiler.frontends.onnx.file.variations import apply_ranks, apply_variation, variable_of
from anydim.compiler.frontends.origins import Origin
from anydim.compiler.frontends.table import GROW, expected_bounds, frontend_of, opened_source
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.graph.regions import FALLBACK
from anydim.compiler.passes.options import PLAIN, KernelOptions
from anydim.compiler.passes.program_form import Form
from anydim.compiler.pipeline import Compiled, run_pipeline
from anydim.compiler.variants.strategies import GENERIC
from anydim.runtime.executable import AbsentProgram
from anydim.runtime.program.batches.map_arguments import joinable
from anydim.runtime.program.callable_program import CallableProgram, Serving
from anydim.runtime.program.findings import findings
from anydim.runtime.program.limits import MemoryLimit
from anydim.runtime.program.program_reports import ProgramReports
from anydim.runtime.program.string_adapter import StringAdapter
from anydim.runtime.variations import PLAIN as PLAIN_VARIATION
from anydim.runtime.variations import Variable, Variation, Variations, rank_of
from anydim.sizes import Dim, given_dims

if TYPE_CHECKING:
    from anydim.compiler.targets.device_targets import DeviceTarget
    from anydim.runtime.devices.engines.engine import Engine


def prepare(request: Request) -> Prepared | None:
    """The graph to compile in place of a torch program, and its options; None for other sources."""
    found = frontend_of(request.source).prepare(request.source, request.options)
    if found is None and request.options.dynamic_shapes is not None:
        raise OptionError(
            "dynamic_shapes was given for a source that is no program of torch",
            "they are for torch modules; give `dims` for other sources",
        )
    return found


def build_model(request: Request) -> tuple[Model, Facts | None]:
    """Compile the model of a request, ready for calls; returns it and facts to save with it.

    No facts for models that cannot be saved: with strings, or compiled per call.
    """
    opened, read = _open_source(request)
    bounds, expected = _bounds(read)
    variable, serving = _find_variations(opened, request)
    if request.options.ragged is not None and variable is not None:
        variable, serving = None, None  # one rank, and initializers as in the file
    if variable is not None and serving is not None and variable.open:
        return _model_of_any_rank(variable, serving), None
    try:
        made = compile_program(read, bounds)
    except StringsInside as found:
        if request.options.ragged is not None:
            raise OptionError("ragged: the model has strings", "compile it without them") from None
        strings = _model_on_strings(cut(found.opened), bounds, expected, request)
        strings._varied = serving
        return strings, None
    made.tell()
    origin = origin_of(request)
    model = Model(
        made.executable, partial(_reports, made), lambda: made, made.report, made.lists,
        request.options.target or settings.target, made.index_ranges,
        lambda: origin,
    )  # fmt: skip
    facts = Facts(expected, bool(made.program.host_sites), tuple(findings(made.program)))
    apply_request(request, model, facts)
    model._other, model._record = partial(other_source, request), lambda: made.derivations
    model._varied = serving
    return model, facts if serving is None else None


def _reports(made: Compiled) -> ProgramReports:
    """The reports of a compilation."""
    checks = import_module("anydim.compiler.passes.ragged.row_checks")
    dims = [] if made.lists else joinable(made.program.signature)
    mixing = {dim: checks.mixing(made.graph, dim) for dim in dims}
    return ProgramReports(made.program, made.report.notes, mixing=mixing)


def compile_program(request: Request, bounds: Mapping[str, Dim] | None = None) -> Compiled:
    """Compile the source of a request to native code; StringsInside for a model with strings."""
    given, request = request.options, _open_source(request)[1]
    falls_back = _may_fall_back(given.fallback)
    form = request.known.form()
    placed, engines = _open_devices(request, form)
    schedules = PLAIN if given.schedules is None else given.schedules
    if not isinstance(schedules, KernelOptions):
        raise OptionError(f"options is {short_repr(schedules)}, expected anydim's Options")
    limit = None if given.memory_limit is None else MemoryLimit.of(given.memory_limit)
    dims = _bounds(request)[0] if bounds is None else bounds
    build = partial(
        run_pipeline, threads=given.threads, progress=request.advance, made_by=given.target,
        precision=given.precision, limit=limit, form=form, ragged=given.ragged,
    )  # fmt: skip
    try:
        return report_unexpected(build)(
            request.source, dims, options=schedules, operators=given.operators,
            devices=placed, placement=given.placement, engines=engines,
            fallback=falls_back,
        )  # fmt: skip
    except InternalError as error:
        whole = _delegate_whole(request.source, dims, error) if falls_back else None
        if whole is None:
            raise
        said = f"{whole.name} runs on {FALLBACK}: a bug of anydim: {error.problem}"
        warnings.warn(said, RuntimeWarning, stacklevel=caller_level())
        return build(whole, None)


def _open_source(request: Request) -> tuple[Opened | None, Request]:
    """The decoded ONNX model of a request, if it is one, and the request for it."""
    opened = opened_source(request.source, request.options)
    return opened, request if opened is None else replace(request, source=opened)


def _open_devices(
    request: Request, form: Form
) -> tuple[dict[str, DeviceTarget], dict[str, str | Engine]]:  # fmt: skip
    """The devices of a request, opened, and its engines, by their names."""
    given = request.options
    if given.devices is None and given.placement is None:
        return {}, {}
    table = import_module("anydim.runtime.devices.engines.table")
    rules = import_module("anydim.compiler.passes.device_placement.rules")
    targets = import_module("anydim.compiler.targets.device_targets")
    real, engines = table.named_engines(given.devices)
    placed = targets.placed_devices(real)
    named = placed or engines or rules.mentions(given.placement, table.ENGINES)
    if given.placement is not None and not named:
        raise OptionError("placement without devices", "name them: devices={'accel': 'opencl:0'}")
    return placed, engines


def _delegate_whole(source: Any, dims: Mapping[str, Dim], error: InternalError) -> Graph | None:
    """A graph that delegates the whole model to onnxruntime; None if not possible."""
    try:
        return frontend_of(source).delegate(source, dims, error.problem)
    except UserError:
        return None


def origin_of(request: Request) -> Origin:
    """The source for oracles: an ONNX model, or a definition with its attributes."""
    return frontend_of(request.source).origin(request.source)


def other_source(
    request: Request, change: Callable[[Request], Request]
) -> tuple[Callable[[], Compiled], Callable[[], Origin]]:
    """What compiles a request whose source is changed, and the origin of that source."""
    return lambda: compile_program(change(request)), lambda: origin_of(change(request))


def graph_of(request: Request, model: Model) -> tuple[Graph, Any] | None:
    """The graph of a source in memory, with dims for `compile`.

    None for a source that can be compiled again itself.
    """
    if model.on_strings or isinstance(model.executable, AbsentProgram):
        return None
    if frontend_of(request.source).is_picklable:
        return None
    if model._varied is not None and not isinstance(request.source, Opened):
        return None
    given = request.options
    return model.graph, given.dims if given.on_overflow == GROW else None  # the graph has them


def _bounds(request: Request) -> tuple[Mapping[str, Dim], Mapping[str, int]]:
    """The bounds to compile for, and those that sizes may exceed."""
    given = request.options
    return expected_bounds(request.source, given_dims(given.dims), given.on_overflow)


def _find_variations(
    opened: Opened | None, request: Request
) -> tuple[Variable | None, Serving | None]:
    """What calls may vary of an ONNX model, and the compiler of a variation; None if nothing."""
    if opened is None:
        return None, None
    known, bounds = apply_ranks(opened, given_dims(request.options.dims))
    variable = variable_of(known, strings=False)
    if not (variable.open or variable.overridable):
        return variable, None

    def make(variation: Variation) -> CallableProgram:
        return build_model(request.changed(apply_variation(known, variation), dims=bounds))[0]

    made: Variations[CallableProgram] = Variations(make)

    def serving(model: CallableProgram | None, named: Mapping[str, Any]) -> CallableProgram | None:
        variation = variable.variation(named, lambda name: rank_of(named[name]))
        if variation == PLAIN_VARIATION:
            return None
        found = made[variation]
        if model is not None and model is not found:
            found._limit_as(model)
        return found

    return variable, serving


def _model_without_program(*texts: str) -> Model:
    """A model without a program; queries of one raise an OptionError of these texts."""
    absent: Any = AbsentProgram(*texts)
    return Model(absent, absent.refuse, absent.refuse)


def _model_of_any_rank(variable: Variable, serving: Serving) -> Model:
    """A model that is compiled at the first call, and again at the first call with other ranks.

    Queries of sizes, memory and kernels refer to the ranks of the first call.
    """
    first = variable.open[0]
    model = _model_without_program(
        f"{variable.name}: the rank of input '{first}' is not known before the first call",
        f"give the number of its axes: dims={{'{first}': 3}}, --dim {first}=3",
    )
    model._compiled_by_call(variable.name, variable.inputs, serving)
    return model


def _model_on_strings(
    parts: StringParts, bounds: Mapping[str, Dim], expected: Mapping[str, int], request: Request
) -> Model:
    """A model with strings; its numeric part, if any, is compiled by the request."""
    ports: Any = import_module("anydim.deploy.string_members").ports_of(parts)
    if parts.core is None:
        adapter = StringAdapter(parts.name, None, ports, parts.early, parts.late, parts)
        texts = f"{parts.name} has no native part: all of it is on strings", "it can be called"
        return _model_without_program(*texts)._adapted(adapter)
    inner = request.changed(
        parts.core, dims=own_dims(parts.core, bounds), strategy=GENERIC, strategies=None,
        profile=None, on_overflow="error",
    )  # fmt: skip
    inner = replace(inner, known=GENERIC)
    core, _ = build_model(inner)
    core.executable.watched.expect(expected)
    signature = core.executable.signature
    adapter = StringAdapter(parts.name, signature, ports, parts.early, parts.late, parts)
    model = core._adapted(adapter)
    apply_strategy(request, model, request.known)
    return model


def _may_fall_back(given: str | None) -> bool:
    """Whether onnxruntime may run unsupported nodes; requires that it is installed."""
    if given is None:
        return False
    if text_of("fallback", given) != FALLBACK:
        raise OptionError(f"fallback is '{given}'", f"give '{FALLBACK}', or nothing")
    import_module("anydim.runtime.devices.engines.table").open_engine(FALLBACK)
    return True
