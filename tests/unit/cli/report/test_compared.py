"""Promise: onnxruntime's nodes are put to the launches that stand for them."""

from __future__ import annotations

from anydim.cli.report.compared import NodeTime, _nodes, comparison, match_nodes
from anydim.runtime.clocked import Clocked
from anydim.runtime.program.profile.profile import Profile, Timed
from anydim.runtime.program.profile.trace import Trace


def timed(number: int, source: str, seconds: float) -> Timed:
    return Timed((0, number), f"kernel{number}", "", source, 1, seconds, 10, 10)


PROFILE = Profile(
    "net", {}, 1, 3, 1.0, (timed(0, "/a/MatMul + /a/Add", 0.2), timed(1, "/b/Softmax", 0.5)),
    None, Clocked(0, 0, ()), Trace("net", {}, 1, 1, {}, ()),
)  # fmt: skip


def test_by_name_and_by_what_ran_before() -> None:
    nodes = [
        NodeTime("/first/Shape", "Shape", 0.01), NodeTime("/a/MatMul", "MatMul", 0.1),
        NodeTime("BiasGelu", "BiasGelu", 0.2), NodeTime("/b/Softmax/ScaleFusion_1", "Softmax", 0.4),
        NodeTime("/a/Add", "Add", 0.3),
    ]  # fmt: skip
    rows = match_nodes(PROFILE, nodes)
    assert [row.launch and row.launch.kernel for row in rows] == ["kernel1", "kernel0", None]
    assert [round(row.seconds, 6) for row in rows] == [0.4, 0.6, 0.01]
    text = comparison(PROFILE, rows)
    assert "MatMul, BiasGelu, Add" in text and "1.25" in text and "0.33" in text
    assert text.splitlines()[-1].split()[0] == "all"


def test_medians_of_runs_without_the_first() -> None:
    def event(name: str, duration: int) -> dict[str, object]:
        told = {"op_name": "Add"}
        return {"cat": "Node", "name": f"{name}_kernel_time", "dur": duration, "args": told}

    events = [event("x", 900), {"cat": "Session", "name": "run"}, event("x", 10), event("x", 30)]
    (node,) = _nodes(events, repeat=2)
    assert (node.name, node.kind, round(node.seconds * 1e6)) == ("x", "Add", 20)
    assert _nodes([], repeat=2) == []
