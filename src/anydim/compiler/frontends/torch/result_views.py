"""Results that share memory with inputs or other results: torch rebuilds them as views.

torch.compile takes sizes, strides and offset of such a result for the view that it returns, so a
tensor with memory of its own would give wrong elements.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import torch

from anydim.base.records import dataclass
from anydim.compiler.frontends.torch.memory_order import memory_gaps, memory_order
from anydim.compiler.frontends.torch.refusal import Refused

_ATEN = torch.ops.aten
_WRITTEN = {
    _ATEN.slice_scatter.default, _ATEN.select_scatter.default, _ATEN.diagonal_scatter.default,
    _ATEN.as_strided_scatter.default,
}  # fmt: skip
"""Functional forms of writes to a view."""


@dataclass(frozen=True)
class ResultView:
    """A result as views of its root (a placeholder or a result), with sizes from placeholders.

    A root that the model computes must lie in memory as torch has traced it.
    """

    root: torch.fx.Node
    others: tuple[torch.fx.Node, ...]
    call: Callable[..., torch.Tensor]

    def make(self, root: torch.Tensor, others: Sequence[Any]) -> torch.Tensor:
        """The view of a root."""
        return self.call(root, *others)


def result_view(
    result: Any,
    results: Container[Any],
    written: Mapping[torch.fx.Node, torch.fx.Node] | None = None,
) -> ResultView | None:
    """The views that make a result of a placeholder or another result; None if there are none.

    `written` are the placeholders that a call writes, by their new values: a view of a new value
    is one of the placeholder. Raises Refused if torch cannot make the view from the arguments.
    """
    root = _root(result, written or {})
    if root is None:
        return None
    given = (written or {}).get(root, root)
    if given.op != "placeholder" and root not in results:
        return None
    graph = torch.fx.Graph()
    made = {root: graph.placeholder("root")}
    others: list[torch.fx.Node] = []
    graph.output(_copy_view(result, graph, made, others))
    if given.op != "placeholder":
        _expect_layout(root)
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    return ResultView(given, tuple(others), module.forward)


def _expect_layout(root: torch.fx.Node) -> None:
    """Raise Refused for a computed value that cannot lie in memory as torch has traced it."""
    try:
        memory_order(root.meta["val"])
    except Refused:
        memory_gaps(root)


def is_hidden_view(node: torch.fx.Node) -> bool:
    """Whether a node is a view of a computed value, and not one that the program writes."""
    root = _root(node)
    return root is not None and root.target not in _WRITTEN


def shared_roots(results: Sequence[Any]) -> list[torch.fx.Node]:
    """Values that several results are views of, and that are not results themselves."""
    views = [each for each in dict.fromkeys(results) if each is not None]
    found = Counter(root for root in map(_root, views) if root is not None)
    return [
        root for root, count in found.items()
        if count > 1 and root.op != "placeholder" and root not in results
    ]  # fmt: skip


def _root(result: Any, stops: Container[torch.fx.Node] = ()) -> torch.fx.Node | None:
    """The tensor behind a chain of views; None if the result is no view."""
    if not _is_view(result):
        return None
    root = result
    while _is_view(root) and root not in stops:
        root = root.args[0]
    is_tensor = isinstance(root, torch.fx.Node) and isinstance(root.meta.get("val"), torch.Tensor)
    return root if is_tensor else None


def _is_view(node: Any) -> bool:
    """Whether a node is a view, or one of several views (`split`)."""
    if not isinstance(node, torch.fx.Node):
        return False
    if node.target is operator.getitem:
        return _is_view(node.args[0])
    return isinstance(node.target, torch._ops.OpOverload) and bool(node.target.is_view)


def _copy_view(
    node: torch.fx.Node, graph: torch.fx.Graph, made: dict[Any, Any], others: list[torch.fx.Node]
) -> torch.fx.Node:
    """Copies a view or a size, with its operands, into another graph."""
    if node in made:
        return made[node]
    if node.op == "placeholder":
        made[node] = graph.placeholder(f"other_{len(others)}")
        others.append(node)
        return made[node]
    is_number = isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool))
    if not (_is_view(node) or is_number) or node.meta.get("unbacked_bindings"):
        raise Refused("a size that the graph computes")
    for each in node.all_input_nodes:
        _copy_view(each, graph, made, others)
    made[node] = graph.node_copy(node, made.__getitem__)
    return made[node]
