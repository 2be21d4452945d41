"""Launches -> a segment: buffers, arena offsets, packed constants, sites.

After: every operand of every site is a buffer with a known location: an argument of the call, a
constant, or an offset in the arena as a size expression. Kernels and arrays are in a store that all
segments of a program share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field, replace

import numpy

from anydim.base.dtypes import from_numpy
from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.compiler.graph.derivations import Derivation, InPanels
from anydim.compiler.graph.nodes import Constant, Graph
from anydim.compiler.kernels.ir import Kernel
from anydim.compiler.kernels.launch import STATUS_TENSOR
from anydim.compiler.passes.canonical_groups import IndexCheck
from anydim.compiler.passes.in_place import in_place, updates
from anydim.compiler.passes.memory import STACKED, ArenaPlan, Lifetime, Planner
from anydim.compiler.passes.schedule import Alias, Scheduled
from anydim.compiler.passes.setups import Setup, with_setups
from anydim.lang.tree import TensorType
from anydim.runtime.packing import Work, allocate_packed
from anydim.runtime.pages import Pages
from anydim.runtime.panels import Packing
from anydim.runtime.positions import Position
from anydim.runtime.program.program import Constant as Held
from anydim.runtime.program.recipe import Recipe
from anydim.runtime.program.segment import ALIGNMENT, Buffer, Segment, Site
from anydim.runtime.program.segment import Setup as Record
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Box, Size, align_up, as_size, product, simplify

_GAP = 2048  # bytes: hardware prefetch reads lines ahead that another core writes (false sharing)


@dataclass(frozen=True)
class Assemble:
    """Build a segment for `threads` threads.

    Each launch that checks indices gets an operand with an 8-byte slot for each check; `sources`
    names the nodes the checks came from. Kernels and constants go into `store`; `memory` lays out
    the arena; `device` is the segment's device. With `setups`, launches that read no input become
    setups.
    """

    threads: int = 1
    sources: tuple[str, ...] = ()
    store: Store = field(default_factory=lambda: Store())
    memory: Planner = STACKED
    device: str = ""
    setups: bool = False

    def run(self, graph: Graph, scheduled: Sequence[Scheduled | Alias]) -> Segment:
        """`graph` has the signature and the constants, `scheduled` the launches in order."""
        names = _Names(graph, scheduled)
        launches = [item for item in scheduled if isinstance(item, Scheduled)]
        setups: tuple[Setup, ...] = ()
        if self.setups:
            launches, setups = with_setups(launches, names.root, names.bytes, graph)
        names.kept = {value: size for setup in setups for value, size in setup.values.items()}
        if self.memory.in_place:
            names.put_in_place(launches)
        gap = _GAP if self.threads > 1 and not self.device else 0
        scratch = [_scratch(item, graph.box, gap) for item in launches]
        spaces = _workspaces(scratch, self.threads, {*graph.types, *names.types})
        lifetimes = [*names.lifetimes(launches), *spaces.values()]
        plan = self.memory.run(lifetimes, graph.box, graph.guards)
        constants: dict[str, None] = {}
        statuses: list[Buffer] = []
        positions: list[Position] = []
        sites = []
        for number, item in enumerate(launches):
            status = Buffer(
                f"status {len(statuses)}", "status", as_size(8 * len(item.checks)),
                as_size(8 * len(positions)),
            )  # fmt: skip
            if any(argument.tensor == STATUS_TENSOR for argument in item.launch.arguments):
                statuses.append(status)
                positions += [self._position(check, item, graph) for check in item.checks]
            site = self._site(item, names, graph, constants, status.name)
            if number in spaces:
                site = replace(site, scratch=scratch[number], workspace=spaces[number].name)
            sites.append(site)
        held = [self.store.constants[name] for name in constants]
        return Segment(
            signature=_signature(graph),
            buffers=(
                *_buffers(graph, held),
                *_arena(lifetimes, names, plan),
                *statuses,
                *names.setup(),
            ),
            sites=tuple(sites),
            constants=tuple(constants),
            arena_bytes=plan.bytes,
            threads=self.threads,
            positions=tuple(positions),
            updates=names.updates(launches),
            device=self.device,
            setups=tuple(
                Record(each.dims, each.launches, each.bytes, tuple(each.values), each.min_shared)
                for each in setups
            ),
        )

    def _position(self, check: IndexCheck, item: Scheduled, graph: Graph) -> Position:
        source = self.sources[check.node] if check.node < len(self.sources) else item.source
        indices = check.indices if check.indices in graph.inputs else ""
        return Position(source, check.tensor, check.size, check.from_end, indices)

    def _site(
        self, item: Scheduled, names: _Names, graph: Graph, constants: dict[str, None],
        status: str,
    ) -> Site:  # fmt: skip
        operands = []
        for argument in item.launch.arguments:
            if argument.tensor == STATUS_TENSOR:
                operands.append(status)
                continue
            if argument.words:
                operands.append(self.store.words(argument.tensor, argument.words))
                constants[operands[-1]] = None
                continue
            value = item.values[argument.tensor]
            if value in graph.constants:
                name = self.store.constant(value, graph.constants[value], argument.packing)
                constants[name] = None
                operands.append(name)
            else:
                operands.append(names.root(value))
        launch = item.launch
        return Site(
            kernel=self.store.kernel(launch.kernel),
            recipe=self.store.recipe(item.recipe),
            operands=tuple(operands),
            sizes=launch.sizes,
            parallel=launch.parallel,
            grain=as_size(launch.grain),
            source=item.source,
            flops=launch.flops,
            moved=launch.moved,
            schedule=launch.schedule,
            reason=launch.reason,
            versions=launch.versions,
        )


class Store:
    """Kernels, recipes and constants of a program, each once, under unique names.

    `later` receives the work that fills packed constants.
    """

    def __init__(self, later: Callable[[Work], None] = lambda work: work()) -> None:
        self.later = later
        self.kernels: dict[str, Kernel] = {}
        self.arrays: dict[str, numpy.ndarray] = {}
        self.constants: dict[str, Held] = {}
        self.packings: dict[str, Packing] = {}
        self.recipes: dict[Recipe, int] = {}
        self._names: dict[tuple[Constant, Packing | None], str] = {}
        self._words: dict[tuple[int, ...], Constant] = {}
        self._pages = Pages()

    def kernel(self, kernel: Kernel) -> str:
        """The name of a kernel."""
        if self.kernels.setdefault(kernel.name, kernel).identity != kernel.identity:
            raise InternalError(f"two kernels of a program are named '{kernel.name}'")
        return kernel.name

    def recipe(self, recipe: Recipe) -> int:
        """The number of a recipe."""
        return self.recipes.setdefault(recipe, len(self.recipes))

    def constant(self, value: str, constant: Constant, packing: Packing | None = None) -> str:
        """The name of the constant `value` in the layout `packing` that a kernel expects."""
        origin = constant.origin
        if isinstance(origin, Derivation) and isinstance(origin.step, InPanels):
            return self.constant(value, origin.inputs[0], origin.step.packing)
        key = (constant, packing)
        if key not in self._names:
            kind = "" if packing is None else f"/panels{packing.width}"
            name = fresh(f"{value}{kind}", self.arrays)
            if packing is None:
                array = numpy.require(constant.elements, None, ("C", "A"))
            else:
                given = lambda: constant.elements  # noqa: E731
                array, work = allocate_packed(given, constant.dtype, packing, self._pages)
                self.packings[name] = packing
                self.later(work)
            self.arrays[name], self._names[key] = array, name
            self.constants[name] = Held(name, from_numpy(array.dtype), array.shape)
        return self._names[key]

    def derivations(self) -> dict[str, tuple[Constant, Packing | None]]:
        """What each array is made of."""
        return {name: key for key, name in self._names.items()}

    def words(self, name: str, words: tuple[int, ...]) -> str:
        """The name of a constant array of 64-bit integers that a launch provides."""
        held = self._words.setdefault(words, Constant(numpy.array(words, numpy.int64)))
        return self.constant(name, held)


def fresh(name: str, taken: Collection[str]) -> str:
    """The name, with a numeric suffix if it is taken."""
    number, found = 1, name
    while found in taken:
        number, found = number + 1, f"{name}/{number + 1}"
    return found


class _Names:
    """Maps values to buffers: aliases share one root, an output if there is one."""

    def __init__(self, graph: Graph, scheduled: Sequence[Scheduled | Alias]) -> None:
        self.graph = graph
        self.parent: dict[str, str] = {}
        self.types: dict[str, TensorType] = {}
        self.kept: dict[str, Size] = {}  # values of setups: offsets in their blocks
        for item in scheduled:
            if isinstance(item, Alias):
                source, target = self.root(item.source), self.root(item.target)
                if target in graph.outputs:
                    self.parent[source] = target
                else:
                    self.parent[target] = source
            else:
                for tensor in item.group.outputs:
                    self.types[item.values[tensor.name]] = tensor.type

    def root(self, value: str) -> str:
        while value in self.parent:
            value = self.parent[value]
        return value

    def bytes(self, value: str) -> Size:
        return _bytes(self.types[value])

    def setup(self) -> Iterator[Buffer]:
        """Buffers of the values that setups keep."""
        for name, offset in self.kept.items():
            kind = self.types[name]
            yield Buffer(name, "setup", _bytes(kind), offset, kind.dtype, kind.shape)

    def put_in_place(self, launches: Sequence[Scheduled]) -> None:
        """Let results reuse the buffer of a dying operand, where the kernel allows it."""
        own = {v: self.root(v) for item in launches for v in (*item.reads, *item.writes)}
        given = {*self.graph.inputs, *self.graph.constants}
        results = {*self.graph.outputs, *self.kept}
        types = {**self.graph.types, **self.types}
        size = lambda name: _bytes(types[name])  # noqa: E731
        for made, read in in_place(launches, own.__getitem__, given, results, size):
            if made in results:
                self.parent[self.root(read)] = made
            else:
                self.parent[made] = self.root(read)

    def updates(self, launches: Sequence[Scheduled]) -> tuple[tuple[str, str], ...]:
        """Pairs of result and input that may be the same array of the caller."""
        graph, types = self.graph, {**self.graph.types, **self.types}
        size = lambda name: _bytes(types[name])  # noqa: E731
        return tuple(updates(launches, self.root, graph.inputs, graph.outputs, size))

    def lifetimes(self, launches: Sequence[Scheduled]) -> list[Lifetime]:
        """The arena's values and their lifetimes in launch numbers."""
        spans: dict[str, tuple[int, int]] = {}
        outside = {*self.graph.inputs, *self.graph.outputs, *self.graph.constants, *self.kept}
        for number, item in enumerate(launches):
            for value in (*item.reads, *item.writes):
                root = self.root(value)
                if root not in outside:
                    first = spans.get(root, (number, number))[0]
                    spans[root] = (first, number)
        return [
            Lifetime(name, align_up(_bytes(self.types[name]), ALIGNMENT), first, last)
            for name, (first, last) in spans.items()
        ]


