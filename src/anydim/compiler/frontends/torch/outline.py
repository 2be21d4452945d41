"""Describes a file of torch.export: dims, inputs, outputs and overloads; nothing is compiled."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

from anydim.base.records import dataclass
from anydim.base.sheet import Sheet, Shown, facts
from anydim.base.text import count_of
from anydim.compiler.frontends.torch.opening import open_program, read_file
from anydim.runtime.signature import TensorSpec
from anydim.sizes import Box


@dataclass(frozen=True)
class ProgramOutline(Shown):
    """The content of a .pt2 file; sizes in bytes.

    `dims` have the names that `dims=` and `--dim` accept. `overloads` has the node count of each
    overload that the file holds, `state` the buffers that a call writes.
    """

    path: str
    name: str
    dims: Box
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    state: tuple[str, ...]
    overloads: Mapping[str, int]
    constants: int
    weight_bytes: int

    def _sheet(self) -> Sheet:
        """The declarations of the file, and its node count per overload."""
        shown = ", ".join(f"{name} {count}" for name, count in self.overloads.items())
        return Sheet(
            f"{self.path}: {self.name}, {count_of(sum(self.overloads.values()), 'node')}",
            (
                ("dims", str(self.dims) or "none"),
                *facts("inputs", map(str, self.inputs)),
                *facts("outputs", map(str, self.outputs)),
                *facts("state", self.state),
                ("weights", f"{self.weight_bytes} bytes in {count_of(self.constants, 'constant')}"),
                ("operators", shown),
            ),
        )

    __str__ = Shown.__str__
    __repr__ = Shown.__repr__


def outline(path: str) -> ProgramOutline:
    """Outline a file of torch.export.save. Raises ModelError, also for unsupported overloads."""
    program = read_file(path)
    opened = open_program(program, os.path.basename(path))
    graph = opened.graph
    targets = (str(node.target) for node in program.graph.nodes if node.op == "call_function")
    counts = Counter(target for target in targets if target.startswith("aten."))

    def spec(name: str) -> TensorSpec:
        return TensorSpec(name, graph.types[name].dtype, graph.types[name].shape)

    written = set(opened.written.values())
    return ProgramOutline(
        path, opened.name, graph.box,
        tuple(spec(name) for name in graph.inputs if name not in opened.state),
        tuple(spec(name) for name in graph.outputs if name not in written),
        tuple(opened.state), dict(counts.most_common()), len(graph.constants),
        sum(_bytes(each) for each in graph.constants.values()),
    )  # fmt: skip


def _bytes(constant: Any) -> int:
    return int(constant.nbytes)
