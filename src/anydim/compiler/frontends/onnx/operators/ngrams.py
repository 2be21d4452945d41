"""The row of TfIdfVectorizer: n-gram counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from anydim.base.dtypes import boolean, float32, int64
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result


def tf_idf(call: OnnxNode) -> Result:
    """Counts of n-grams of integers, weighted according to `mode`."""
    pool = call.attribute("pool_int64s")
    if not pool:
        raise Unsupported("n-grams of strings")
    rank, mode = call.type(0).rank, call.attribute("mode")
    if rank not in (1, 2) or mode not in ("TF", "IDF", "TFIDF"):
        raise Unsupported(f"a tensor with {rank} axes, mode {mode!r}")
    x = call.input(0) if rank == 2 else call.emit("unsqueeze", call.input(0), axes=(0,))
    columns = tuple(call.attribute("ngram_indexes"))
    if not columns or min(columns) < 0:
        raise Unsupported("ngram_indexes that are no columns")
    shortest, longest = call.attribute("min_gram_length"), call.attribute("max_gram_length")
    counts = call.emit(
        "ngram_counts", x, *(call.numbers(t, int64) for t in _trie(call, pool, columns)),
        count=max(columns) + 1, shortest=shortest, longest=longest,
        skips=call.attribute("max_skip_count"),
    )  # fmt: skip
    if mode != "TF":
        counts = _weigh(call, counts, mode, max(columns) + 1)
    return counts if rank == 2 else call.emit("reshape", counts, shape=(max(columns) + 1,))


def _weigh(call: OnnxNode, counts: str, mode: str, count: int) -> str:
    if mode == "IDF":
        counts = call.emit("cast", call.emit("cast", counts, to=boolean), to=float32)
    weights = call.attribute("weights")
    if not weights:
        return counts
    if len(weights) != count:
        raise Unsupported(f"{len(weights)} weights of {count} columns")
    return call.emit("mul", counts, call.numbers(weights, float32))


def _sequences(call: OnnxNode, pool: Sequence[int]) -> Iterator[tuple[int, Sequence[int]]]:
    """The number and the elements of each n-gram with a requested length."""
    starts = tuple(call.attribute("ngram_counts"))
    shortest, longest = call.attribute("min_gram_length"), call.attribute("max_gram_length")
    number = 0
    for size, (low, high) in enumerate(zip(starts, (*starts[1:], len(pool))), 1):
        if not 0 <= low <= high <= len(pool):
            raise Unsupported("ngram_counts that leave the pool")
        for start in range(low, high - size + 1, size):
            if shortest <= size <= longest:
                yield number, pool[start : start + size]
            number += 1


def _trie(call: OnnxNode, pool: Sequence[int], columns: Sequence[int]) -> list[list[int]]:
    """The tables of `ngram_counts`."""
    children: list[dict[int, int]] = [{}]
    ends = [-1]
    for number, sequence in _sequences(call, pool):
        if number >= len(columns):
            raise Unsupported("more n-grams than ngram_indexes")
        node = 0
        for value in sequence:
            if value not in children[node]:
                children[node][value] = len(children)
                children.append({})
                ends.append(-1)
            node = children[node][value]
        ends[node] = columns[number]
    links = [item for own in children for item in sorted(own.items())]
    first = [0, *accumulate(len(own) for own in children)]
    return [first, [key for key, _ in links], [node for _, node in links], ends]
