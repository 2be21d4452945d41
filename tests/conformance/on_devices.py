"""Which operators of ONNX run on devices, and what of them falls to the host: a page for users.

    python -m tests.conformance.on_devices docs/operators-on-devices.md

By where the nodes of a test of each operator are placed when everything shall be on a device. That
they run there: `python -m tests.conformance.onnx_backend --quick --device OPENCL:0 --list-host`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

from anydim.backend import freed
from anydim.base.errors import UserError
from anydim.frontends.onnx import import_model
from anydim.frontends.onnx.file.strings import StringsInside
from anydim.graph.nodes import Graph
from anydim.passes.assign_devices import Place
from anydim.passes.device_placement.min_cut_choice import Device
from anydim.passes.device_placement.rules import Rule, all_nodes
from anydim.passes.device_placement.speeds import Speed
from tests.conformance import onnx_backend

KINDS: Mapping[str, bool] = {"processors": True, "groups": False}  # name -> whether it is `ordered`
HEAD = """\
# Operators on devices

Made by `python -m tests.conformance.on_devices docs/operators-on-devices.md` from where the
nodes of a test of each operator go when all shall be on a device (`placement={"*": "accel"}`); a
test compares.

What is not named here runs on devices, whole. What is falls to the host by itself, and `explain`
says so. There are two kinds of devices: processors (those that OpenCL drives, `cpu:1`, `null`),
whose workers are as good at routines and loops in order as the host's; and those whose kernels run
in groups of items (graphics cards, by `opencl` or `cuda`), which are not. Branches, the counting of
iterations and sizes that data decides are the host's on all of them, and no part of these lists.
"""


def page() -> str:
    """The text of the page."""
    found: dict[str, dict[str, dict[str, str]]] = {kind: {} for kind in KINDS}
    tested: set[str] = set()
    for case in _tests("free"):
        tested.add(case.operator)
        for kind, fallen in _fallen(case).items():
            if fallen:
                found[kind].setdefault(case.operator, {}).update(fallen)
    lines = [HEAD]
    for kind, title in (("processors", "Processors"), ("groups", "Devices of groups")):
        rows = found[kind]
        whole = f"{len(tested) - len(rows)} of {len(tested)} operators run there whole."
        lines += [
            f"## {title}", "", f"{whole} The others:", "",
            "| operator | what falls to the host | why |", "|---|---|---|",
        ]  # fmt: skip
        for operator in sorted(rows):
            parts = rows[operator]
            names, reasons = (", ".join(dict.fromkeys(each)) for each in (parts, parts.values()))
            lines.append(f"| {operator} | {names} | {reasons} |")
        lines.append("")
    return "\n".join(lines)


def _tests(dims: str) -> list[onnx_backend.Case]:
    """Those of the operators themselves, not of the bodies that the standard has for some."""
    return [
        case
        for case in onnx_backend.quick(dims)
        if case.kind in ("node", "simple")
        and "_expanded" not in case.name
        and not onnx_backend.excluded(case)
        and (dims, case.name) not in onnx_backend.known_failures()
    ]


def _fallen(case: onnx_backend.Case) -> dict[str, dict[str, str]]:
    """By kind of device, the operators of the library that the host runs, and why."""
    model, _ = onnx_backend.bound(case)
    try:
        graph = _imported(model)
    except StringsInside:
        return {kind: {"operators on strings": "strings stay on the host"} for kind in KINDS}
    return {kind: _on_host(graph, ordered) for kind, ordered in KINDS.items()}


def _imported(model: object) -> Graph:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return import_model(model)
        except UserError:
            return import_model(freed(model)[0])


def _on_host(graph: Graph, ordered: bool) -> dict[str, str]:
    place = Place([Device("", Speed()), Device("accel", Speed(), ordered)], [Rule("*", "accel")])
    placed = place.run(graph)
    return {
        f"`{node.operator}`": placed.reasons[node.outputs[0]].rpartition("but accel ")[2]
        for node in all_nodes(placed.graph)
        if node.region is None and not node.device
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), "utf-8")
