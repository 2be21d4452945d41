"""Ensembles of decision trees: TreeEnsemble, and the two operators that it replaces.

The older two number nodes within trees, and leaves are nodes without a comparison that hold any
number of weights; leaves of the new one hold one weight each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from anydim.base.dtypes import DType, float16, float32, float64
from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.ml.linear import (
    Labels,
    select_labels,
    transform_scores,
    tree_scores,
)
from anydim.compiler.frontends.onnx.operators.ml.tree_tables import (
    MEMBER,
    MODES,
    as_less_equal,
    sets_of,
    slots_of,
)
from anydim.compiler.kernels.routines.trees import TABLES

_JOINS = {"AVERAGE": "sum", "SUM": "sum", "MIN": "min", "MAX": "max"}
_JOIN_NAMES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_LEAF = "LEAF"
_CHILDREN = ("nodes_truenodeids", "nodes_falsenodeids")


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Nodes whose children are nodes, or negative for leaves; and the weights, leaf by leaf."""

    modes: numpy.ndarray
    features: numpy.ndarray
    splits: numpy.ndarray
    yes: numpy.ndarray
    no: numpy.ndarray
    missing: numpy.ndarray
    roots: numpy.ndarray
    leaf_first: numpy.ndarray
    targets: numpy.ndarray
    weights: numpy.ndarray
    members: Sequence[Sequence[float]] = ()


# ---- the operators -----------------------------------------------------------------------------


def tree_ensemble(call: OnnxNode) -> Result:
    """TreeEnsemble: leaves of one weight, and nodes that test set membership."""
    modes = _array(call, "nodes_modes")
    members = sets_of(modes, _array(call, "membership_values").tolist())
    if members is None:
        raise Unsupported(f"{int((modes == MEMBER).sum())} nodes test membership of other sets")
    if len(modes) and modes.max() > MEMBER:
        raise Unsupported(f"nodes of mode {modes.max()}")
    weights = _array(call, "leaf_weights")
    children: list[numpy.ndarray] = []
    for side in ("true", "false"):
        nodes = _integers(call, f"nodes_{side}nodeids")
        leaves = _integers(call, f"nodes_{side}leafs")
        if len(nodes) != len(leaves) or (nodes < 0).any():
            raise Unsupported("children that are no nodes and no leaves")
        children.append(numpy.where(leaves != 0, -1 - nodes, nodes))
    ensemble = Ensemble(
        modes, _integers(call, "nodes_featureids"), _array(call, "nodes_splits"), children[0],
        children[1], _missing(call, len(modes)), _integers(call, "tree_roots"),
        numpy.arange(len(weights) + 1), _integers(call, "leaf_targetids"), weights, members,
    )  # fmt: skip
    join = _name_of(_JOIN_NAMES, call.attribute("aggregate_function"))
    dtype = call.type(0).dtype
    work = float32 if dtype == float16 else dtype
    result = _run_trees(call, ensemble, join, call.attribute("n_targets"), work)
    made = transform_scores(call, result, _name_of(_TRANSFORMS, call.attribute("post_transform")))
    return call.as_type(made, dtype)


def tree_regressor(call: OnnxNode) -> Result:
    """TreeEnsembleRegressor: sums, means, minima or maxima of weights, float32."""
    dtype = _dtype(call, "target")
    count = call.attribute("n_targets")
    if count is None:
        raise Unsupported("n_targets is missing")
    ensemble = _read_ensemble(call, "target")
    result = _run_trees(call, ensemble, call.attribute("aggregate_function", "SUM"), count, dtype)
    base = _either(call, "base_values")
    if len(base):
        if len(base) not in (1, count):
            raise Unsupported(f"{len(base)} base values for {count} targets")
        result = call.emit("add", result, call.numbers(base, dtype))
    result = transform_scores(call, result, call.attribute("post_transform", "NONE"))
    return call.as_type(result, float32)


