"""Cut graphs and their compiled parts -> a program.

After: every value that a step makes is released after its last reader, unless it is a result; a
step reads values of its own device (`device_copies.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy

from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Constant, Graph, Node
from anydim.compiler.graph.regions import (
    BranchRegion,
    CallRegion,
    Foreign,
    LoopRegion,
    PartRegion,
    Sizes,
)
from anydim.compiler.passes.assemble import Store
from anydim.compiler.passes.delegate.empty_tensors import nonempty_sizes_of_file
from anydim.compiler.passes.device_copies import CopiesBetween
from anydim.compiler.passes.in_place import updated_loops
from anydim.compiler.passes.segment import Cut, NestingNode, Part, straight
from anydim.runtime.program.program import Program
from anydim.runtime.program.region import (
    BranchStep,
    CallStep,
    EngineStep,
    FindStep,
    LoopStep,
    PartStep,
    Region,
    ReleaseStep,
    SegmentStep,
    Stack,
    Step,
)
from anydim.runtime.program.segment import Segment
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Guard, merged_guards


@dataclass(frozen=True)
class Linked:
    """The compiled form of a part, and its guards on sizes."""

    made: Segment | EngineStep
    guards: tuple[Guard, ...]


@dataclass(frozen=True)
class Link:
    """Link regions into a program for `threads` threads; constants go into `store`."""

    store: Store
    threads: int = 1

    def run(self, cuts: Sequence[Cut], parts: Mapping[int, Linked]) -> Program:
        """`parts` maps the id of each part to its compiled form."""
        if straight(cuts):
            (whole,) = parts.values()
            assert isinstance(whole.made, Segment)
            constants = tuple(self.store.constants.values())
            return Program.of(whole.made, constants, tuple(self.store.recipes))
        regions = tuple(self._region(cut, parts) for cut in cuts)
        if any(isinstance(each.made, Segment) and each.made.device for each in parts.values()):
            regions = CopiesBetween().run(regions)
        else:
            regions = updated_loops(regions)
        regions = tuple(map(_with_releases, regions))
        constants = tuple(self.store.constants.values())  # regions may have added some
        return Program(regions, constants, tuple(self.store.recipes), self.threads)

    def _region(self, cut: Cut, parts: Mapping[int, Linked]) -> Region:
        graph = cut.graph
        guards = list(graph.guards)
        steps: list[Step] = []
        for step in cut.steps:
            if isinstance(step, NestingNode) and isinstance(step.node.region, Foreign):
                steps.append(self._foreign(graph, step.node, step.node.region))
                continue
            if isinstance(step, NestingNode):
                steps.append(_HELD[type(step.node.region)](step.node, step.regions))
                continue
            linked = parts[id(step)]
            guards = merged_guards(guards, linked.guards)
            if isinstance(linked.made, EngineStep):
                steps.append(linked.made)
            elif linked.made.signature.outputs:
                steps.append(SegmentStep(linked.made, _source(step)))
        signature = Signature(
            graph.name, graph.box, _specs(graph, graph.inputs), _specs(graph, graph.outputs),
            tuple(guards),
        )  # fmt: skip
        return Region(
            signature=signature,
            given=cut.given,
            values={spec.name: spec for spec in _specs(graph, tuple(graph.types))},
            constants=self._constants(graph, steps),
            steps=tuple(steps),
        )

    def _foreign(self, graph: Graph, node: Node, region: Foreign) -> EngineStep:
        """The engine step of a node with a foreign model, which becomes a program constant."""
        model = Constant(numpy.frombuffer(region.model, numpy.uint8))
        return EngineStep(
            engine=region.engine,
            model=self.store.constant(f"{region.engine}/{node.outputs[0]}", model),
            reads=node.given,
            makes=node.outputs,
            inputs=region.inputs,
            outputs=region.outputs,
            needed=tuple(dict.fromkeys(nonempty_sizes_of_file(graph, node, region))),
            source=node.source,
        )

    def _constants(self, graph: Graph, steps: Sequence[Step]) -> dict[str, str]:
        """Constants that steps other than segments read, and those that are results."""
        read = [n for step in steps if not isinstance(step, SegmentStep) for n in step.reads]
        names = dict.fromkeys(n for n in (*read, *graph.outputs) if n in graph.constants)
        return {name: self.store.constant(name, graph.constants[name]) for name in names}


def _source(part: Part) -> str:
    """The source name of a part in errors."""
    return part.graph.nodes[0].source if len(part.graph.nodes) == 1 else ""


def _specs(graph: Graph, names: tuple[str, ...]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(n, graph.types[n].dtype, graph.types[n].shape) for n in names)


def _with_releases(region: Region) -> Region:
    outputs = {spec.name for spec in region.signature.outputs}
    return replace(region, steps=tuple(_release_after_last_use(region.steps, outputs)))


def _release_after_last_use(steps: Sequence[Step], outputs: Collection[str]) -> Iterator[Step]:
    last: dict[str, int] = {}
    for number, step in enumerate(steps):
        last.update(dict.fromkeys((*step.makes, *step.reads), number))
    made: set[str] = set()
    for number, step in enumerate(steps):
        yield step
        made.update(step.makes)
        done = dict.fromkeys(n for n in (*step.reads, *step.makes) if last[n] == number)
        dead = tuple(name for name in done if name in made and name not in outputs)
        if dead:
            yield ReleaseStep(dead)


# ---- nodes with regions --------------------------------------------------------------------------


def _find(node: Node, regions: tuple[int, ...]) -> FindStep:
    assert isinstance(node.region, Sizes)
    return FindStep(node.given[0], node.region.dims, node.source, row=node.region.row)


def _part(node: Node, regions: tuple[int, ...]) -> PartStep:
    assert isinstance(node.region, PartRegion)
    return PartStep(node.given[0], node.outputs[0], node.region.first, node.source)


def _branch(node: Node, regions: tuple[int, ...]) -> BranchStep:
    assert isinstance(node.region, BranchRegion)
    condition: str | Guard | None = node.region.condition
    given, (then, otherwise) = node.given, regions
    if condition is None:
        condition, given = given[0], given[1:]
    return BranchStep(condition, then, otherwise, given, node.outputs, node.source)


def _call(node: Node, regions: tuple[int, ...]) -> CallStep:
    return CallStep(regions[0], node.given, node.outputs, node.source)


def _loop(node: Node, regions: tuple[int, ...]) -> LoopStep:
    loop = node.region
    assert isinstance(loop, LoopRegion)
    given = list(node.given)
    condition = given.pop(0) if loop.conditional else None
    carried, rest = given[: loop.carried], given[loop.carried :]
    initials, rest = iter(rest[: loop.initials]), rest[loop.initials :]
    stacks = tuple(
        Stack(
            scan.position, scan.extent, scan.history, next(initials) if scan.initial else None,
            scan.joined,
        )
        for scan in loop.scans
    )  # fmt: skip
    return LoopStep(
        regions[0], loop.counter, loop.trips, condition, tuple(carried), tuple(rest), stacks,
        node.outputs, node.source,
    )  # fmt: skip


_HELD: dict[type, Callable[[Node, tuple[int, ...]], Step]] = {
    Sizes: _find, PartRegion: _part, BranchRegion: _branch, CallRegion: _call, LoopRegion: _loop
}  # fmt: skip
