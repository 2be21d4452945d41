"""The compiler's pipeline on one screen: source -> graph -> passes -> program -> native code.

`PASSES` is the list of passes, each with the reason for its position and its postcondition. To add
a pass, write a frozen dataclass with `run(graph) -> graph` in `passes/` and add one line here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

import anydim.compiler.ops  # noqa: F401  operators of graphs
from anydim.base import log, settings
from anydim.base.collector import collector_paused
from anydim.base.dtypes import DType, float64
from anydim.base.records import dataclass
from anydim.compiler.frontends.table import frontend_of, read
from anydim.compiler.graph.derivation_record import write_record
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.indices import index_ranges
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.graph.regions import Foreign
from anydim.compiler.graph.text import print_graph
from anydim.compiler.graph.verify import verify
from anydim.compiler.kernels.ir import Kernel, Library
from anydim.compiler.kernels.launch import TF32, Machine
from anydim.compiler.kernels.template import Template
from anydim.compiler.native.assembly import assembly_texts
from anydim.compiler.native.build import Assembled, begin, begin_host, build
from anydim.compiler.native.host import host_text
from anydim.compiler.passes.accumulate import Accumulate
from anydim.compiler.passes.assemble import Assemble, Store
from anydim.compiler.passes.channels import Channels
from anydim.compiler.passes.early_libraries import begin_libraries
from anydim.compiler.passes.equal_parts import Launches, compile_parts
from anydim.compiler.passes.fuse import Fuse
from anydim.compiler.passes.hoist_constants import Numbers
from anydim.compiler.passes.image_turns import ImageTurns
from anydim.compiler.passes.inline import Inline
from anydim.compiler.passes.integers import Integers
from anydim.compiler.passes.joins import Joins
from anydim.compiler.passes.layouts import Layouts
from anydim.compiler.passes.link import Link, Linked
from anydim.compiler.passes.loop_nodes import Recur
from anydim.compiler.passes.lower import Lower
from anydim.compiler.passes.opaque_launches import Opaque, add_guards
from anydim.compiler.passes.options import (
    BFLOAT16,
    BFLOAT16X2,
    INT8,
    PLAIN,
    KernelOptions,
    given_options,
    known_precision,
)
from anydim.compiler.passes.pad import Pad, known_pads
from anydim.compiler.passes.program_form import PLAIN_FORM, Form
from anydim.compiler.passes.quantise_factors import QuantiseFactors
from anydim.compiler.passes.results import Results
from anydim.compiler.passes.round_factors import RoundFactors
from anydim.compiler.passes.scales import Scales
from anydim.compiler.passes.schedule import Alias, Schedule, Scheduled, unmet
from anydim.compiler.passes.segment import Cut, Part, Segment, cut_text, devices_of, straight
from anydim.compiler.passes.setups import join_setup
from anydim.compiler.passes.shared_panels import SharedPanels
from anydim.compiler.passes.simplify import Simplify
from anydim.compiler.passes.sizes_once import SizesOnce
from anydim.compiler.passes.split_reduction import Pieces
from anydim.compiler.passes.store_rounded import StoreRounded
from anydim.compiler.passes.tap_ranges import TapRanges
from anydim.compiler.passes.unit_dimensions import UnitDimensions
from anydim.compiler.passes.views import Views
from anydim.compiler.passes.weight_only_quant import Narrow
from anydim.compiler.progress import (
    CompileReport,
    Lowered,
    Progress,
    Work,
    folded_note,
    kernel_texts,
    llvm_texts,
    parts_text,
    schedule_text,
)
from anydim.compiler.targets.processor import NATIVE
from anydim.compiler.targets.target import Target
from anydim.compiler.targets.targets import target
from anydim.compiler.variants.records import tuned_for
from anydim.runtime.executable import Executable
from anydim.runtime.lists import Lists
from anydim.runtime.program.inputs import Ranges
from anydim.runtime.program.limits import MemoryLimit
from anydim.runtime.program.program import Program
from anydim.runtime.threads import known_threads
from anydim.sizes import Dim
from anydim.sizes.interned import forget_results

if TYPE_CHECKING:
    from anydim.compiler.targets.device_targets import DeviceTarget
    from anydim.runtime.devices.engines.engine import Engine


@dataclass(frozen=True)
class Pass:
    """An entry of the list. `make` builds the pass for a machine, its templates and options.

    `splits`: its `split` separates a straight program into a setup and the rest. `folds`: it may
    fold constants, which the notes report. `decides_libraries`: after it, the micro-kernels that
    products call are known.
    """

    name: str
    why_here: str
    after: str
    make: Callable[[Machine, tuple[Template, ...], KernelOptions], Any]
    splits: bool = False
    folds: bool = False
    decides_libraries: bool = False


class Unchanged:
    """A pass that is switched off."""

    def run(self, graph: Graph) -> Graph:
        """Return the graph itself."""
        return graph


# `segment` runs first: it cuts graphs with regions into straight-line parts for these passes
PASSES: tuple[Pass, ...] = (
    Pass(
        "lower", "first: all later passes work on comprehensions, not operators",
        "each node is one statement; numbers are literals", lambda m, t, o: Lower(),
    ),
    Pass(
        "integers", "before simplify, which would fold dequantised constants into floats",
        "sums of products of dequantised values are sums of integers, scaled afterwards",
        lambda m, t, o: Integers(),
    ),
    Pass(
        "weight_only_quant",
        "after integers, which handles products of dequantised values; before simplify",
        "products read constant weights of 4 or 8 bits at that width",
        lambda m, t, o: Narrow(m, t),
    ),
    Pass(
        "accumulate", "before simplify, which then converts constants once",
        "products of 16-bit floats are accumulated in float32, from float32",
        lambda m, t, o: Accumulate(any(template.widens for template in t)),
        decides_libraries=True,
    ),
    Pass(
        "simplify", "before views and fusion: removed statements need not be moved or fused",
        "no rule matches, no value is computed twice or from constants only",
        lambda m, t, o: Simplify(o.precision), folds=True,
    ),
    Pass(
        "channels", "after simplify: it reads folded constants",
        "constant scales and shifts of channels are combined, and folded into weights",
        lambda m, t, o: Channels(o.precision),
    ),
    Pass(
        "unit_dimensions", "before views: a loop that runs once hides that two loops are the same",
        "no intermediate value has a dimension of size 1", lambda m, t, o: UnitDimensions(),
    ),
    Pass(
        "joins", "before views: a remaining part is a view of the whole",
        "few concatenations are only parts of others", lambda m, t, o: Joins(),
    ),
    Pass(
        "views", "before fusion: statements that only move data would prevent it",
        "transposes, slices, reshapes and expands are indices in the reads of others",
        lambda m, t, o: Views(),
    ),
    Pass(
        "sizes_once", "after views: remaining values are computed; before fusion",
        "no statement that reads inputs computes expensive values of sizes only",
        lambda m, t, o: SizesOnce(), splits=True,
    ),
    Pass(
        "inline", "after views: a reduction reads its operands from their final location",
        "no reduction reads a pointwise value without other readers", lambda m, t, o: Inline(),
    ),
    Pass(
        "scales", "after views and inline: operands are read where they lie; before fuse",
        "factors of operands, if they take a launch, are factors of the product",
        lambda m, t, o: Scales(),
    ),
    Pass(
        "tap_ranges", "after views, which may make padding; before layouts, which count taps",
        "no window of known sizes has taps that are out of bounds at every position",
        lambda m, t, o: TapRanges(),
    ),
    Pass(
        "layouts", "after views, whose indices it follows; before fuse, which works on loops",
        "image values are stored channels last where chosen",
        lambda m, t, o: Layouts(settings.layout, not m.max_lanes, copies=not o.schedules),
    ),
    Pass(
        "split_reduction",
        "after inline and layouts: it splits loops in their final form; before fuse",
        "no full reduction to a scalar is one long loop",
        lambda m, t, o: Pieces(),
    ),
    Pass(
        "round_factors", "before fuse, which adds epilogues; after passes that look for products",
        "products with constants have factors of bfloat16, with that precision",
        lambda m, t, o: RoundFactors(o.precision, m, t, o.nodes),
    ),
    Pass(
        "quantise_factors", "before fuse, as round_factors",
        "products with constants have factors of 8 bits, with precision int8",
        lambda m, t, o: QuantiseFactors(o.precision, m, t, o.nodes),
    ),
    Pass(
        "fuse", "after all passes that change statements: it needs their final form",
        "each node is a group that one kernel template matches",
        lambda m, t, o: Fuse(m, t) if o.fuse else Unchanged(),
    ),
    Pass(
        "store_rounded", "after fuse: it changes what kernels store, not which kernels there are",
        "values that kernels round to bfloat16 are stored so where a kernel makes them",
        lambda m, t, o: StoreRounded(m, t) if BFLOAT16 in o.precisions else Unchanged(),
    ),
    Pass(
        "hoist_constants", "after fuse: it compares the groups of kernels",
        "groups that differ only in literals share a kernel", lambda m, t, o: Numbers(),
    ),
    Pass(
        "pad", "last: a group is padded as a whole, like its kernel",
        "loops over padded dims run to the padded size", lambda m, t, o: Pad(o.pads, m, t),
    ),
)  # fmt: skip
# then, from graph to program:
#   shared_panels   gathers of constants that products have in panels read these
#   schedule   groups -> launches of kernels; equal groups share one kernel
#   assemble   lifetimes -> arena offsets as formulas; packed constants; host steps;
#              parts and regions -> a program of regions, if there are any
#   native     one host module, one object per kernel and micro-kernel library, linked
_STAGES = len(PASSES) + 6


@dataclass(frozen=True)
class Compiled:
    """The result of a compilation: native code, the program, and reference evaluators.

    `again` compiles the program for another target and number of threads. `reference` evaluates
    the graph in float64, `plain` in its own types, whose products have factors of 16 or 8 bits
    if they are `rounded`. `derivations` is the record of how its constants are derived from weights
    (`graph/derivation_record.py`), if they are.
    """

    executable: Executable[Any]
    program: Program
    reference: Callable[[Mapping[str, Any]], dict[str, Any]]
    report: CompileReport
    index_ranges: Callable[[], Ranges]
    lists: Lists
    again: Callable[..., Lowered]
    plain: Callable[[Mapping[str, Any]], dict[str, Any]]
    graph: Graph
    rounded: bool = False
    derivations: bytes = b""

    def tell(self) -> None:
        """Log a summary."""
        program, report = self.program, self.report
        name, made = program.signature.name, (len(program.sites), report.compiled, report.cached)
        seconds = sum(report.seconds.values())
        log.info("%s: %d launches; %d modules compiled, %d found; %.2f s", name, *made, seconds)


@collector_paused(lasting=True)
def run_pipeline(
    source: Any, dims: Mapping[str, Dim] | None, threads: int | str, progress: Progress,
    options: KernelOptions = PLAIN, operators: Any = None, precision: Any = None,
    made_by: str | None = None, limit: MemoryLimit | None = None, form: Form = PLAIN_FORM,
    devices: Mapping[str, DeviceTarget] | None = None, placement: Any = None,
    engines: Mapping[str, str | Engine] | None = None, fallback: bool = False, ragged: Any = None,
) -> Compiled:  # fmt: skip
    """Compile a source to native code by target `made_by`; see `anydim.compile` for the arguments.

    `engines` are the entries of `devices` that are engines. With `fallback`, onnxruntime runs nodes
    that cannot be imported. `ragged` are the dims of `passes/ragged`, if any.

    A program whose memory exceeds the limit is rejected before code generation.
    """
    threads = known_threads(threads)
    work = Work(progress, _STAGES + bool(devices or engines or placement is not None))
    options = _options(source, options, precision)

    notes: tuple[str, ...] = ()

    def imported() -> Graph:
        nonlocal notes
        made = read(source, dims, operators, fallback)
        wanted = frontend_of(source).ragged(source) if ragged is None else ragged
        if wanted is not None:
            rows = import_module("anydim.compiler.passes.ragged.rows").RaggedRows(wanted)
            made, notes = rows.run(made)
        return verify(Results().run(made))

    graph = work.timed("import", imported)
    work.stage("import", lambda: print_graph(graph), (graph,))
    plain = graph
    options = _with_nodes(options, precision, graph)
    if options.precision == TF32:
        devices = {name: each.rounding() for name, each in (devices or {}).items()}
    taken: Mapping[str, Engine] = {}
    if devices or engines or placement is not None or _names_devices(graph):
        placing = import_module("anydim.compiler.device_placement")
        probe = partial(run_pipeline, dims=None, threads=threads, progress=_silent)
        tried = partial(probe, options=options, made_by=made_by, form=form, engines=engines)
        given = (placement, devices or {}, engines or {}, threads, f"{options}")
        request = placing.PlacementRequest(*given)
        graph, taken = placing.placed_graph(graph, request, work, probe, tried)
    else:
        work.stages["placed"] = partial(_unplaced_text, graph)
    code = target(settings.target if made_by is None else made_by)
    code = replace(code, templates=(*form.templates, *code.templates))
    options = replace(options, pads=known_pads(form.pads, graph.box))
    with code.compiling(code.processor, 0) as background:
        begin_host(code, background)
        begun = partial(begin, target=code, work=background)
        on = _On(code, devices or {}, taken)
        store = Store(background.beside)
        lowered = _lowered(graph, on, options, threads, work, begun, store, notes)
        if limit is not None:
            limit.check(lowered.made.program)
        others = (background, on.devices, taken)
        built = work.timed("native", lambda: build(lowered.made, code, *others))
    weights, structure = frontend_of(source).weights(source, plain)
    derivations = write_record(store.derivations(), weights, structure) if weights else b""
    forget_results()
    work.watch.print_times(work.seconds)
    report = work.report(lowered, built)

    def again(other: Target, cores: int = threads) -> Lowered:
        same = (code.machine, code.templates, threads)
        if (other.machine, other.templates, cores) == same:
            return lowered
        with collector_paused():
            quiet = Work(_silent, _STAGES)
            elsewhere = _On(other, on.devices, taken)
            return _lowered(graph, elsewhere, options, cores, quiet, lambda kernel: None, Store())

    rounded = options.precisions & {BFLOAT16, BFLOAT16X2, INT8}
    return Compiled(
        built.executable, lowered.made.program, _reference(plain, float64), report,
        partial(index_ranges, plain), plain.lists, again,
        _rounded_reference(plain, INT8 in rounded) if rounded else _reference(plain),
        plain, bool(rounded), derivations,
    )  # fmt: skip


def _names_devices(graph: Graph) -> bool:
    """Whether nodes of a graph or its nested graphs are not on the host."""
    return any(
        node.device or isinstance(node.region, Foreign)
        or (node.region is not None and any(map(_names_devices, node.region.held.values())))
        for node in graph.nodes
    )  # fmt: skip


def _unplaced_text(graph: Graph) -> str:
    """The text of a graph on the host only, for `show("placed")`."""
    placed = import_module("anydim.compiler.passes.assign_devices").Placed(graph)
    text: str = import_module("anydim.compiler.passes.placement").placed_text(placed)
    return text


@dataclass(frozen=True)
class _On:
    """Targets of code: the host's, and the devices that parts are on; `engines` run parts as
    exported models."""

    host: Target
    devices: Mapping[str, DeviceTarget]
    engines: Mapping[str, Engine] = field(default_factory=dict)

    def __call__(self, part: Part) -> Target:
        """The target that compiles a part."""
        return self.targets[part.device] if part.device else self.host

    @property
    def targets(self) -> dict[str, Target]:
        """The target of each device.

        If the host's target is for another processor than this one, devices that run code of its
        kind use it, too.
        """
        host = self.host
        return {
            name: host
            if (each.target.name, NATIVE) == (host.name, each.target.processor.name)
            and host.processor.name != NATIVE
            else each.target
            for name, each in self.devices.items()
        }


def _lowered(
    graph: Graph, on: _On, options: KernelOptions, threads: int, work: Work,
    begun: Callable[[Kernel | Library], None], store: Store, about: tuple[str, ...] = (),
) -> Lowered:  # fmt: skip
    """Run all passes on a graph; `begun` receives each kernel of the host as soon as it exists.

    Raises DeviceError for parts on a device that is not given.
    """
    code = on.host
    if not (on.devices or on.engines):
        graph = ImageTurns(options.precision).run(graph)
    ordered = frozenset(name for name, each in on.devices.items() if each.target.ordered)
    cutting = Segment(Recur(code.machine).run, ordered)
    cuts = work.timed("segment", lambda: cutting.run(graph))
    missing = [device for device in devices_of(cuts) if device not in {**on.devices, **on.engines}]
    if missing:
        unknown = import_module("anydim.runtime.devices.table").unknown_device
        raise unknown(graph.name, missing, tuple(on.devices))
    work.stage("segment", partial(cut_text, cuts))
    every = [part for cut in cuts for part in cut.parts]
    parts: Sequence[Part] = [part for part in every if part.device not in on.engines]
    passes = _Passes(on, options, threads, work, begun, store, straight(cuts), list(about))
    parts, fused, scheduled = passes.compile(parts)
    made = work.timed(
        "assemble",
        lambda: _assembled(cuts, parts, fused, scheduled, threads, options, store, on),
    )
    work.stage("schedule", lambda: parts_text(scheduled, schedule_text))
    work.stage("kernels", kernel_texts(made.kernels.values(), scheduled))
    work.stage("program", made.program.text)
    work.stage("host", lambda: host_text(made.program))
    work.stage("llvm", llvm_texts(made, code))
    work.stages["assembly"] = assembly_texts(made, code)
    nodes = sum(len(cut.graph.nodes) for cut in cuts)
    items = tuple(item for items in scheduled for item in items)
    targets = on.targets
    devices = {name: targets[name] for name in made.program.devices}
    return Lowered(made, nodes, items, tuple(passes.found), devices)


def _options(source: Any, options: KernelOptions, precision: Any) -> KernelOptions:
    """The given options, or those in the text of the source."""
    if options is PLAIN:
        found = frontend_of(source).schedules(source)
        options = given_options(found.text, found.definitions).get(found.name, PLAIN)
    if precision is None or _is_by_node(precision):
        return options
    return replace(options, precision=known_precision(precision))


def _is_by_node(precision: Any) -> bool:
    """Whether nodes have precisions of their own."""
    return isinstance(precision, Mapping) or (isinstance(precision, str) and "=" in precision)


def _with_nodes(options: KernelOptions, precision: Any, graph: Graph) -> KernelOptions:
    """The options with the precisions of nodes, if the precision names some."""
    if not _is_by_node(precision):
        return options
    found: KernelOptions = import_module("anydim.compiler.passes.node_precisions").with_precisions(
        options, precision, graph
    )
    return found


@dataclass(frozen=True)
class _Passes:
    """All passes and `schedule`, on parts; `straight`: the graph is one part. Notes are `found`."""

    on: _On
    options: KernelOptions
    threads: int
    work: Work
    begun: Callable[[Kernel | Library], None]
    store: Store
    straight: bool
    found: list[str]
    launched: dict[str, dict[Any, Any]] = field(default_factory=lambda: defaultdict(dict))

    def compile(
        self, parts: Sequence[Part]
    ) -> tuple[Sequence[Part], Sequence[Graph], Sequence[Launches]]:
        """Return parts, a setup before the one it is split from, what they became, launches."""
        if len(parts) == 1 or self.options.schedules:
            return self._compile(parts)
        made = compile_parts(parts, lambda some: [*zip(*self._compile(some)[1:])])
        return parts, [graph for graph, _ in made], [launches for _, launches in made]

    def _compile(
        self, parts: Sequence[Part]
    ) -> tuple[Sequence[Part], Sequence[Graph], Sequence[Launches]]:
        fused = [add_guards(part.graph) if part.opaque else part.graph for part in parts]
        for entry in PASSES:
            parts, fused = self._run(entry, parts, fused)
        fused = self.work.timed("shared_panels", lambda: self._share_panels(parts, fused))
        scheduled = self.work.timed("schedule", lambda: self._schedule(parts, fused))
        return parts, fused, scheduled

    def _run(
        self, entry: Pass, parts: Sequence[Part], graphs: list[Graph]
    ) -> tuple[Sequence[Part], list[Graph]]:
        targets, options = {part.device: self.on(part) for part in parts}, self.options
        made = {d: entry.make(t.machine, t.templates, options) for d, t in targets.items()}
        run = {device: each.run for device, each in made.items()}
        if entry.splits and self.straight and not parts[0].opaque:
            split = partial(_split, made[""].split, parts, graphs)
            parts, fused = self.work.timed(entry.name, split)
        else:
            fused = self.work.timed(entry.name, partial(_on_parts, run, parts, graphs))
            self.found.extend(folded_note(graphs, fused) if entry.folds else ())
        notes = tuple(chain(*(getattr(each, "notes", ()) for each in made.values())))
        self.work.stage(entry.name, partial(parts_text, fused, print_graph, notes), fused)
        self.found.extend(notes)
        if entry.decides_libraries:
            own = [g for part, g in zip(parts, fused) if not (part.opaque or part.device)]
            host = self.on.host
            begin_libraries(own, host.machine, host.templates, self.begun, options.precision)
        return parts, fused

    def _share_panels(self, parts: Sequence[Part], graphs: Sequence[Graph]) -> list[Graph]:
        """The graphs, in which gathers on the host read the panels of products."""
        host = [number for number, part in enumerate(parts) if not (part.opaque or part.device)]
        sharing = SharedPanels(self._machine(self.on.host, ""), self.on.host.templates)
        made = dict(zip(host, sharing.run([graphs[number] for number in host])))
        return [made.get(number, graph) for number, graph in enumerate(graphs)]

    def _machine(self, code: Target, device: str) -> Machine:
        """The machine of code with the threads that share its kernels."""
        return replace(code.machine, threads=0 if device or self.threads == 1 else self.threads)

    def _schedule(self, parts: Sequence[Part], graphs: Sequence[Graph]) -> list[Launches]:
        made, threads = [], self.threads
        first = {part.device: part for part in parts}
        tuned = {d: tuned_for(self.on(part), 1 if d else threads) for d, part in first.items()}
        for part, graph in zip(parts, graphs):
            code, receiver = self.on(part), _unheard if part.device else self.begun
            known = (self._machine(code, part.device), code.templates, self.options)
            kept = (tuned[part.device], self.launched[part.device])
            dense = Schedule(*known, part.counter, receiver, self.store.constant, *kept)
            made.append((Opaque(*known) if part.opaque else dense).run(graph))
        unmet(self.options, [item for items in made for item in items])
        return made


def _on_parts(
    run: Mapping[str, Callable[[Graph], Graph]], parts: Sequence[Part], graphs: Sequence[Graph]
) -> list[Graph]:
    """Run a pass, by device, on the graphs of all parts except opaque ones."""
    return [graph if part.opaque else run[part.device](graph) for part, graph in zip(parts, graphs)]


def _split(
    split: Callable[[Graph], tuple[Graph, ...]], parts: Sequence[Part], graphs: Sequence[Graph]
) -> tuple[list[Part], list[Graph]]:
    """Split the only part of a straight program into its setup, if any, and the rest."""
    (part,), (graph,) = parts, graphs
    *setup, graph = split(graph)
    return [*(Part(each, setup=True) for each in setup), part], [*setup, graph]


def _silent(stage: str, done: int, total: int) -> None:
    """Ignore progress."""


def _unheard(kernel: Kernel | Library) -> None:
    """Ignore kernels of devices, which are compiled together at the end."""


def _assembled(
    cuts: Sequence[Cut],
    parts: Sequence[Part],
    graphs: Sequence[Graph],
    scheduled: Sequence[tuple[Scheduled | Alias, ...]],
    threads: int,
    options: KernelOptions,
    store: Store,
    on: _On,
) -> Assembled:
    """Assemble the program; `graphs` are the parts after all passes."""
    linked = {}
    before: list[tuple[Graph, Sequence[Scheduled | Alias]]] = []
    for part, graph, items in zip(parts, graphs, scheduled):
        if part.setup:
            before.append((graph, items))
            continue
        for each in before:
            graph, items = join_setup(*each, graph, items)
        outer = graph.replace(types={**graph.types, **_named_types(part.graph)})
        sources = tuple(node.source for node in part.graph.nodes)
        workers = on.devices[part.device].device.workers if part.device else threads
        setups = straight(cuts)
        assemble = Assemble(workers, sources, store, options.memory, part.device, setups)
        segment = assemble.run(outer, items)
        declared = replace(segment.signature, box=part.graph.box)  # errors show declared bounds
        segment = replace(segment, signature=declared)
        linked[id(part)] = Linked(segment, graph.guards)
    given = [part for cut in cuts for part in cut.parts if part.device in on.engines]
    if given:
        delegate = import_module("anydim.compiler.passes.delegate_step").Delegate(store)
        for part in given:
            step = delegate.run(part.device, part.graph)
            linked[id(part)] = Linked(step, add_guards(part.graph).guards)
    program = Link(store, threads).run(cuts, linked)
    return Assembled(program, store.kernels, store.arrays, store.packings)


def _named_types(graph: Graph) -> dict[str, Any]:
    return {name: graph.types[name] for name in (*graph.inputs, *graph.outputs)}


def _reference(
    graph: Graph, precision: DType | None = None
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """The graph's meaning by the numpy evaluator, in a float precision or in its own types.

    For lists, both arrays.
    """
    plain = graph.replace(lists={})
    return lambda inputs: evaluate(plain, inputs, precision=precision)


def _rounded_reference(graph: Graph, bytes_: bool) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """`_reference` with factors rounded to bfloat16, or to int8."""

    def run(inputs: Mapping[str, Any]) -> dict[str, Any]:
        module = import_module("anydim.compiler.graph.round_products")
        return _reference(module.round_products(graph, bytes_))(inputs)

    return run
