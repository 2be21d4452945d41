"""What a decoder is: its sizes, norms, activations, positions and scales, without its weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy

from anydim.base.records import dataclass

CACHE_TYPES = ("float32", "float16", "bfloat16", "int8")
CODES = "int8"  # caches with a scale for each token of a head
QUANTIZED = {"q8": 8, "q4": 4}  # bits of codes


@dataclass(frozen=True)
class Rope:
    """Rotary positions (Su et al. 2021, arXiv:2104.09864) of the first elements of each head.

    Attributes:
        frequencies: Radians per position of each pair of elements.
        magnitude: Factor of cosines and sines (YaRN's attention factor).
        interleaved: Pairs are neighbours; otherwise, an element of each half.
    """

    frequencies: tuple[float, ...]
    magnitude: float = 1.0
    interleaved: bool = False

    @property
    def width(self) -> int:
        """Elements of a head that are rotated."""
        return 2 * len(self.frequencies)

    @property
    def radians(self) -> numpy.ndarray:
        """The frequencies, float32 [pairs]."""
        return numpy.array(self.frequencies, numpy.float32)


@dataclass(frozen=True)
class LayerSpec:
    """What layers differ in: the keys that a token sees, its own included (None: all before it),
    and the rotation of its positions (None: no rotation)."""

    window: int | None
    rope: Rope | None
    is_sparse: bool = False


@dataclass(frozen=True)
class Experts:
    """A mixture of experts (Shazeer et al. 2017, arXiv:1701.06538), in place of the feed-forward
    part of sparse layers.

    Attributes:
        count: Experts of a layer.
        used: Experts of each token: those with the largest probabilities by a softmax over all.
        is_normalised: Their probabilities are divided by their sum.
        is_shared: One more expert serves every token, scaled by a sigmoid (Qwen 2).
    """

    count: int
    used: int
    is_normalised: bool
    is_shared: bool = False


PARTS = frozenset({"norm1", "q", "k", "v", "o", "norm2", "gate", "up", "down"})
"""Weights of a usual layer (`tensor_names.py`)."""
_DENSE = frozenset({"gate", "up", "down"})
EXPERT_PARTS = frozenset({"expert_gate", "expert_up", "expert_down"})
"""Weights with an axis of experts."""
_SHARED_PARTS = frozenset({"shared_gate", "shared_up", "shared_down", "shared_scale"})


@dataclass(frozen=True)
class DecoderSpec:
    """A decoder. Sizes are in elements.

    Attributes:
        name: Name of the architecture.
        vocabulary: Tokens.
        width: Elements of a hidden state.
        heads: Heads of queries; `kept` of keys and values, `depth` elements each.
        layers: What each layer has of its own.
        context: Most tokens of a sequence.
        epsilon: Of norms.
        norm: 'rms' (Zhang and Sennrich 2019) or 'layer'.
        norm_offset: Addend of the scales of rms norms: 1 for Gemma.
        activation: 'silu', 'gelu' or 'gelu_tanh'.
        score_scale: Factor of products of queries and keys.
        score_cap: Soft cap of scores: cap * tanh(score / cap); 0: none. `logit_cap` likewise.
        embedding_scale: Factor of embeddings.
        parallel: Attention and feed-forward read the same hidden state and are added (GPT-NeoX).
        parts: Weights that each layer has; 'places' for a model with learned positions.
        experts: Those of sparse layers.
        cache: Element type of caches.
    """

    name: str
    vocabulary: int
    width: int
    heads: int
    kept: int
    depth: int
    layers: tuple[LayerSpec, ...]
    context: int
    epsilon: float
    norm: str = "rms"
    norm_offset: float = 0.0
    activation: str = "silu"
    score_scale: float = 1.0
    score_cap: float = 0.0
    logit_cap: float = 0.0
    embedding_scale: float = 1.0
    parallel: bool = False
    parts: frozenset[str] = PARTS
    experts: Experts | None = None
    cache: str = CACHE_TYPES[0]

    def parts_of(self, number: int) -> frozenset[str]:
        """The weights of a layer."""
        found = self.parts - {"places"}
        if self.experts is None or not self.layers[number].is_sparse:
            return found
        more = _SHARED_PARTS if self.experts.is_shared else frozenset()
        return found - _DENSE | EXPERT_PARTS | {"router"} | more

    @property
    def text(self) -> str:
        """All fields, in an order that does not depend on hashes."""
        return f"{replace(self, parts=frozenset())} {sorted(self.parts)}"

    def weight_names(self) -> Iterator[str]:
        """The weights that the decoder needs, without `.weight`."""
        yield from ("embedding", "norm")
        if "places" in self.parts:
            yield "places"
        for number in range(len(self.layers)):
            yield from (f"layers.{number}.{part}" for part in sorted(self.parts_of(number)))

    def expected_shape(self, stem: str) -> tuple[int | None, ...]:
        """The shape of a weight by its stem; None: any size."""
        queries, keys = self.heads * self.depth, self.kept * self.depth
        count = 0 if self.experts is None else self.experts.count
        return {
            "router": (count, self.width), "expert_gate": (count, None, self.width),
            "expert_up": (count, None, self.width), "expert_down": (count, self.width, None),
            "shared_gate": (None, self.width), "shared_up": (None, self.width),
            "shared_down": (self.width, None), "shared_scale": (1, self.width),
            "embedding": (self.vocabulary, self.width), "head": (self.vocabulary, self.width),
            "places": (None, self.width), "q": (queries, self.width), "k": (keys, self.width),
            "v": (keys, self.width), "o": (self.width, queries), "q_norm": (self.depth,),
            "k_norm": (self.depth,), "gate": (None, self.width), "up": (None, self.width),
            "down": (self.width, None),
        }.get(stem, (self.width,))  # fmt: skip
