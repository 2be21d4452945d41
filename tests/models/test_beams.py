"""Promise: a loop whose state grows with every iteration gives what onnxruntime gives."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

import anydim as ad
from tests.models.building import compare, graph, model, node

WORDS, WIDTH = 11, 3


def search() -> onnx.ModelProto:
    """Beams [b, t] grow by the best next word each iteration, until all end or the limit is
    reached."""
    body = graph(
        "iteration", ["iteration l[]", "going b[]", "beams l[b, t]", "totals f[b]"],
        [
            node("last = Gather(beams, minus_one)", axis=1),
            node("rows = Gather(table, last)", axis=0),
            node("totals_column = Unsqueeze(totals, second)"),
            node("sums = Add(rows, totals_column)"),
            node("flat = Reshape(sums, all)"),
            node("best, places = TopK(flat, width)", axis=0),
            node("beam = Div(places, words)"),
            node("word = Mod(places, words)"),
            node("chosen = Gather(beams, beam)", axis=0),
            node("column = Unsqueeze(word, second)"),
            node("longer = Concat(chosen, column)", axis=1),
            node("open = Greater(word, zero)"),
            node("numbers = Cast(open)", to=7),
            node("left = ReduceMax(numbers)", keepdims=0),
            node("go = Cast(left)", to=9),
            node("top = ReduceMax(best)", keepdims=0),
        ],
        ["go b[]", "longer l[b, t]", "best f[b]", "top f[]"],
    )  # fmt: skip
    outer = [
        helper.make_node(
            "Loop", ["limit", "yes", "start", "totals_at_start"], ["beams", "totals", "history"],
            name="/search", body=body,
        ),
    ]  # fmt: skip
    rng = np.random.default_rng(5)
    constants = {
        "table": rng.uniform(-3, 0, (WORDS, WORDS)).astype(np.float32),
        "minus_one": np.array(-1, np.int64), "second": np.array([1], np.int64),
        "all": np.array([-1], np.int64), "width": np.array([WIDTH], np.int64),
        "words": np.array(WORDS, np.int64), "zero": np.array(0, np.int64),
        "yes": np.array(True),
    }  # fmt: skip
    inputs = ["start l[b, t]", "totals_at_start f[b]", "limit l[]"]
    outputs = ["beams l[x, y]", "totals f[x]", "history f[iterations]"]
    return model(graph("search", inputs, outer, outputs, constants))


def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
    length = int(rng.integers(1, 9))
    return {
        "start": rng.integers(0, WORDS, (WIDTH, length)),
        "totals_at_start": rng.uniform(-1, 0, WIDTH).astype(np.float32),
        "limit": np.array(rng.choice([0, 1, 2, 3, 8, 20]), np.int64),
    }


def test_beams_are_those_of_onnxruntime() -> None:
    found = compare(search(), {"b": ad.Dim(WIDTH, WIDTH), "t": ad.Dim(1, 16)}, draw)
    iterations = {history.shape[0] for _, _, history in found}
    assert 0 in iterations and len(iterations) > 3
