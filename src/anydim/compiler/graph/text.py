"""The text of a graph. `read_graph(print_graph(g), g.constants) == g` (see reader.py).

    graph "demo"
    dim n 0..128
    input x: float32[n, 4]
    constant w: float32[4, 8] = 0f3a...            (digest of the content)
    node h: float32[n, 8] = matmul(x, w) "demo.onnx: /MatMul"
    node y: float32[n, 8] = fused(h) "..."
      group {
        input float32[n, 8] h
        output float32[n, 8] y
        y(i, j) = exp(h(i, j)) where i in 0:n, j in 0:8
      }
    node v: float32[n, 8] = exp(y) on "accel" "..."     (a device; none: the host)
    node z: float32[k] = branch(c, y) "..."
      then
        graph "then"
        ...
      otherwise
        graph "otherwise"
        ...
    output y

The lines of a node with a region, and its graphs, are below its head (`_region_lines`). Constants
of held graphs are looked up under the names that `constants_of` gives them. Ambiguous names are in
double quotes, as JSON strings.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from anydim.base.dtypes import DTYPES, DType
from anydim.base.errors import GraphError
from anydim.compiler.graph.nodes import FUSED, Constant, Graph, Node
from anydim.compiler.graph.regions import (
    REGION,
    BranchRegion,
    Foreign,
    LoopRegion,
    PartRegion,
    Region,
    Scan,
    Sizes,
)
from anydim.lang.surface.printer import print_group
from anydim.lang.tree import TensorType
from anydim.runtime.lists import FieldPort, RaggedPort, StructurePort
from anydim.sizes import Guard, Size

_BARE = re.compile(r"[A-Za-z_/][\w./$#@]*")
FOREIGN_WORDS = ("engine", "operator", "why")
_RESERVED = frozenset([*DTYPES, "_", "true", "false", "nan", "inf", "none"])


def print_graph(graph: Graph) -> str:
    """Print a graph."""
    types = graph.types
    lines = [f"graph {json.dumps(graph.name)}"]
    for dim in graph.box.dims:
        lines.append(f"dim {dim.name} {dim.lo}..{'' if dim.hi is None else dim.hi}")
    lines += [f"constraint {{{size}}}" for size in graph.box.constraints]
    lines += [f"input {_typed(name, types[name])}" for name in graph.inputs]
    for name, constant in graph.constants.items():
        lines.append(f"constant {_typed(name, types[name])} = {constant.digest}")
    for node in graph.nodes:
        lines += _node_lines(node, types)
    lines += [_guard(guard) for guard in graph.guards]
    lines += [f"output {_name(name)}" for name in graph.outputs]
    for name, listed in graph.lists.items():
        if isinstance(listed, RaggedPort):
            lines.append(_ragged(name, listed))
            continue
        if isinstance(listed, StructurePort):
            lines.append(_structure(name, listed))
            continue
        kind = "single" if listed.single else "optional" if listed.optional else "list"
        lines.append(f"{kind} {_name(name)} = {_name(listed.elements)}, {_name(listed.shapes)}")
    return "\n".join(lines) + "\n"


def _ragged(name: str, port: RaggedPort) -> str:
    table = port.table
    flags = "".join(f" {flag}" for flag in ("flat", "ones") if getattr(port, flag))
    dims = " ".join(
        f"dim {d.name} {d.lo}..{'' if d.hi is None else d.hi}; {most}"
        for d, most in zip(table.dims, table.longest)
    )
    units = " ".join(
        f"unit {{{unit}}} {total}{' summed' if total in table.summed else ''}"
        for unit, total in zip(table.units, table.totals)
    )
    return (
        f"ragged {_name(name)} = {_name(port.values)} shape [{', '.join(map(str, port.shape))}] "
        f"counted {{{port.counted}}}{flags} rows {_name(table.rows)} sums {_name(table.sums)} "
        f"{dims} {units}"
    )


def _structure(name: str, port: StructurePort) -> str:
    parts = [f"structure {_name(name)} = {_name(port.roots)} of {_name(port.type)}"]
    for each in port.types:
        parts.append(f"type {_name(each.name)}")
        for constructor in each.constructors:
            parts.append(f"constructor {_name(constructor.name)}")
            parts += map(_field, constructor.fields)
    return " ".join(parts)


def _field(field: FieldPort) -> str:
    of = f"of {_name(field.type)}" if field.type else f"[{', '.join(map(str, field.shape))}]"
    offsets = f" offsets {_name(field.offsets)}" if field.offsets else ""
    return f"field {_name(field.name)} = {_name(field.values)} {of}{offsets}"


def contents(graph: Graph) -> bytes:
    """Unique contents of a graph: its text, and hashes of all constants."""
    rows = (f"{name} {each.identity}" for name, each in constants_of(graph).items())
    return "\n".join([print_graph(graph), *rows]).encode(errors="surrogatepass")


def constants_of(graph: Graph, path: str = "") -> dict[str, Constant]:
    """The constants of a graph by name, and those of the graphs that its nodes hold."""
    found = {path + name: constant for name, constant in graph.constants.items()}
    for node in graph.nodes:
        for name, held in (node.region.held if node.region else {}).items():
            found.update(constants_of(held, held_path(path, node.outputs, name)))
    return found


def held_path(path: str, outputs: tuple[str, ...], name: str) -> str:
    """Prefix of the names of the constants of a held graph."""
    return f"{path}{','.join(outputs)}/{name}/"


def _node_lines(node: Node, types: Mapping[str, TensorType]) -> list[str]:
    made = ", ".join(_typed(name, types[name]) for name in node.outputs)
    given = ", ".join("_" if name is None else _name(name) for name in node.inputs)
    below: list[str] = []
    hidden = ""  # the attribute that is printed below the head
    if node.operator == FUSED:
        hidden, below = "group", print_group(node.group).splitlines()
    elif node.region is not None:
        hidden, below = REGION, _region_lines(node.region)
    shown = {name: value for name, value in node.attributes.items() if name != hidden}
    pairs = ", ".join(f"{_name(name)}: {_value(value)}" for name, value in shown.items())
    extra = f" {{{pairs}}}" if pairs else ""
    made = f"{made} " if made else ""
    device = f" on {json.dumps(node.device)}" if node.device else ""
    head = f"node {made}= {node.operator}({given}){extra}{device} {json.dumps(node.source)}"
    return [head, *(f"  {line}" for line in below)]


def _region_lines(region: Region) -> list[str]:
    """dims a, b | condition ..., then, otherwise | counter t, trips, carried, scans, body | body |
    engine, operator, why, inputs, outputs, model"""
    lines: list[str] = []
    if isinstance(region, Sizes):
        lines.append(f"dims {' '.join(region.dims)}")
        lines += [] if region.row is None else [f"row {{{region.row}}}"]
    elif isinstance(region, PartRegion):
        lines.append(f"first {{{region.first}}}")
    elif isinstance(region, BranchRegion) and region.condition is not None:
        lines.append(_guard(region.condition, "condition"))
    elif isinstance(region, Foreign):
        lines += [f"{word} {json.dumps(getattr(region, word))}" for word in FOREIGN_WORDS]
        lines += [f"inputs {' '.join(map(json.dumps, region.inputs))}".rstrip()]
        lines += [f"outputs {' '.join(map(json.dumps, region.outputs))}".rstrip()]
        lines.append(f'model "{b64encode(region.model).decode()}"')
    elif isinstance(region, LoopRegion):
        lines += [f"counter {region.counter}", f"carried {region.carried}"]
        lines += [f"trips {{{region.trips}}}"] if region.trips is not None else []
        lines += ["conditional"] if region.conditional else []
        lines += map(_scan, region.scans)
    for name, graph in region.held.items():
        lines += [name, *(f"  {line}" for line in print_graph(graph).splitlines())]
    return lines


def _scan(scan: Scan) -> str:
    parts = [f"scan {{{scan.position}}}"]
    parts += [f"extent {{{scan.extent}}}"] if scan.extent is not None else []
    parts += [name for name in ("history", "initial", "joined") if getattr(scan, name)]
    return " ".join(parts)


def _typed(name: str, kind: TensorType) -> str:
    return f"{_name(name)}: {kind}"


def _guard(guard: Guard, word: str = "guard") -> str:
    relation = f"{{{guard.left}}} {guard.relation} {{{guard.right}}}"
    return f"{word} {relation} {json.dumps(guard.message)}"


def _name(name: str) -> str:
    plain = _BARE.fullmatch(name) and name not in _RESERVED
    return name if plain else json.dumps(name)


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, Size):
        return f"{{{value}}}"
    if isinstance(value, DType):
        return value.name
    if isinstance(value, tuple):
        return f"({''.join(f'{_value(item)}, ' for item in value).rstrip()})"
    raise GraphError(f"an attribute cannot hold {type(value).__name__}")
