"""A profile beside onnxruntime's own: times of its nodes, put to the launches that do them.

onnxruntime's profiler names the nodes that it runs. One that was fused begins with the name of a
node of the file; one with another name (a node that its optimiser made) and one that has no
launch (a transpose that is only a position here) count with the node that ran before it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from anydim.base.records import dataclass
from anydim.base.text import kernel_text, nodes_text, table, time_text
from anydim.cli.report.peers import Arrays, onnxruntime_session, ran
from anydim.runtime.program.profile.profile import Profile, Timed

_SUFFIX = "_kernel_time"
_SHOWN = 10


@dataclass(frozen=True)
class NodeTime:
    """A node of onnxruntime, in the order in which they ran, and its median seconds."""

    name: str
    kind: str
    seconds: float


@dataclass(frozen=True)
class LaunchComparison:
    """A launch, and what onnxruntime takes for the nodes that it stands for."""

    launch: Timed | None  # None: nodes that ran before any that has a launch
    seconds: float
    nodes: tuple[NodeTime, ...]

    def document(self) -> dict[str, Any]:
        """As plain dicts, lists, texts and numbers; times in seconds."""
        place = None if self.launch is None else list(self.launch.place)
        nodes = [{"name": n.name, "operator": n.kind, "seconds": n.seconds} for n in self.nodes]
        return {"launch": place, "seconds": self.seconds, "nodes": nodes}


def node_times(path: str, threads: int, feeds: Arrays, repeat: int) -> list[NodeTime]:
    """Run a file with onnxruntime's profiler; OptionError where it is not installed."""
    with TemporaryDirectory() as folder:
        prefix = str(Path(folder, "onnxruntime"))
        session = onnxruntime_session(path, threads, prefix)
        for _ in range(repeat + 1):
            ran(session, None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    return _nodes(events, repeat)


def _nodes(events: Sequence[Mapping[str, Any]], repeat: int) -> list[NodeTime]:
    """Nodes by number and name; the first run only warms up. What runs in loops adds up."""
    spent: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith(_SUFFIX):
            kind = str(event.get("args", {}).get("op_name", ""))
            spent[name.removesuffix(_SUFFIX), kind].append(float(event.get("dur", 0)) * 1e-6)
    made = []
    for (name, kind), times in spent.items():
        often = max(1, len(times) // (repeat + 1))  # nodes of one name, or iterations, in a run
        made.append(NodeTime(name, kind, often * median(times[often:] or times)))
    return made


def match_nodes(profile: Profile, nodes: Sequence[NodeTime]) -> list[LaunchComparison]:
    """Every launch with the nodes that it stands for, the costliest launch first."""
    known = {name: launch for launch in profile.launches for name in launch.source.split(" + ")}
    found: dict[tuple[int, int] | None, list[NodeTime]] = defaultdict(list)
    last: tuple[int, int] | None = None
    for node in nodes:
        launch = next((known[name] for name in _names(node.name) if name in known), None)
        last = last if launch is None else launch.place
        found[last].append(node)
    rows: list[Timed | None] = [*profile.costliest(), *([None] if None in found else [])]
    return [
        LaunchComparison(row, sum(n.seconds for n in found[place]), tuple(found[place]))
        for row in rows
        for place in [None if row is None else row.place]
    ]


def _names(name: str) -> Iterator[str]:
    """The name, then its beginnings before each '/' and '_': what others were fused into."""
    while name:
        yield name
        name = name[: max(name.rfind("/"), name.rfind("_"), 0)]


def comparison(profile: Profile, rows: Sequence[LaunchComparison]) -> str:
    """A table of the costliest launches, and of all together."""
    headers = ("nodes", "kernel", "anydim", "onnxruntime", "ratio", "its operators")
    shown = [_row(row) for row in rows[:_SHOWN] if row.launch is not None]
    ours, theirs = profile.in_launches, sum(row.seconds for row in rows)
    last = ("all", "", time_text(ours), time_text(theirs), _ratio(ours, theirs), "")
    return table(headers, [*shown, last], left=2)


def _row(row: LaunchComparison) -> tuple[str, ...]:
    assert row.launch is not None
    kinds = ", ".join(dict.fromkeys(node.kind for node in row.nodes)) or "-"
    ours, theirs = row.launch.seconds, row.seconds
    return (
        nodes_text(row.launch.source), kernel_text(row.launch.kernel), time_text(ours),
        time_text(theirs), _ratio(ours, theirs), kinds,
    )  # fmt: skip


def _ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}" if theirs else "-"
