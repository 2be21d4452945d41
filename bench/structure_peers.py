"""The peers of `bench.structures`: DyNet with autobatching, torch, and loops in ONNX files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import anydim as ad

if TYPE_CHECKING:
    from bench.structures import Trees

Array = np.ndarray
Engines = dict[str, Callable[[Any], Any]]


@dataclass(frozen=True)
class Cells:
    """Cells of grids: the numbers of those above and to the left, from 1; 0 for none."""

    x: Array
    up: Array
    left: Array
    roots: Array


def dynet() -> Any:
    """DyNet with autobatching, or None."""
    if find_spec("_dynet") is None:
        return None
    import dynet_config

    dynet_config.set(mem=2048, autobatch=1, random_seed=1)
    import dynet

    return dynet


_COLLECTIONS: list[Any] = []  # DyNet's parameters do not keep theirs alive


def dynet_parameters(dy: Any) -> Any:
    """A new collection of parameters."""
    _COLLECTIONS.append(dy.ParameterCollection())
    return _COLLECTIONS[-1]


def torch_with(threads: int) -> Any:
    """torch, or None."""
    if find_spec("torch") is None:
        return None
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return torch


def by_levels(leaves: int, left: Array, right: Array) -> tuple[Array, Array, Array, Array]:
    """Nodes in the order of levels: their children, where levels end, and the new numbers of all.

    Nodes come after their children.
    """
    level = [0] * leaves
    for one, other in zip(left.tolist(), right.tolist()):
        level.append(1 + max(level[one], level[other]))
    own = np.array(level[leaves:], np.int64)
    order = np.argsort(own, kind="stable")
    number = np.arange(leaves + len(own))
    number[leaves + order] = np.arange(leaves, leaves + len(own))
    ends = np.concatenate([[0], np.bincount(own, minlength=1)[1:].cumsum()]).astype(np.int64)
    return number[left[order]], number[right[order]], ends, number


# ---- Tree-LSTM -----------------------------------------------------------------------------------


def lstm_engines(weights: Mapping[str, Array], threads: int) -> Engines:
    """A function of trees for each engine: h of the roots."""
    model = lstm_loop(weights)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    own = ad.compile(model, threads=threads)
    table = weights["E"]

    def feeds(trees: Trees) -> dict[str, Array]:
        left, right, ends, number = by_levels(len(trees.words), trees.left, trees.right)
        return {"x": table[trees.words], "left": left, "right": right, "ends": ends,
                "roots": number[trees.roots]}  # fmt: skip

    found: Engines = {}
    if find_spec("_dynet") is not None:
        found.update(dynet_lstm(weights))
    if find_spec("torch") is not None:
        found.update(torch_lstm(weights, threads))
    found["onnxruntime, Loop over levels"] = lambda trees: session.run(["h"], feeds(trees))[0]
    found["anydim, the same ONNX Loop"] = lambda trees: own(**feeds(trees))["h"]
    return found


def dynet_lstm(weights: Mapping[str, Array]) -> Engines:
    """Two forms: a product for each gate, and one product for all gates of a node."""
    dy = dynet()
    hidden = weights["b"].shape[1]
    made = dynet_parameters(dy)
    w = weights["W"].transpose(0, 2, 1)  # gate, hidden, embedding
    u = weights["U"].transpose(0, 3, 1, 2).reshape(5, hidden, 2 * hidden)
    add = made.parameters_from_numpy
    words = made.lookup_parameters_from_numpy(weights["E"])
    parts = (w, u, weights["b"])
    ws, us, bs = ([add(np.ascontiguousarray(part)) for part in each] for each in parts)
    whole = [
        add(np.ascontiguousarray(each.reshape(-1, *each.shape[2:]))) for each in (w, u)
    ]  # fmt: skip
    biases = [add(weights["b"][:3].reshape(-1)), add(weights["b"].reshape(-1))]

    def gates(fused: bool, x: Any, inner: bool) -> list[Any]:
        count = 5 if inner else 3
        if fused:
            g = dy.affine_transform([biases[inner], whole[inner], x])
            return [dy.pickrange(g, n * hidden, (n + 1) * hidden) for n in range(count)]
        own = us if inner else ws
        return [dy.affine_transform([bs[n], own[n], x]) for n in range(count)]

    def tree(node: Any, fused: bool) -> tuple[Any, Any]:
        if isinstance(node, int):
            i, o, v = gates(fused, words[node], False)
            c = dy.cmult(dy.logistic(i), dy.tanh(v))
        else:
            (hl, cl), (hr, cr) = tree(node[0], fused), tree(node[1], fused)
            i, o, v, p, q = gates(fused, dy.concatenate([hl, hr]), True)
            c = (
                dy.cmult(dy.logistic(i), dy.tanh(v))
                + dy.cmult(dy.logistic(p), cl)
                + dy.cmult(dy.logistic(q), cr)
            )
        return dy.cmult(dy.logistic(o), dy.tanh(c)), c

    def run(trees: Trees, fused: bool) -> Any:
        dy.renew_cg()
        roots = dy.concatenate_cols([tree(each, fused)[0] for each in trees.nested])
        return roots.npvalue().reshape(hidden, -1).T

    return {
        "DyNet, autobatching": lambda trees: run(trees, False),
        "DyNet, one product for all gates": lambda trees: run(trees, True),
    }


def torch_lstm(weights: Mapping[str, Array], threads: int) -> Engines:
    """Node after node, and level after level."""
    torch = torch_with(threads)
    hidden = weights["b"].shape[1]
    b = torch.from_numpy(weights["b"].reshape(-1).copy())
    w = torch.from_numpy(np.ascontiguousarray(weights["W"].transpose(1, 0, 2)))
    w = w.reshape(-1, 3 * hidden)
    u = np.ascontiguousarray(weights["U"].transpose(1, 2, 0, 3)).reshape(2 * hidden, 5 * hidden)
    u, table = torch.from_numpy(u), torch.from_numpy(weights["E"])

    def leaf(x: Any) -> tuple[Any, Any]:
        i, o, v = torch.addmm(b[: 3 * hidden], x, w).chunk(3, 1)
        c = i.sigmoid() * v.tanh()
        return o.sigmoid() * c.tanh(), c

    def node(h: Any, cl: Any, cr: Any) -> tuple[Any, Any]:
        i, o, v, p, q = torch.addmm(b, h, u).chunk(5, 1)
        c = i.sigmoid() * v.tanh() + p.sigmoid() * cl + q.sigmoid() * cr
        return o.sigmoid() * c.tanh(), c

    def recursive(tree: Any) -> tuple[Any, Any]:
        if isinstance(tree, int):
            return leaf(table[tree : tree + 1])
        (hl, cl), (hr, cr) = recursive(tree[0]), recursive(tree[1])
        return node(torch.cat([hl, hr], 1), cl, cr)

    def levels(trees: Trees) -> Any:
        leaves = len(trees.words)
        left, right, ends, number = by_levels(leaves, trees.left, trees.right)
        both = torch.from_numpy(np.stack([left, right], 1))
        h, c = (torch.empty(leaves + len(left), hidden) for _ in "hc")
        h[:leaves], c[:leaves] = leaf(table[torch.from_numpy(trees.words)])
        for first, last in zip(ends.tolist(), ends[1:].tolist()):
            own = both[first:last]
            pair = h[own.reshape(-1)].view(last - first, 2 * hidden)
            made = node(pair, c[own[:, 0]], c[own[:, 1]])
            h[leaves + first : leaves + last], c[leaves + first : leaves + last] = made
        return h[torch.from_numpy(number[trees.roots])].numpy()

    return {
        "torch, by levels": levels,
        "torch, recursive": lambda trees: torch.cat(
            [recursive(each)[0] for each in trees.nested]
        ).numpy(),
    }


def lstm_loop(weights: Mapping[str, Array]) -> onnx.ModelProto:
    """A Loop over levels; tables of h and c grow by the nodes of a level."""
    hidden = weights["b"].shape[1]
    embedding = weights["W"].shape[1]
    constants = {
        "W": np.ascontiguousarray(weights["W"].transpose(1, 0, 2)).reshape(embedding, -1),
        "U": np.ascontiguousarray(weights["U"].transpose(1, 2, 0, 3)).reshape(2 * hidden, -1),
        "b3": weights["b"][:3].reshape(-1), "b5": weights["b"].reshape(-1),
        "s3": np.full(3, hidden, np.int64), "s5": np.full(5, hidden, np.int64),
        "one": np.array([1], np.int64), "zero": np.array([0], np.int64),
    }  # fmt: skip
    node = helper.make_node
    cell = [
        node("Split", ["g", "s5"], ["i", "o", "v", "p", "q"], axis=1),
        *(node("Sigmoid", [name], [f"{name}_"]) for name in "iopq"),
        node("Tanh", ["v"], ["v_"]),
        node("Mul", ["i_", "v_"], ["iv"]),
        node("Mul", ["p_", "cl"], ["pl"]),
        node("Mul", ["q_", "cr"], ["qr"]),
        node("Add", ["iv", "pl"], ["half"]),
        node("Add", ["half", "qr"], ["c_new"]),
        node("Tanh", ["c_new"], ["ct"]),
        node("Mul", ["o_", "ct"], ["h_new"]),
    ]
    body = [
        node("Unsqueeze", ["level", "zero"], ["at"]),
        node("Add", ["at", "one"], ["next"]),
        node("Gather", ["ends", "at"], ["first"]),
        node("Gather", ["ends", "next"], ["last"]),
        node("Slice", ["left", "first", "last", "zero"], ["l"]),
        node("Slice", ["right", "first", "last", "zero"], ["r"]),
        *(node("Gather", [table, side], [f"{table[0]}{side}"]) for table in ("h_in", "c_in")
          for side in "lr"),
        node("Concat", ["hl", "hr"], ["pair"], axis=1),
        node("Gemm", ["pair", "U", "b5"], ["g"]),
        *cell,
        node("Concat", ["h_in", "h_new"], ["h_out"], axis=0),
        node("Concat", ["c_in", "c_new"], ["c_out"], axis=0),
        node("Identity", ["going"], ["goes"]),
    ]  # fmt: skip
    value = helper.make_tensor_value_info

    def tables(suffix: str) -> list[Any]:
        return [value(f"{n}_{suffix}", TensorProto.FLOAT, [None, hidden]) for n in "hc"]

    graph = helper.make_graph(
        body, "level",
        [value("level", TensorProto.INT64, []), value("going", TensorProto.BOOL, []),
         *tables("in")],
        [value("goes", TensorProto.BOOL, []), *tables("out")],
    )  # fmt: skip
    outer = [
        node("Gemm", ["x", "W", "b3"], ["lg"]),
        node("Split", ["lg", "s3"], ["li", "lo", "lv"], axis=1),
        node("Sigmoid", ["li"], ["li_"]),
        node("Sigmoid", ["lo"], ["lo_"]),
        node("Tanh", ["lv"], ["lv_"]),
        node("Mul", ["li_", "lv_"], ["c0"]),
        node("Tanh", ["c0"], ["ct0"]),
        node("Mul", ["lo_", "ct0"], ["h0"]),
        node("Shape", ["ends"], ["size"]),
        node("Sub", ["size", "one"], ["levels"]),
        node("Loop", ["levels", "", "h0", "c0"], ["h_all", "c_all"], body=graph),
        node("Gather", ["h_all", "roots"], ["h"]),
    ]
    whole = helper.make_graph(
        outer, "tree_lstm",
        [value("x", TensorProto.FLOAT, ["leaves", embedding]),
         *(value(n, TensorProto.INT64, [d]) for n, d in (
             ("left", "nodes"), ("right", "nodes"), ("ends", "ends"), ("roots", "trees")))],
        [value("h", TensorProto.FLOAT, ["trees", hidden])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    made = helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return made


# ---- MV-RNN and a DAG-RNN ------------------------------------------------------------------------


def vector_engines(weights: Mapping[str, Array], x: Array, m: Array) -> Engines:
    """A function of trees for each engine: the vectors of the roots."""
    found: Engines = {}
    if find_spec("_dynet") is not None:
        dy = dynet()
        made = dynet_parameters(dy)
        add, look = made.parameters_from_numpy, made.lookup_parameters_from_numpy
        (w0, w1), (m0, m1) = ([add(part) for part in weights[name]] for name in "WM")
        vectors, matrices = look(x), look(m.transpose(0, 2, 1))  # reads matrices by columns

        def tree(node: Any) -> tuple[Any, Any]:
            if isinstance(node, int):
                return vectors[node], matrices[node % len(m)]
            (a, one), (b, other) = tree(node[0]), tree(node[1])
            return dy.tanh(w0 * (other * a) + w1 * (one * b)), m0 * one + m1 * other

        def run(trees: Trees) -> Any:
            dy.renew_cg()
            roots = dy.concatenate_cols([tree(each)[0] for each in trees.nested])
            return roots.npvalue().reshape(x.shape[1], -1).T

        found["DyNet, autobatching"] = run
    if find_spec("torch") is not None:
        torch = torch_with(1)
        w, v, xs, ms = map(torch.from_numpy, (weights["W"], weights["M"], x, m))

        def recursive(node: Any) -> tuple[Any, Any]:
            if isinstance(node, int):
                return xs[node], ms[node % len(m)]
            (a, one), (b, other) = recursive(node[0]), recursive(node[1])
            p = torch.tanh(w[0] @ (other @ a) + w[1] @ (one @ b))
            return p, v[0] @ one + v[1] @ other

        found["torch, recursive"] = lambda trees: torch.stack(
            [recursive(each)[0] for each in trees.nested]
        ).numpy()
    return found


def grid_engines(weights: Mapping[str, Array]) -> Engines:
    """A function of cells for each engine: h of the roots."""
    found: Engines = {}
    if find_spec("_dynet") is not None:
        dy = dynet()
        made = dynet_parameters(dy)
        w, u, v = (
            made.parameters_from_numpy(np.ascontiguousarray(weights[n].T)) for n in "WUV"
        )  # fmt: skip
        zero = np.zeros(weights["W"].shape[1])

        def run(cells: Cells) -> Any:
            dy.renew_cg()
            done = [dy.inputTensor(zero)]
            for x, up, left in zip(cells.x, cells.up.tolist(), cells.left.tolist()):
                done.append(dy.tanh(w * dy.inputTensor(x) + u * done[up] + v * done[left]))
            roots = dy.concatenate_cols([done[root] for root in cells.roots])
            return roots.npvalue().reshape(len(zero), -1).T

        found["DyNet, autobatching"] = run
    if find_spec("torch") is not None:
        torch = torch_with(1)
        tw, tu, tv = (torch.from_numpy(weights[n]) for n in "WUV")

        def nodes(cells: Cells) -> Any:
            done = [torch.zeros(tw.shape[1])]
            given = torch.from_numpy(cells.x) @ tw
            for x, up, left in zip(given, cells.up.tolist(), cells.left.tolist()):
                done.append(torch.tanh(x + done[up] @ tu + done[left] @ tv))
            return torch.stack([done[root] for root in cells.roots]).numpy()

        found["torch, cell after cell"] = nodes
    return found
