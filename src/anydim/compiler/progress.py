"""Progress and report of a compilation: times, texts of stages, schedules."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import chain
from typing import Any

from anydim.base import log
from anydim.base.amounts import bytes_text
from anydim.base.records import dataclass
from anydim.base.sheet import Sheet, Shown, Table
from anydim.base.text import count_of
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.kernels.ir import Kernel
from anydim.compiler.kernels.ir_text import print_kernel
from anydim.compiler.kernels.schedule import parse_schedule
from anydim.compiler.native.build import Assembled, Built, module_texts
from anydim.compiler.passes.pass_watch import Watch
from anydim.compiler.passes.schedule import Alias, Scheduled
from anydim.compiler.targets.target import Target
from anydim.lang.surface.printer import print_statement
from anydim.runtime.program.compile_report import Chosen, CompileReport, KernelTexts
from anydim.sizes import Size

Progress = Callable[[str, int, int], None]


_HEADERS = ("kernel", "schedule", "reason")


class Schedules(Shown, Mapping[str, Any]):
    """The schedules of a function's kernels by what they make; printed, they are options."""

    def __init__(self, function: str, chosen: Sequence[Chosen]) -> None:
        self.function = function
        self.reasons: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        for kernel in chosen:
            name = kernel.results[-1].rsplit("/", 1)[-1].rstrip("'")
            self._texts[name] = kernel.schedule
            self.reasons[name] = kernel.reason

    def __getitem__(self, name: str) -> Any:
        return parse_schedule(self._texts[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __str__(self) -> str:
        return "\n".join(
            f"{self.function}.{name}: {text}  # {self.reasons[name]}"
            for name, text in self._texts.items()
        )

    def _sheet(self) -> Sheet:
        rows = [(name, text, self.reasons[name]) for name, text in self._texts.items()]
        return Sheet(f"schedules of {self.function}", (), (Table(_HEADERS, rows, len(_HEADERS)),))


@dataclass(frozen=True)
class Lowered:
    """A graph lowered to a program: its launches, and notes of passes.

    `devices` are the targets of the devices that parts run on.
    """

    made: Assembled
    nodes: int
    items: tuple[Scheduled | Alias, ...]
    found: tuple[str, ...] = ()
    devices: Mapping[str, Target] = field(default_factory=dict)

    @property
    def launches(self) -> list[Scheduled]:
        return [item for item in self.items if isinstance(item, Scheduled)]

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines on fusion and on values that alias others."""
        launches = self.launches
        return (
            f"{count_of(self.nodes, 'node')} fused into {count_of(len(launches), 'launch', 'es')}, "
            f"{count_of(len(self.items) - len(launches), 'view')} of the same bytes",
            *self.found,
            *(f"{item.template}: {item.source}" for item in launches),
        )


class Work:
    """Times the `total` stages of one compilation and keeps their texts."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.progress = progress
        self.notes: tuple[str, ...] = ()
        self.seconds: dict[str, float] = {}
        self.stages: dict[str, Callable[[], str]] = {}
        self.watch = Watch()
        self.total = total

    def stage(self, name: str, text: Callable[[], str], graphs: Sequence[Graph] = ()) -> None:
        """Keep the text of a stage, and verify and dump it as configured."""
        self.stages[name] = text
        self.watch.stage(name, text, graphs)

    def tell(self, what: str) -> None:
        """Report a step within a stage, which may take seconds."""
        log.info("%s", what)
        self.progress(what, len(self.seconds), self.total)

    def timed(self, stage: str, work: Callable[[], Any]) -> Any:
        self.progress(stage, len(self.seconds), self.total)
        start = time.perf_counter()
        result = work()
        self.seconds[stage] = time.perf_counter() - start
        if len(self.seconds) == self.total:
            self.progress("done", self.total, self.total)
        return result

    def report(self, lowered: Lowered, built: Built) -> CompileReport:
        chosen = tuple(
            Chosen(item.writes, item.launch.schedule, item.launch.reason)
            for item in lowered.launches
        )
        return CompileReport(
            self.seconds, self.stages, (*self.notes, *lowered.notes), built.compiled, built.cached,
            chosen, lowered.made.kernels,
        )  # fmt: skip


def folded_note(before: Iterable[Graph], after: Iterable[Graph]) -> tuple[str, ...]:
    """A line on the values that a pass made constants; none where there are no such values."""
    known = {name for graph in before for name in graph.constants}
    made = {n: c for graph in after for n, c in graph.constants.items() if n not in known}
    if not made:
        return ()
    taken = bytes_text(sum(constant.nbytes for constant in made.values()))
    return (f"{count_of(len(made), 'value')} of constants alone folded: {taken}",)


def parts_text(items: Sequence[Any], text: Callable[[Any], str], notes: Sequence[str] = ()) -> str:
    """The text of each part, numbered if several, after notes."""
    header = "".join(f"# {note}\n" for note in notes)
    if len(items) == 1:
        return header + text(items[0])
    parts = (f"# part {number}\n{text(item)}" for number, item in enumerate(items))
    return header + "\n".join(parts)


def kernel_texts(
    kernels: Iterable[Kernel], scheduled: Sequence[tuple[Scheduled | Alias, ...]]
) -> KernelTexts:
    """Each kernel, with what its parameters are in the launches of all parts."""

    def texts() -> dict[str, Callable[[], str]]:
        launches: dict[str, list[tuple[Size, ...]]] = defaultdict(list)
        for item in chain(*scheduled):
            if isinstance(item, Scheduled):
                launches[item.launch.kernel.name].append(item.launch.sizes)
        return {each.name: partial(print_kernel, each, launches[each.name]) for each in kernels}

    return KernelTexts(texts)


def llvm_texts(made: Assembled, code: Target) -> KernelTexts:
    """Every module, by name."""

    def texts() -> dict[str, Callable[[], str]]:
        found = module_texts(made, code)
        return {name: partial("; {}\n{}".format, name, text) for name, text in found.items()}

    return KernelTexts(texts)


def schedule_text(scheduled: tuple[Scheduled | Alias, ...]) -> str:
    """The text of each launch with its statements."""
    lines = []
    for item in scheduled:
        if isinstance(item, Alias):
            lines.append(f"'{item.target}' is the bytes of '{item.source}'")
            continue
        lines.append(f"{item.launch.kernel.name}: {item.launch.schedule}  # {item.source}")
        lines += [f"    {print_statement(statement)}" for statement in item.group.statements]
    return "\n".join(lines)
