"""The whole compiler on one screen: source -> graph -> passes -> program -> native code.

`PASSES` is THE list: each pass, why it stands where it stands, and what holds after it. To add a
pass, write a frozen dataclass with `run(graph) -> graph` in `passes/` and add one line here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from anydim.base.collector import collector_paused
from anydim.base.dtypes import float64
from anydim.base.errors import OptionError
from anydim.frontends.source import read
from anydim.graph.evaluate import evaluate
from anydim.graph.indices import index_ranges
from anydim.graph.nodes import Graph
from anydim.graph.text import print_graph
from anydim.graph.verify import verify
from anydim.kernels.launch import Machine
from anydim.kernels.template import Template
from anydim.kernels.templates import TEMPLATES
from anydim.kernels.text import print_kernel
from anydim.lang.printer import print_statement
from anydim.passes.assemble import Assemble
from anydim.passes.fuse import Fuse
from anydim.passes.inline import Inline
from anydim.passes.lower import Lower
from anydim.passes.results import Results
from anydim.passes.schedule import Alias, Schedule, Scheduled
from anydim.passes.simplify import Simplify
from anydim.passes.units import Units
from anydim.passes.views import Views
from anydim.program.build import Built, build, module_texts
from anydim.program.differential import Ranges
from anydim.program.steps import Program
from anydim.runtime.executable import Executable
from anydim.sizes import Dim
from anydim.targets.target import Target
from anydim.targets.targets import target

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Pass:
    """A line of the list. `make` builds the pass for a machine and its kernel templates."""

    name: str
    why_here: str
    after: str
    make: Callable[[Machine, tuple[Template, ...]], Any]


PASSES: tuple[Pass, ...] = (
    Pass(
        "lower", "first: every later pass thinks in comprehensions, not in operators",
        "each node is one statement; numbers are literals", lambda m, t: Lower(),
    ),
    Pass(
        "simplify", "before views and fusion: what disappears here need not be moved or fused",
        "no rule fits anywhere, nothing is computed twice or from constants alone",
        lambda m, t: Simplify(),
    ),
    Pass(
        "units", "before views: a loop that runs once hides that two loops are the same",
        "no intermediate value has a dimension of size 1", lambda m, t: Units(),
    ),
    Pass(
        "views", "before fusion: statements that only move data would keep others apart",
        "transposes, slices, reshapes and expands are positions in the reads of others",
        lambda m, t: Views(),
    ),
    Pass(
        "inline", "after views: a reduction reads its operands where they really lie",
        "no reduction reads a pointwise value that nobody else needs", lambda m, t: Inline(),
    ),
    Pass(
        "fuse", "last on the graph: it needs the statements as they will run",
        "each node is a group that one kernel template takes", lambda m, t: Fuse(m, t),
    ),
)  # fmt: skip
# then, from graph to program:
#   schedule   groups -> launches of kernels, equal groups sharing one kernel
#   assemble   lifetimes -> arena offsets as formulas; packed constants; host steps
#   native     one host module, one object per kernel and micro-kernel library, linked


@dataclass(frozen=True)
class CompileReport:
    """How a model was compiled.

    `seconds` is the time of each pass in order; `stages` prints each stage when asked; `notes`
    are lines on what was fused and which shape arithmetic disappeared; `compiled` and `cached`
    count the native modules made now and found on disk.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    stages: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    compiled: int = 0
    cached: int = 0


@dataclass(frozen=True)
class Compiled:
    """What a compilation gives: native code, the program it came from, and its meaning."""

    executable: Executable
    program: Program
    reference: Callable[[Mapping[str, Any]], dict[str, Any]]
    report: CompileReport
    index_ranges: Callable[[], Ranges]


@collector_paused()
def compile_source(
    source: Any, dims: Mapping[str, Dim] | None, threads: int, progress: Progress
) -> Compiled:
    """Source to native code; `model.compile` says what the arguments are."""
    if not isinstance(threads, int) or threads < 1:
        raise OptionError(f"threads is {threads!r}", "give the number of cores to use, 1 or more")
    work = _Work(progress)
    graph = work.timed("import", lambda: verify(Results().run(read(source, dims))))
    code = target("llvm")
    machine = code.machine()
    fused = graph
    work.printed("import", graph)
    for entry in PASSES:
        fused = work.timed(entry.name, partial(entry.make(machine, TEMPLATES).run, fused))
        work.printed(entry.name, fused)
    scheduled = work.timed("schedule", lambda: Schedule(machine, TEMPLATES).run(fused))
    outer = fused.replace(types={**fused.types, **_named_types(graph)}, guards=fused.guards)
    sources = tuple(node.source for node in graph.nodes)
    program = work.timed("assemble", lambda: Assemble(threads, sources).run(outer, scheduled))
    built = work.timed("native", lambda: build(program, code))
    work.stages["kernels"] = lambda: "\n".join(print_kernel(k) for k in program.kernels)
    work.stages["schedule"] = lambda: _schedule_text(scheduled)
    work.stages["llvm"] = lambda: _llvm_text(program, code)
    report = work.report(graph, scheduled, built)
    ranges = partial(index_ranges, graph)
    return Compiled(built.executable, program, _reference(graph), report, ranges)


class _Work:
    """Times the stages of one compilation and keeps what they would print."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}
        self.stages: dict[str, Callable[[], str]] = {}
        self.total = len(PASSES) + 4

    def timed(self, stage: str, work: Callable[[], Any]) -> Any:
        self.progress(stage, len(self.seconds), self.total)
        start = time.perf_counter()
        result = work()
        self.seconds[stage] = time.perf_counter() - start
        if len(self.seconds) == self.total:
            self.progress("done", self.total, self.total)
        return result

    def printed(self, stage: str, graph: Graph) -> None:
        """Keep the graph as it stands after a stage, to be printed when somebody asks."""
        self.stages[stage] = partial(print_graph, graph)

    def report(
        self, graph: Graph, scheduled: tuple[Scheduled | Alias, ...], built: Built
    ) -> CompileReport:
        launches = [item for item in scheduled if isinstance(item, Scheduled)]
        notes = [
            f"{len(graph.nodes)} nodes became {len(launches)} launches;"
            f" {len(scheduled) - len(launches)} values are other values' bytes",
            *(f"{item.template}: {item.source}" for item in launches),
        ]
        return CompileReport(
            self.seconds, self.stages, tuple(notes), built.compiled, built.cached
        )


def _named_types(graph: Graph) -> dict[str, Any]:
    return {name: graph.types[name] for name in (*graph.inputs, *graph.outputs)}


def _reference(graph: Graph) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """The graph's meaning by the numpy evaluator, in float64."""
    return lambda inputs: evaluate(graph, inputs, precision=float64)


def _llvm_text(program: Program, code: Target) -> str:
    texts = module_texts(program, code)
    return "\n".join(f"; {name}\n{text}" for name, text in texts.items())


def _schedule_text(scheduled: tuple[Scheduled | Alias, ...]) -> str:
    lines = []
    for item in scheduled:
        if isinstance(item, Alias):
            lines.append(f"'{item.target}' is the bytes of '{item.source}'")
            continue
        lines.append(f"{item.launch.kernel.name}: {item.launch.schedule}  # {item.source}")
        lines += [f"    {print_statement(statement)}" for statement in item.group.statements]
    return "\n".join(lines)