def tree_classifier(call: OnnxNode) -> Sequence[Result]:
    """TreeEnsembleClassifier: the class with the largest sum, and the sums of all classes."""
    labels = Labels.of(call, "classlabels_int64s")
    dtype, ensemble = _dtype(call, "class"), _read_ensemble(call, "class")
    sums = _run_trees(call, ensemble, "SUM", labels.count, dtype)
    base = _either(call, "base_values")
    if len(base) not in (0, 1, labels.count):
        raise Unsupported(f"{len(base)} base values for {labels.count} classes")
    only = numpy.unique(ensemble.targets).tolist()
    indices, scores = tree_scores(
        call, sums, base.tolist(), only, labels.count, bool((ensemble.weights >= 0).all()),
        call.attribute("post_transform", "NONE"),
    )  # fmt: skip
    return select_labels(call, labels, indices), call.as_type(scores, float32)


# ---- reading -----------------------------------------------------------------------------------


def _dtype(call: OnnxNode, kind: str) -> DType:
    """The type of comparisons: float64 if the file or the input has such numbers."""
    tensors = ("nodes_values_as_tensor", f"{kind}_weights_as_tensor")
    wide = any(call.attribute(name) is not None for name in tensors)
    return float64 if wide or call.type(0).dtype == float64 else float32


def _array(call: OnnxNode, name: str) -> numpy.ndarray:
    """The numbers of a tensor attribute; empty if it is not given."""
    tensor = call.attribute(name)
    if tensor is None:
        return numpy.zeros(0)
    return call.array(tensor).reshape(-1)


def _either(call: OnnxNode, name: str) -> numpy.ndarray:
    """Numbers given as a list or as a tensor."""
    given = call.attribute(name)
    return numpy.array(given, numpy.float32) if given else _array(call, f"{name}_as_tensor")


def _integers(call: OnnxNode, name: str) -> numpy.ndarray:
    return numpy.array(call.attribute(name) or (), numpy.int64)


def _missing(call: OnnxNode, count: int) -> numpy.ndarray:
    """Whether NaN takes the true branch, per node; by default it does not."""
    found = _integers(call, "nodes_missing_value_tracks_true") != 0
    return found if len(found) else numpy.zeros(count, bool)


def _name_of(names: Sequence[str], number: int) -> str:
    if not 0 <= number < len(names):
        raise Unsupported(f"function {number} of {len(names)}")
    return names[number]


def _read_ensemble(call: OnnxNode, kind: str) -> Ensemble:
    """The ensemble of an operator whose nodes are identified by tree and number."""
    texts = call.attribute("nodes_modes") or ()
    unknown = set(texts) - {_LEAF, *MODES}
    if unknown:
        raise Unsupported(f"nodes of mode {', '.join(sorted(unknown))}")
    numbered = {_LEAF: -1, **MODES}
    modes = numpy.array([numbered[text] for text in texts], int)
    trees, keys = _integers(call, "nodes_treeids"), _integers(call, "nodes_nodeids")
    columns = {
        name: _integers(call, name) for name in ("nodes_featureids", *_CHILDREN)
    }  # fmt: skip
    splits, missing = _either(call, "nodes_values"), _missing(call, len(modes))
    lengths = {len(modes), len(trees), len(keys), len(splits), len(missing)}
    if len(lengths | {len(column) for column in columns.values()}) != 1:
        raise Unsupported("tables of nodes that are not of one length")
    leaf: numpy.ndarray = modes < 0
    numbers = numpy.where(leaf, numpy.negative(numpy.cumsum(leaf)), numpy.cumsum(~leaf) - 1)
    inner = numpy.flatnonzero(~leaf)
    yes, no = (
        numbers[_find_nodes(trees, keys, trees[inner], columns[side][inner])] for side in _CHILDREN
    )
    first = numpy.unique(trees, return_index=True)[1]
    owned = (_integers(call, f"{kind}_{ids}") for ids in ("treeids", "nodeids"))
    owners = _find_nodes(trees, keys, *owned)
    targets, weights = _integers(call, f"{kind}_ids"), _either(call, f"{kind}_weights")
    if not len(owners) == len(targets) == len(weights):
        raise Unsupported("tables of weights that are not of one length")
    if not leaf[owners].all():
        raise Unsupported("a weight of a node that is no leaf")
    at = -1 - numbers[owners]
    order = numpy.argsort(at, kind="stable")
    counts = numpy.bincount(at, minlength=int(leaf.sum()))
    return Ensemble(
        modes[inner], columns["nodes_featureids"][inner], splits[inner], yes, no, missing[inner],
        numbers[first], numpy.concatenate(([0], numpy.cumsum(counts))), targets[order],
        weights[order],
    )  # fmt: skip


