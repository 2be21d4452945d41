"""Rows of ONNX operators on signals and texts: DFT, STFT, MelWeightMatrix, TfIdfVectorizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from anydim.base.dtypes import boolean, float32, int64
from anydim.compiler.frontends.onnx.file.tensors import Unsupported, element_type
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.sizes import Size


def fourier_transform(call: OnnxNode) -> Result:
    """DFT; the axis is an attribute before opset 20, an input since."""
    inverse = bool(call.attribute("inverse"))
    axis = call.attribute("axis") if call.opset < 20 else -2
    if call.opset >= 20 and call.given(2):
        axis = call.size(2).constant
    if axis is None:
        raise Unsupported("an axis that depends on a dim")
    call.axis(axis)
    onesided = bool(call.attribute("onesided"))
    length = call.shape(0)[axis]
    if inverse and onesided:
        length = 2 * (length - 1)
    if call.given(1):
        length = call.size(1)
    return call.emit(
        "dft", call.input(0), length=length, axis=axis, inverse=inverse, onesided=onesided
    )


def short_time_transform(call: OnnxNode) -> Result:
    length: Size = call.shape(2)[0] if call.given(2) else call.shape(0)[1]
    if call.given(3):
        length = call.size(3)
    signal = call.input(0)
    if call.type(0).rank == 2:  # real signals may lack the axis of real and imaginary parts
        signal = call.emit("unsqueeze", signal, axes=(2,))
    return call.emit(
        "stft", signal, *call.given_inputs(2), step=call.size(1), length=length,
        onesided=bool(call.attribute("onesided")),
    )  # fmt: skip


def mel_weights(call: OnnxNode) -> Result:
    return call.emit(
        "mel_weights", call.input(2), call.input(3), call.input(4), bins=call.size(0),
        length=call.size(1), dtype=element_type(call.attribute("output_datatype")),
    )  # fmt: skip


def window(*weights: float) -> Callable[[OnnxNode], Result]:
    """A window that is a sum of cosines with these weights."""

    def build(call: OnnxNode) -> Result:
        return call.emit(
            "cosine_window", size=call.size(0), weights=weights,
            periodic=bool(call.attribute("periodic")),
            dtype=element_type(call.attribute("output_datatype")),
        )  # fmt: skip

    return build


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
