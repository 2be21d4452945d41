"""Rows of ai.onnx.ml: ensembles of decision trees, as tables for the operator `tree_ensemble`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from anydim.base.dtypes import DType, boolean, float32, float64, int64
from anydim.frontends.onnx.file.tensors import Unsupported, read_tensor
from anydim.frontends.onnx.operators.call import OnnxNode, Result

Tables = Mapping[str, Sequence[Any]]

MEMBER = 6
_MODES = {
    f"BRANCH_{name}": number for number, name in enumerate(("LEQ", "LT", "GTE", "GT", "EQ", "NEQ"))
}
_JOINS = {"AVERAGE": "sum", "SUM": "sum", "MIN": "min", "MAX": "max"}
_JOIN_NAMES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def tree_ensemble(call: OnnxNode) -> Result:
    """TreeEnsemble: leaves of one weight, and nodes that ask for members of sets."""
    modes = _array(call, "nodes_modes")
    count = len(modes)
    yes, no = (
        _children(call.attribute(f"nodes_{side}nodeids"), call.attribute(f"nodes_{side}leafs"))
        for side in ("true", "false")
    )
    sets = _sets(modes, _array(call, "membership_values"))
    weights = _array(call, "leaf_weights")
    tables = {
        "roots": call.attribute("tree_roots"),
        "features": call.attribute("nodes_featureids"),
        "modes": modes,
        "splits": _array(call, "nodes_splits"),
        "yes": yes,
        "no": no,
        "missing": call.attribute("nodes_missing_value_tracks_true") or [0] * count,
        "member_first": [0, *accumulate(map(len, sets))],
        "members": [member for own in sets for member in own],
        "leaf_first": range(len(weights) + 1),
        "targets": call.attribute("leaf_targetids"),
        "weights": weights,
    }
    join = _named(_JOIN_NAMES, call.attribute("aggregate_function"))
    result = _summed(call, tables, join, call.attribute("n_targets"), call.type(0).dtype)
    return _transformed(call, result, _named(_TRANSFORMS, call.attribute("post_transform")))


def tree_regressor(call: OnnxNode) -> Result:
    """TreeEnsembleRegressor: nodes are numbered within trees, leaves have any number of weights."""
    tensors = ("nodes_values_as_tensor", "target_weights_as_tensor")
    wide = any(call.attribute(name) is not None for name in tensors)
    dtype = float64 if wide or call.type(0).dtype == float64 else float32
    count = call.attribute("n_targets")
    if count is None:
        raise Unsupported("n_targets is missing")
    tables = _by_tree(call, _either(call, "nodes_values"), _either(call, "target_weights"))
    result = _summed(call, tables, call.attribute("aggregate_function", "SUM"), count, dtype)
    base = _either(call, "base_values")
    if len(base):
        if len(base) not in (1, count):
            raise Unsupported(f"{len(base)} base values for {count} targets")
        result = call.emit("add", result, call.numbers(base, dtype))
    result = _transformed(call, result, call.attribute("post_transform", "NONE"))
    return result if dtype == float32 else call.emit("cast", result, to=float32)


def _array(call: OnnxNode, name: str) -> list[Any]:
    """The numbers of a tensor attribute; none when it is not given."""
    tensor = call.attribute(name)
    if tensor is None:
        return []
    found: list[Any] = read_tensor(tensor, None, call.source).reshape(-1).tolist()
    return found


def _either(call: OnnxNode, name: str) -> Sequence[float]:
    """Numbers given as a list or as a tensor."""
    return call.attribute(name) or _array(call, f"{name}_as_tensor")


def _named(names: Sequence[str], number: int) -> str:
    if not 0 <= number < len(names):
        raise Unsupported(f"function {number} of {len(names)}")
    return names[number]


def _children(nodes: Sequence[int], leaves: Sequence[int]) -> list[int]:
    """Where nodes lead: to a node, or below 0 to a leaf."""
    return [-1 - node if leaf else node for node, leaf in zip(nodes, leaves)]


def _sets(modes: Sequence[int], values: Sequence[float]) -> list[list[float]]:
    """The members of the set of each node; in the attribute NaN ends a set."""
    ended: list[list[float]] = [[]]
    for value in values:
        if value != value:
            ended.append([])
        else:
            ended[-1].append(value)
    wanted = sum(mode == MEMBER for mode in modes)
    if len(ended) - 1 != wanted:
        raise Unsupported(f"{len(ended) - 1} sets of members for {wanted} nodes")
    sets = iter(ended)
    return [next(sets) if mode == MEMBER else [] for mode in modes]


def _by_tree(call: OnnxNode, splits: Sequence[float], weights: Sequence[float]) -> Tables:
    """The tables of an ensemble whose nodes are known by tree and number."""
    trees, modes = call.attribute("nodes_treeids"), call.attribute("nodes_modes")
    numbers = {key: n for n, key in enumerate(zip(trees, call.attribute("nodes_nodeids")))}
    leaves: dict[int, list[tuple[int, float]]] = {
        n: [] for n, mode in enumerate(modes) if mode == "LEAF"
    }
    owners = zip(call.attribute("target_treeids"), call.attribute("target_nodeids"))
    for owner, target, weight in zip(owners, call.attribute("target_ids"), weights):
        if numbers.get(owner) not in leaves:
            raise Unsupported(f"a weight of {owner}, which is no leaf")
        leaves[numbers[owner]].append((target, weight))
    order = {n: place for place, n in enumerate(leaves)}

    def lead(tree: int, node: int) -> int:
        number = numbers.get((tree, node))
        if number is None:
            raise Unsupported(f"node {node} of tree {tree}, which is not there")
        return -1 - order[number] if number in order else number

    unknown = set(modes) - {"LEAF", *_MODES}
    if unknown:
        raise Unsupported(f"nodes of mode {', '.join(sorted(unknown))}")
    sides = []
    for side in ("true", "false"):
        given = zip(trees, call.attribute(f"nodes_{side}nodeids"), modes)
        sides.append([-1 if mode == "LEAF" else lead(tree, node) for tree, node, mode in given])
    first = dict(zip(reversed(trees), reversed(range(len(trees)))))
    roots = [first[tree] for tree in sorted(first)]
    held = [pair for own in leaves.values() for pair in own]
    return {
        "roots": [-1 - order[root] if root in order else root for root in roots],
        "features": call.attribute("nodes_featureids"),
        "modes": _numbers(modes),
        "splits": splits,
        "yes": sides[0],
        "no": sides[1],
        "missing": call.attribute("nodes_missing_value_tracks_true") or [0] * len(modes),
        "member_first": [0] * (len(modes) + 1),
        "members": [],
        "leaf_first": [0, *accumulate(map(len, leaves.values()))],
        "targets": [target for target, _ in held],
        "weights": [weight for _, weight in held],
    }


def _numbers(modes: Sequence[str]) -> list[int]:
    """Modes of nodes by number; a leaf has that of some other node."""
    known = [_MODES[mode] for mode in modes if mode != "LEAF"]
    return [_MODES.get(mode, known[0] if known else 0) for mode in modes]


_TYPES: dict[str, DType] = {"splits": float32, "members": float32, "weights": float32,
                            "missing": boolean}  # fmt: skip


def _summed(call: OnnxNode, tables: Tables, join: str, count: int, dtype: DType) -> str:
    """The results of all trees."""
    nodes = {len(tables[name]) for name in ("features", "modes", "splits", "yes", "no", "missing")}
    if len(nodes) != 1 or len(tables["targets"]) != len(tables["weights"]):
        raise Unsupported("tables of nodes or leaves that are not of one length")
    if call.type(0).rank != 2 or join not in _JOINS:
        raise Unsupported(f"a tensor with {call.type(0).rank} axes, joined by {join}")
    if dtype not in (float32, float64):
        raise Unsupported(f"trees of {dtype}")
    x = call.input(0)
    if call.type(0).dtype != dtype:
        x = call.emit("cast", x, to=dtype)
    values = [
        call.numbers(column, dtype if wanted == float32 else wanted)
        for name, column in tables.items()
        for wanted in [_TYPES.get(name, int64)]
    ]
    modes = set(tables["modes"])
    mode = modes.pop() if len(modes) == 1 else None
    result = call.emit("tree_ensemble", x, *values, count=count, join=_JOINS[join], mode=mode)
    if join == "AVERAGE":
        trees = call.number(max(1, len(tables["roots"])), dtype)
        result = call.emit("div", result, trees)
    return result


def _transformed(call: OnnxNode, result: str, transform: str) -> str:
    if transform == "NONE":
        return result
    if transform == "LOGISTIC":
        return call.emit("sigmoid", result)
    if transform == "SOFTMAX":
        return call.emit("softmax", result, axis=1)
    raise Unsupported(f"post_transform {transform}")