def _find_nodes(
    trees: numpy.ndarray, keys: numpy.ndarray, owners: numpy.ndarray, requested: numpy.ndarray
) -> numpy.ndarray:
    """The indices of nodes given by tree and number; Unsupported for an unknown one."""
    if len(owners) != len(requested):
        raise Unsupported("tables of nodes or leaves that are not of one length")
    tree, key = numpy.append(trees, owners), numpy.append(keys, requested)
    if not _small(tree) or not _small(key):  # must not overflow in one number
        tree, key = (numpy.unique(of, return_inverse=True)[1] for of in (tree, key))
    both = tree * (key.max(initial=0) + 1) + key
    own, wanted = both[: len(trees)], both[len(trees) :]
    order = numpy.argsort(own, kind="stable")
    sorted_ = own[order]
    if (sorted_[1:] == sorted_[:-1]).any():
        node = order[1:][sorted_[1:] == sorted_[:-1]][0]
        raise Unsupported(f"node {keys[node]} of tree {trees[node]} exists twice")
    at = numpy.searchsorted(sorted_, wanted)
    exists = at < len(own)
    exists[exists] = sorted_[at[exists]] == wanted[exists]
    if not exists.all():
        lost = int(numpy.argmin(exists))
        raise Unsupported(f"node {requested[lost]} of tree {owners[lost]}, which is not there")
    found: numpy.ndarray = order[at]
    return found


def _small(numbers: numpy.ndarray) -> bool:
    return bool(numbers.min(initial=0) >= 0 and numbers.max(initial=0) < 1 << 31)


# ---- the library's operator --------------------------------------------------------------------


def _run_trees(call: OnnxNode, trees: Ensemble, join: str, count: int, dtype: DType) -> str:
    """The combined leaves of all trees for each row."""
    columns = (trees.modes, trees.features, trees.splits, trees.yes, trees.no, trees.missing)
    if len(set(map(len, columns))) != 1 or len(trees.targets) != len(trees.weights):
        raise Unsupported("tables of nodes or leaves that are not of one length")
    if join not in _JOINS or call.type(0).rank != 2:
        raise Unsupported(f"a tensor with {call.type(0).rank} axes, joined by {join}")
    if dtype not in (float32, float64):
        raise Unsupported(f"trees of {dtype}")
    if count < 1 or ((trees.targets < 0) | (trees.targets >= count)).any():
        raise Unsupported(f"a weight for none of {count} results")
    nodes = as_less_equal(
        trees.modes, trees.features, trees.splits.astype(dtype.numpy), trees.yes, trees.no,
        trees.missing, trees.members,
    )  # fmt: skip
    leaves = len(trees.leaf_first) - 1
    made = slots_of(nodes, trees.roots, leaves)
    given = call.shape(0)[1].constant
    if given is not None and given < made.columns:
        raise Unsupported(f"a tree reads column {made.columns - 1} of {given}")
    widths = numpy.unique(numpy.diff(trees.leaf_first))
    tables = {**made.tables, "leaf_first": trees.leaf_first, "targets": trees.targets,
              "weights": trees.weights}  # fmt: skip
    x = call.as_type(call.input(0), dtype)
    values = [call.numbers(tables[name], wanted or dtype) for name, wanted in TABLES.items()]
    result = call.emit(
        "tree_ensemble", x, *values, count=count, trees=len(trees.roots), depth=made.depth,
        columns=made.columns, join=_JOINS[join],
        width=int(widths[0]) if len(widths) == 1 else None,
    )  # fmt: skip
    if join == "AVERAGE":
        result = call.emit("div", result, call.number(max(1, len(trees.roots)), dtype))
    return result
