"""Launches -> program: buffers, arena offsets, packed constants, host steps.

After: every operand of every step is a buffer with a known place: an argument of the call, a
constant, or an offset in the arena that is a size expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy

from anydim.graph.nodes import Constant, Graph
from anydim.kernels.ir import Kernel
from anydim.kernels.launch import STATUS_TENSOR, Packing
from anydim.kernels.product.packing import pack
from anydim.lang.tree import TensorType
from anydim.passes.memory import ArenaPlan, Lifetime, PlanMemory
from anydim.passes.schedule import Alias, Found, Scheduled
from anydim.program.steps import ALIGNMENT, Buffer, LaunchStep, Program
from anydim.runtime.pages import Pages
from anydim.runtime.positions import Position
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Box, Size, align_up, as_size, maximum, product, simplify


@dataclass(frozen=True)
class Assemble:
    """Put a program together for `threads` threads.

    Each launch that checks indices gets an operand with a word for each of its checks; `sources`
    names the nodes they came from. `packed` keeps constants for programs that share them.
    """

    threads: int = 1
    sources: tuple[str, ...] = ()
    packed: Packed = field(default_factory=lambda: Packed())

    def run(self, graph: Graph, scheduled: Sequence[Scheduled | Alias]) -> Program:
        """`graph` gives the signature and the constants, `scheduled` the launches in order."""
        names = _Names(graph, scheduled)
        launches = [item for item in scheduled if isinstance(item, Scheduled)]
        plan = PlanMemory().run(names.lifetimes(launches), graph.box)
        constants: dict[str, numpy.ndarray] = {}
        statuses: list[Buffer] = []
        positions: list[Position] = []
        steps = []
        for item in launches:
            status = Buffer(
                f"status {len(statuses)}", "status", as_size(8 * len(item.checks)),
                as_size(8 * len(positions)),
            )  # fmt: skip
            if any(argument.tensor == STATUS_TENSOR for argument in item.launch.arguments):
                statuses.append(status)
                positions += [self._position(check, item, graph) for check in item.checks]
            steps.append(self._step(item, names, graph, constants, status.name))
        return Program(
            signature=_signature(graph),
            buffers=(*_buffers(graph, names, plan, constants), *statuses),
            steps=tuple(steps),
            kernels=_distinct(item.launch.kernel for item in launches),
            constants=constants,
            arena_bytes=simplify(plan.bytes, graph.box),
            scratch_bytes=_scratch(launches, graph.box),
            threads=self.threads,
            positions=tuple(positions),
        )

    def _position(self, check: Found, item: Scheduled, graph: Graph) -> Position:
        source = self.sources[check.node] if check.node < len(self.sources) else item.source
        indices = check.indices if check.indices in graph.inputs else ""
        return Position(source, check.tensor, check.size, check.from_end, indices)

    def _step(
        self, item: Scheduled, names: _Names, graph: Graph, constants: dict[str, numpy.ndarray],
        status: str,
    ) -> LaunchStep:  # fmt: skip
        operands = []
        for argument in item.launch.arguments:
            if argument.tensor == STATUS_TENSOR:
                operands.append(status)
                continue
            value = item.values[argument.tensor]
            if value in graph.constants:
                operands.append(self._constant(value, argument.packing, graph, constants))
            else:
                operands.append(names.root(value))
        launch = item.launch
        return LaunchStep(
            kernel=launch.kernel.name,
            operands=tuple(operands),
            sizes=launch.sizes,
            parallel=launch.parallel,
            grain=launch.grain,
            scratch=launch.scratch,
            source=item.source,
            flops=launch.flops,
            moved=launch.moved,
            schedule=launch.schedule,
            reason=launch.reason,
        )

    def _constant(
        self, value: str, packing: Packing | None, graph: Graph,
        constants: dict[str, numpy.ndarray],
    ) -> str:  # fmt: skip
        name = value if packing is None else f"{value}/{_short(packing)}"
        if name not in constants:
            constants[name] = self.packed.array(graph.constants[value], packing)
        return name


class Packed:
    """Constants as programs take them, each once: contiguous, or packed for a kernel."""

    def __init__(self) -> None:
        self._known: dict[tuple[Constant, Packing | None], numpy.ndarray] = {}
        self._pages = Pages()

    def array(self, constant: Constant, packing: Packing | None) -> numpy.ndarray:
        key = (constant, packing)
        if key not in self._known:
            array = numpy.ascontiguousarray(constant.array)
            self._known[key] = array if packing is None else pack(array, packing, self._pages)
        return self._known[key]


class _Names:
    """Which buffer holds a value: aliases lead to one root, an output where there is one."""

    def __init__(self, graph: Graph, scheduled: Sequence[Scheduled | Alias]) -> None:
        self.graph = graph
        self.parent: dict[str, str] = {}
        self.types: dict[str, TensorType] = {}
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

    def lifetimes(self, launches: Sequence[Scheduled]) -> list[Lifetime]:
        """The arena's values and when each lives, counted in launches."""
        spans: dict[str, tuple[int, int]] = {}
        outside = {*self.graph.inputs, *self.graph.outputs, *self.graph.constants}
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


def _scratch(launches: Sequence[Scheduled], box: Box) -> Size:
    """The most scratch that any launch gives a thread."""
    sizes = [align_up(item.launch.scratch, ALIGNMENT) for item in launches]
    return simplify(maximum(0, *sizes), box)


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


def _buffers(
    graph: Graph, names: _Names, plan: ArenaPlan, constants: dict[str, numpy.ndarray]
) -> list[Buffer]:
    buffers = [Buffer(n, "input", _bytes(graph.types[n])) for n in graph.inputs]
    buffers += [Buffer(n, "output", _bytes(graph.types[n])) for n in graph.outputs]
    buffers += [Buffer(n, "constant", as_size(array.nbytes)) for n, array in constants.items()]
    buffers += [
        Buffer(name, "arena", _bytes(names.types[name]), offset)
        for name, offset in plan.offsets.items()
    ]
    return buffers


def _short(packing: Packing) -> str:
    return f"panels{packing.width}/{abs(hash(packing)) % (1 << 32):08x}"


def _distinct(kernels: Iterable[Kernel]) -> tuple[Kernel, ...]:
    return tuple({kernel.name: kernel for kernel in kernels}.values())