def _scratch(item: Scheduled, box: Box, gap: int) -> Size:
    """Scratch bytes per thread of a launch, with `gap` bytes between threads."""
    bytes = item.launch.scratch
    return simplify(align_up(bytes, ALIGNMENT) + gap, box) if bytes != 0 else bytes


def _workspaces(
    scratch: Sequence[Size], threads: int, taken: Collection[str]
) -> dict[int, Lifetime]:
    """Scratch of all threads, for each launch that has some, by launch number."""
    return {
        number: Lifetime(fresh(f"scratch {number}", taken), threads * bytes, number, number)
        for number, bytes in enumerate(scratch)
        if bytes != 0
    }


def _bytes(kind: TensorType) -> Size:
    return product(kind.shape) * kind.dtype.bytes


def _signature(graph: Graph) -> Signature:
    def specs(names: tuple[str, ...]) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(n, graph.types[n].dtype, graph.types[n].shape) for n in names)

    return Signature(
        name=graph.name,
        box=graph.box,
        inputs=specs(graph.inputs),
        outputs=specs(graph.outputs),
        guards=graph.guards,
    )


def _buffers(graph: Graph, constants: Sequence[Held]) -> list[Buffer]:
    buffers = [Buffer(n, "input", _bytes(graph.types[n])) for n in graph.inputs]
    buffers += [Buffer(n, "output", _bytes(graph.types[n])) for n in graph.outputs]
    return buffers + [Buffer(each.name, "constant", as_size(each.bytes)) for each in constants]


def _arena(lifetimes: Sequence[Lifetime], names: _Names, plan: ArenaPlan) -> Iterator[Buffer]:
    """Buffers of the arena: values in their exact sizes, and workspaces."""
    for value in lifetimes:
        kind, offset = names.types.get(value.name), plan.offsets[value.name]
        if kind is None:
            yield Buffer(value.name, "arena", value.bytes, offset)
        else:
            yield Buffer(value.name, "arena", _bytes(kind), offset, kind.dtype, kind.shape)
