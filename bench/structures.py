"""Networks over trees and graphs beside DyNet, torch and onnxruntime: python -m bench.structures

    python -m bench.structures                   all parts, one thread
    python -m bench.structures lstm --hidden 256 --trees 1,10,64
    python -m bench.structures vectors grids     MV-RNN; a DAG-RNN on grids
    python -m bench.structures spinn             a shift-reduce parser: data decides what it does
    python -m bench.structures long              chains, stars and forests of many nodes

Each figure is the median time of a call in milliseconds, engines in turns in one process; with one
thread it is processor time of this thread, which other processes do not change much. A call
includes all that depends on the structures: levels, autobatching, the graph of a dynamic engine.
Peers that are not installed are left out. Results are compared with Python in float64.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import median
from typing import Any

import numpy as np

import anydim as ad
from bench import shift_reduce
from bench import structure_peers as peers
from bench.arguments import parser
from bench.structure_texts import compiled

EMBEDDING, WORDS = 300, 5_000
SECONDS = 2.0  # for each table row

Array = np.ndarray


@dataclass(frozen=True)
class Trees:
    """Binary trees as nested pairs of word numbers, and as arrays, children before parents."""

    nested: list[Any]
    words: Array
    left: Array
    right: Array
    roots: Array

    @property
    def nodes(self) -> int:
        return len(self.words) + len(self.left)


def random_trees(count: int, seed: int = 0) -> Trees:
    """Trees of 5 to 35 words, as those of the Stanford Sentiment Treebank; splits are random."""
    random = np.random.default_rng(seed)
    nested, words, pairs, roots = list[Any](), list[int](), list[tuple[Any, Any]](), list[Any]()
    for _ in range(count):
        own = random.integers(WORDS, size=random.integers(5, 36)).tolist()
        forest = [(word, ("leaf", len(words) + n)) for n, word in enumerate(own)]
        words += own
        while len(forest) > 1:
            at = int(random.integers(len(forest) - 1))
            (one, first), (other, second) = forest[at : at + 2]
            pairs.append((first, second))
            forest[at : at + 2] = [((one, other), ("node", len(pairs) - 1))]
        nested.append(forest[0][0])
        roots.append(forest[0][1])

    def number(node: tuple[str, int]) -> int:
        return node[1] + (len(words) if node[0] == "node" else 0)

    left, right = (np.array([number(pair[side]) for pair in pairs]) for side in (0, 1))
    return Trees(nested, np.array(words), left, right, np.array([number(r) for r in roots]))


# ---- engines in turns ----------------------------------------------------------------------------


def clock(threads: int) -> Callable[[], float]:
    return time.thread_time if threads == 1 else time.perf_counter


def timed(calls: Mapping[str, Callable[[], Any]], threads: int) -> dict[str, float]:
    """The median time of each call in milliseconds, in turns."""
    now = clock(threads)
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + SECONDS
    order, random = list(calls.items()), Random(0)
    while time.perf_counter() < end or len(next(iter(times.values()))) < 5:
        random.shuffle(order)  # each engine leaves its own data in the caches
        for name, call in order:
            start = now()
            call()
            times[name].append(now() - start)
    return {name: median(own) * 1e3 for name, own in times.items()}


def difference(found: Any, expected: Any) -> float:
    return float(np.abs(np.asarray(found, np.float64) - expected).max(initial=0.0))


def row(
    title: str, calls: Mapping[str, Callable[[], Any]], expected: Any, threads: int
) -> None:  # fmt: skip
    """Print a row of a table: times, ratios to the first engine, largest differences."""
    worst = {name: difference(call(), expected) for name, call in calls.items()}
    found = timed(calls, threads)
    own = next(iter(found.values()))
    print(title, flush=True)
    for name, spent in found.items():
        off = f"difference {worst[name]:.1e}"
        print(f"  {name:34} {spent:10.3f} ms   ratio {own / spent:6.3f}   {off}", flush=True)


# ---- Tree-LSTM -----------------------------------------------------------------------------------


def lstm_weights(hidden: int) -> dict[str, Array]:
    """Weights of a binary Tree-LSTM with gates i, o, u and one forget gate for each child."""
    random = np.random.default_rng(1)
    shapes = {"W": (3, EMBEDDING, hidden), "U": (5, 2, hidden, hidden), "b": (5, hidden)}
    made = {n: 0.05 * random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    return {**made, "E": random.standard_normal((WORDS, EMBEDDING)).astype(np.float32)}


def lstm_reference(trees: Trees, weights: Mapping[str, Array]) -> Array:
    """h of the roots, in float64."""
    w, u, b, e = (weights[name].astype(np.float64) for name in "WUbE")

    def sigmoid(x: Array) -> Array:
        return np.asarray(1 / (1 + np.exp(-x)))

    done = list[tuple[Array, Array]]()
    for word in trees.words:
        i, o, v = np.einsum("qdj,d->qj", w, e[word]) + b[:3]
        c = sigmoid(i) * np.tanh(v)
        done.append((sigmoid(o) * np.tanh(c), c))
    for left, right in zip(trees.left, trees.right):
        (hl, cl), (hr, cr) = done[left], done[right]
        i, o, v, p, q = hl @ u[:, 0] + hr @ u[:, 1] + b
        c = sigmoid(i) * np.tanh(v) + sigmoid(p) * cl + sigmoid(q) * cr
        done.append((sigmoid(o) * np.tanh(c), c))
    return np.stack([done[root][0] for root in trees.roots])


def lstm(hidden: Sequence[int], counts: Sequence[int], threads: int) -> None:
    for width in hidden:
        weights = lstm_weights(width)
        table = weights["E"]
        given = {name: weights[name] for name in "WUb"}
        model = compiled("tree_lstm", given, {"D": EMBEDDING, "H": width}, threads)
        engines = peers.lstm_engines(weights, threads)
        own: peers.Engines = {
            "anydim": partial(lstm_of_arrays, model, table),
            "anydim, from nested tuples": partial(lstm_of_tuples, model, table),
        }
        for count in counts:
            trees = random_trees(count, count)
            calls = {name: partial(f, trees) for name, f in {**own, **engines}.items()}
            title = f"Tree-LSTM, hidden {width}, {count} trees, {trees.nodes} nodes"
            row(title, calls, lstm_reference(trees, weights), threads)


def lstm_of_arrays(model: ad.Model, table: Array, trees: Trees) -> Any:
    leaves, inner = {"x": table[trees.words]}, {"left": trees.left, "right": trees.right}
    return model(t=ad.Structure({"leaf": leaves, "node": inner}, trees.roots))["h"]


def lstm_of_tuples(model: ad.Model, table: Array, trees: Trees) -> Any:
    return model(t=[tuples(each, table) for each in trees.nested])["h"]


def tuples(tree: Any, table: Array) -> Any:
    """A tree as nested tuples."""
    if isinstance(tree, int):
        return ("leaf", table[tree])
    return ("node", tuples(tree[0], table), tuples(tree[1], table))


# ---- MV-RNN and a DAG-RNN ------------------------------------------------------------------------


def vectors(counts: Sequence[int], threads: int, width: int = 32) -> None:
    """A vector and a matrix for each node."""
    random = np.random.default_rng(2)

    def drawn(*shape: int) -> Array:
        return np.asarray(random.standard_normal(shape) * width**-0.5, np.float32)

    weights = {"W": drawn(2, width, width), "M": drawn(2, width, width)}
    x, m = drawn(WORDS, width), drawn(WORDS // 10, width, width)
    model = compiled("matrix_vector", weights, {"D": width}, threads)

    def own(trees: Trees) -> Any:
        leaves = {"x": x[trees.words], "m": m[trees.words % len(m)]}
        inner = {"left": trees.left, "right": trees.right}
        return model(t=ad.Structure({"leaf": leaves, "node": inner}, trees.roots))["p"]

    engines = {"anydim": own, **peers.vector_engines(weights, x, m)}
    for count in counts:
        trees = random_trees(count, count)

        done = [(x[w].astype(float), m[w % len(m)].astype(float)) for w in trees.words]
        w, v = (weights[name].astype(float) for name in "WM")
        for left, right in zip(trees.left, trees.right):
            (a, one), (b, other) = done[left], done[right]
            p = np.tanh(w[0] @ (other @ a) + w[1] @ (one @ b))
            done.append((p, v[0] @ one + v[1] @ other))
        calls = {name: partial(f, trees) for name, f in engines.items()}
        expected = np.stack([done[root][0] for root in trees.roots])
        row(f"MV-RNN, width {width}, {count} trees, {trees.nodes} nodes", calls, expected, threads)


def grids(counts: Sequence[int], threads: int, side: int = 10, width: int = 128) -> None:
    """A recurrent network on grids: a cell follows those above it and to its left."""
    random = np.random.default_rng(3)

    def drawn(*shape: int) -> Array:
        return np.asarray(random.standard_normal(shape) * 0.5 * width**-0.5, np.float32)

    weights = {name: drawn(width, width) for name in "WUV"}
    model = compiled("grid", weights, {"D": width, "H": width}, threads)

    def own(cells: peers.Cells) -> Any:
        fields = {"x": cells.x, "up": cells.up, "left": cells.left}
        return model(t=ad.Structure({"cell": fields}, cells.roots))["h"]

    engines = {"anydim": own, **peers.grid_engines(weights)}
    for count in counts:
        x = np.asarray(random.standard_normal((count * side * side, width)), np.float32)
        number = np.arange(1, len(x) + 1).reshape(count, side, side)  # node 0: no cell
        up, left = np.zeros_like(number), np.zeros_like(number)
        up[:, 1:], left[:, :, 1:] = number[:, :-1], number[:, :, :-1]
        roots = number[:, -1, -1].copy()
        done = [np.zeros(width)]
        w, u, v = (weights[name].astype(float) for name in "WUV")
        for a, b, each in zip(up.reshape(-1), left.reshape(-1), x):
            done.append(np.tanh(each @ w + done[a] @ u + done[b] @ v))
        cells = peers.Cells(x, up.reshape(-1), left.reshape(-1), roots)
        calls = {name: partial(f, cells) for name, f in engines.items()}
        expected = np.stack([done[root] for root in roots])
        title = f"DAG-RNN, {count} grids of {side} x {side} cells, width {width}"
        row(title, calls, expected, threads)


# ---- a shift-reduce parser -----------------------------------------------------------------------


def spinn(hidden: Sequence[int], threads: int, count: int = 32, tracking: int = 64) -> None:
    for width in hidden:
        given = shift_reduce.weights(EMBEDDING, width, tracking)
        engines = shift_reduce.engines(given, threads)
        batch = shift_reduce.sentences(count, EMBEDDING)
        calls = {name: partial(engine, batch) for name, engine in engines.items()}
        title = f"SPINN-like, hidden {width}, {count} sentences, {int(batch.length.sum())} words"
        row(title, calls, shift_reduce.reference(batch, given), threads)


# ---- many nodes ----------------------------------------------------------------------------------


def bush_reference(x: Array, children: Sequence[Sequence[int]], roots: Array, w: Array, u: Array
) -> Array:  # fmt: skip
    """h of the roots; nodes have higher numbers than their parents."""
    done: list[Array] = [np.zeros(0)] * len(x)
    p = x.astype(np.float64) @ w
    for node in range(len(x) - 1, -1, -1):
        total = sum((done[child] for child in children[node]), np.zeros(w.shape[1]))
        done[node] = np.tanh(p[node] + total @ u)
    return np.stack([done[root] for root in roots])


def long(threads: int) -> None:
    """The time of a call over the number of nodes: chains, stars, forests of single nodes."""
    now = clock(threads)
    width, random = 8, np.random.default_rng(4)
    w, u = (np.asarray(random.standard_normal((width, width)) / 4, np.float32) for _ in "wu")
    model = compiled("child_sums", {"W": w, "U": u}, {"D": width, "H": width}, threads)
    print(f"{'nodes':>8} {'chain':>11} {'star':>11} {'single':>11} {'pairs':>11}   ms; ns a node")
    for count in (100, 1_000, 10_000, 100_000):
        x = np.asarray(random.standard_normal((count, width)), np.float32)
        whole = np.arange(count)
        half = count // 2
        forms: dict[str, tuple[list[list[int]], Array]] = {
            "chain": ([*([n + 1] for n in range(count - 1)), []], whole[:1]),
            "star": ([list(range(1, count)), *([] for _ in range(count - 1))], whole[:1]),
            "single": ([[] for _ in range(count)], whole),
            "pairs": ([*([half + n] for n in range(half)), *([] for _ in range(half))],
                      whole[:half]),
        }  # fmt: skip
        spent = []
        for name, (children, roots) in forms.items():
            offsets = np.cumsum([0, *map(len, children)])
            edges = np.array([child for own in children for child in own], np.int64)
            made = ad.Structure({"bush": {"x": x, "children": (edges, offsets)}}, roots)
            expected = bush_reference(x, children, roots, w, u)
            off = difference(model(t=made)["h"], expected)
            if off > 1e-4 * max(1.0, float(np.abs(expected).max())):
                raise SystemExit(f"{name}, {count} nodes: off by {off}")
            times = []
            for _ in range(5 if count > 10_000 else 15):
                start = now()
                model(t=made)
                times.append(now() - start)
            spent.append(median(times))
        print(f"{count:8} " + " ".join(f"{s * 1e3:11.3f}" for s in spent) + "   "
              + " ".join(f"{s / count * 1e9:7.0f}" for s in spent), flush=True)  # fmt: skip


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    words = parser(__doc__)
    words.add_argument(
        "parts", nargs="*", choices=["lstm", "vectors", "grids", "spinn", "long", []]
    )
    words.add_argument("--hidden", type=numbers, default=[256, 512])
    words.add_argument("--trees", type=numbers, default=[1, 10, 64])
    words.add_argument("--threads", type=int, default=1)
    given = words.parse_args()
    parts = given.parts or ["lstm", "vectors", "grids", "spinn", "long"]
    for part in parts:
        if part == "lstm":
            lstm(given.hidden, given.trees, given.threads)
        elif part == "vectors":
            vectors(given.trees, given.threads)
        elif part == "grids":
            grids([1, 16], given.threads)
        elif part == "spinn":
            spinn(given.hidden, given.threads)
        else:
            long(given.threads)


if __name__ == "__main__":
    main()
