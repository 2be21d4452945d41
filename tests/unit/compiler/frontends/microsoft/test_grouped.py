"""GroupQueryAttention beside onnxruntime: prompts and further rows, caches of any length."""

from __future__ import annotations

import numpy as np
import pytest

from anydim.compiler.frontends.onnx import import_model
from anydim.compiler.graph.verify import verify

pytest.importorskip("onnxruntime")

from tests.unit.compiler.frontends.microsoft.beside import beside, drawn, node, typed, written
from tests.unit.compiler.frontends.microsoft.grouped_cases import GROUPED, HEADS, TABLES

CACHE = ["p f[n, 2, past, 16]", "o f[n, 2, past, 16]", "l i[n]", "t i[]"]
INPUTS = {
    "x": "x f[n, m, 128]", "q": "q f[n, m, 64]", "k": "k f[n, m, 32]", "v": "v f[n, m, 32]",
    "i": "i l[n, m]",
}  # fmt: skip
# (sequences, new rows, rows of the cache, lengths with the new rows)
PROMPTS = [(1, 1, 0, [1]), (1, 5, 0, [5]), (3, 4, 0, [4, 4, 4]), (2, 5, 8, [5, 5])]
FURTHER = [
    (1, 1, 4, [5]),
    (2, 1, 7, [8, 8]),
    (1, 3, 4, [7]),
    (3, 1, 16, [9, 4, 6]),
    (1, 2, 16, [9]),
]


@pytest.mark.sampled(most=6)
@pytest.mark.parametrize("name", GROUPED)
def test_prompts_and_further_rows(name):
    more, names, attributes = GROUPED[name]
    used = names.replace(" ", "").split(",")
    inputs = [text for given, text in INPUTS.items() if given in used] + CACHE + more
    made = node(f"z, a, e = GroupQueryAttention({names})", **HEADS, **attributes)
    proto = written([made], inputs, ["z", "a", "e"], **TABLES)
    graph = verify(import_model(proto.SerializeToString()))
    typed(proto, graph)
    for batch, rows, past, lengths in PROMPTS + FURTHER:
        total = max(lengths)
        sizes = {"n": batch, "m": rows, "past": past, "w": total}
        feeds = {"l": np.int32(lengths) - 1, "t": np.array(total, np.int32)}
        if "b" in used and past > total:
            continue
        first = np.zeros(batch, int) if rows == total else np.int64(lengths) - rows
        filled = np.arange(past)[:, None] < first[:, None, None, None]
        for seed, cache in enumerate("po"):  # onnxruntime's rows behind the last are 0
            feeds[cache] = drawn(proto, sizes, seed)[cache] * np.float32(filled)
        if "i" in used:
            feeds["i"] = first[:, None] + np.arange(rows)
        beside(proto, sizes, graph, **feeds)


def test_no_scores_behind_the_longest_sequence():
    """A buffer with room for thousands costs no more than what is in it."""
    made = node("z, a, e = GroupQueryAttention(q, k, v, p, o, l, t)", **HEADS)
    inputs = [INPUTS[name] for name in "qkv"] + CACHE
    graph = import_model(written([made], inputs, ["z", "a", "e"]).SerializeToString())
    (softmax,) = (each for each in graph.nodes if each.operator == "softmax")
    assert not any("past" in size.symbols for size in graph.types[softmax.given[0]].shape)
