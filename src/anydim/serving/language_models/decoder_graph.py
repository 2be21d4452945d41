"""The graph of a decoder: new tokens and caches in, logits of some of them and caches out.

    ids [b, s], picks [b, k], states [b, h], keys_i and values_i [b, kept, past, depth]
        -> logits [b, k, vocabulary], hidden [b, h, width],
           new_keys_i and new_values_i [b, kept, past + s, depth]

Caches of int8 are codes, each with `keys_scales_i` and `values_scales_i` float32 [b, kept, past].

`picks` are the places of the tokens whose logits are computed, among the new ones; -1 is the last
one. `states` are those whose last hidden states are wanted.

One graph for all architectures; `DecoderSpec` says what differs. Weights are constants with the
bits that they have in their file, which are read again whenever they are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy

from anydim.base.dtypes import DTYPES, float32, int8, int64
from anydim.compiler.frontends.builder import Builder
from anydim.compiler.frontends.values import Value
from anydim.compiler.graph.nodes import Constant, Graph
from anydim.lang.surface.parser import parse
from anydim.lang.surface.syntax import Definition
from anydim.serving.language_models.decoder_caches import OPTIONAL, cache_names
from anydim.serving.language_models.decoder_spec import CODES, DecoderSpec, LayerSpec, Rope
from anydim.serving.language_models.matrices import Blocks, Matrix
from anydim.sizes import Size

Weights = Callable[[str], "Matrix | None"]
"""A weight by its name (`tensor_names.py`), read at each call, by any thread; None for one that the
decoder does not have."""
Values = tuple[Value, ...]

_ACTIVATIONS = {"silu": "swish", "gelu": "gelu", "gelu_tanh": "gelu_tanh"}


def build_decoder(spec: DecoderSpec, weights: Weights, name: str) -> Graph:
    """Build the graph of a decoder. Raises ModelError for weights of other sizes."""
    return _Decoder(spec, weights, name).build()


@cache
def _expert_products() -> dict[str, Definition]:
    """The definitions of `expert_products.tc` by name."""
    path = Path(__file__).with_name("expert_products.tc")
    return parse(path.read_text(encoding="utf-8"), path.name)


class _Decoder:
    def __init__(self, spec: DecoderSpec, weights: Weights, name: str) -> None:
        self.spec, self.weights = spec, weights
        self.g = g = Builder(name)
        self.batch, self.count = g.dim("b"), g.dim("s")
        self.past = g.dim("past", 0, spec.context)
        self._rotations: dict[Rope, tuple[Value, Value]] = {}
        self._allowed: dict[int | None, Value] = {}
        self._sums: dict[tuple[str, int], Value] = {}
        self._constants: dict[tuple[str, str], Value] = {}

    def build(self) -> Graph:
        g, spec = self.g, self.spec
        ids = g.input("ids", int64, (self.batch, self.count))
        picks, states = (
            g.input(name, int64, (self.batch, g.dim(dim))) for name, dim in OPTIONAL.items()
        )
        caches = [self._caches(number) for number in range(len(spec.layers))]
        self.positions = g.add(g.range(count=self.count), self._size(self.past))
        x = self._embed(ids)
        grown = []
        for number, layer in enumerate(spec.layers):
            x, made = self._layer(x, f"layers.{number}.", layer, caches[number])
            grown.append(made)
        logits = self._linear(self._normed_at(x, picks), "head", "embedding")
        g.output("logits", self._soft_cap(logits, spec.logit_cap))
        g.output("hidden", self._normed_at(x, states))
        for number, made in enumerate(grown):
            for name, value in zip(cache_names(spec, number), made):
                g.output(f"new_{name}", value)
        return g.graph()

    def _normed_at(self, x: Value, places: Value) -> Value:
        """The last norm of the hidden states at some places of each row."""
        return self._norm(self.g.gather_nd(x, self.g.unsqueeze(places, axes=(2,)), batch_dims=1),
                          "norm")  # fmt: skip

    def _caches(self, number: int) -> Values:
        """The inputs of a layer's caches."""
        shape, kind = (self.batch, self.spec.kept, self.past), DTYPES[self.spec.cache]
        return tuple(
            self.g.input(name, float32, shape) if "scales" in name
            else self.g.input(name, kind, (*shape, self.spec.depth))
            for name in cache_names(self.spec, number)
        )  # fmt: skip

    def _size(self, size: Size) -> Value:
        return self.g.size_tensor(values=(size,), scalar=True)

    # ---- parts of a layer ------------------------------------------------------------------------

    def _layer(self, x: Value, name: str, layer: LayerSpec, caches: Values) -> tuple[Value, Values]:
        """The layer's result, and its caches with the new tokens."""
        mixed, grown = self._attention(self._norm(x, f"{name}norm1"), name, layer, caches)
        mixed = self._norm(mixed, f"{name}post1")
        if self.spec.parallel:
            return x + mixed + self._feed_forward(self._norm(x, f"{name}norm2"), name), grown
        x = x + mixed
        part = self._mixture if layer.is_sparse else self._feed_forward
        wide = part(self._norm(x, f"{name}norm2"), name)
        return x + self._norm(wide, f"{name}post2"), grown

    def _attention(
        self, x: Value, name: str, layer: LayerSpec, caches: Values
    ) -> tuple[Value, Values]:
        g, spec = self.g, self.spec
        query, key, value = (
            self._heads(self._linear(x, f"{name}{part}"), count)
            for part, count in (("q", spec.heads), ("k", spec.kept), ("v", spec.kept))
        )
        query, key = self._norm(query, f"{name}q_norm"), self._norm(key, f"{name}k_norm")
        if layer.rope is not None:
            query, key = (self._rotate(part, layer.rope) for part in (query, key))
        half = len(caches) // 2
        keys, values = self._grow(caches[:half], key), self._grow(caches[half:], value)
        read_keys, read_values = self._floats(keys), self._floats(values)
        group = spec.heads // spec.kept
        query = g.reshape(query, shape=(self.batch, spec.kept, group, self.count, spec.depth))
        scores = g.einsum(query, read_keys, equation="bhgid,bhjd->bhgij")
        scores = self._soft_cap(scores * numpy.float32(spec.score_scale), spec.score_cap)
        scores = g.where(self._mask(layer.window), scores, numpy.float32("-inf"))
        mixed = g.einsum(g.softmax(scores, axis=-1), read_values, equation="bhgij,bhjd->bhgid")
        mixed = g.transpose(mixed, perm=(0, 3, 1, 2, 4))
        mixed = g.reshape(mixed, shape=(self.batch, self.count, spec.heads * spec.depth))
        return self._linear(mixed, f"{name}o"), (*keys, *values)

    def _grow(self, cache: Values, new: Value) -> Values:
        """A cache with new keys or values [b, kept, s, depth] behind it."""
        parts = (
            self._codes(new) if self.spec.cache == CODES else (self._cast(new, self.spec.cache),)
        )
        return tuple(self.g.concat(old, part, axis=2) for old, part in zip(cache, parts))

    def _codes(self, x: Value) -> Values:
        """Codes of 8 bits, and for each token of a head a scale: the largest number is 127."""
        g = self.g
        scales = g.reduce_max(g.abs(x), axes=(-1,)) * numpy.float32(1 / 127)
        by = g.where(g.greater(scales, numpy.float32(0)), scales, numpy.float32(1))
        codes = g.round(x / g.unsqueeze(by, axes=(-1,)))
        limits = (numpy.float32(-127), numpy.float32(127))  # scales of subnormal numbers round
        return g.cast(g.clip(codes, *limits), to=int8), scales

    def _floats(self, cache: Values) -> Value:
        """What a cache holds, in float32."""
        if self.spec.cache != CODES:
            return self._cast(cache[0], "float32")
        codes, scales = cache
        return self.g.cast(codes, to=float32) * self.g.unsqueeze(scales, axes=(-1,))

    def _cast(self, x: Value, dtype: str) -> Value:
        return x if self.spec.cache == "float32" else self.g.cast(x, to=DTYPES[dtype])

    def _heads(self, x: Value, count: int) -> Value:
        g, shape = self.g, (self.batch, self.count, count, self.spec.depth)
        return g.transpose(g.reshape(x, shape=shape), perm=(0, 2, 1, 3))

    def _feed_forward(self, x: Value, name: str) -> Value:
        wide = self._linear(x, f"{name}up")
        act = getattr(self.g, _ACTIVATIONS[self.spec.activation])
        if self.weights(f"{name}gate.weight") is None:
            return self._linear(act(wide), f"{name}down")
        return self._linear(act(self._linear(x, f"{name}gate")) * wide, f"{name}down")

    def _mixture(self, x: Value, name: str) -> Value:
        """The sum of each token's experts by their probabilities, and of the shared one."""
        g, experts = self.g, self.spec.experts
        assert experts is not None  # of sparse layers
        every = g.softmax(self._linear(x, f"{name}router"), axis=-1)
        shares, chosen = g.top_k(every, k=experts.used, axis=-1)
        if experts.is_normalised:
            shares = shares / g.reduce_sum(shares, axes=(-1,), keepdims=True)
        act = getattr(g, _ACTIVATIONS[self.spec.activation])
        gate, up = (self._by_experts("spread", x, chosen, f"{name}expert_{part}.weight")
                    for part in ("gate", "up"))  # fmt: skip
        made = self._by_experts("each", act(gate) * up, chosen, f"{name}expert_down.weight")
        made = g.reduce_sum(made * g.unsqueeze(shares, axes=(-1,)), axes=(2,))
        if not experts.is_shared:
            return made
        scale = g.sigmoid(self._linear(x, f"{name}shared_scale"))
        return made + scale * self._feed_forward(x, f"{name}shared_")

    def _by_experts(self, how: str, x: Value, chosen: Value, name: str) -> Value:
        """Products with the matrices of the chosen experts: [b, s, experts of a token, n]."""
        g, matrix = self.g, self.weights(name)
        assert matrix is not None  # checked when names are resolved
        products = _expert_products()
        if not isinstance(matrix, Blocks):
            weights = self._constant(name, "", lambda array: numpy.asarray(array, numpy.float32))
            return g.call(products[how], x, chosen, weights)
        parts = (self._constant(name, "codes"), self._constant(name, "scales"))
        made = g.call(products[f"{how}_codes"], x, chosen, *parts, D=matrix.block)
        if matrix.minima is None:
            return made
        sums = self._block_sums(x, matrix.block)
        return made + g.call(products[how], sums, chosen, self._constant(name, "minima"))

    def _norm(self, x: Value, name: str) -> Value:
        """A norm over the last axis; x itself where there is none of this name."""
        scale = self._vector(f"{name}.weight")
        if scale is None:
            return x
        g, epsilon = self.g, numpy.float32(self.spec.epsilon)
        if self.spec.norm == "layer":
            x = x - g.reduce_mean(x, axes=(-1,), keepdims=True)
        square = g.reduce_mean(x * x, axes=(-1,), keepdims=True)
        made = x * g.rsqrt(square + epsilon) * g.constant(scale + self.spec.norm_offset)
        bias = self._vector(f"{name}.bias")
        return made if bias is None else made + g.constant(bias)

    def _rotate(self, x: Value, rope: Rope) -> Value:
        if rope not in self._rotations:
            self._rotations[rope] = self._angles(rope)
        cos, sin = self._rotations[rope]
        return self.g.rotary_embedding(x, cos, sin, interleaved=rope.interleaved, width=rope.width)

    def _angles(self, rope: Rope) -> tuple[Value, Value]:
        """Cosines and sines of the new positions: [b, s, pairs]."""
        g = self.g
        angles = g.unsqueeze(g.cast(self.positions, to=float32), axes=(1,)) * rope.radians
        cos, sin = (
            g.expand(
                g.unsqueeze(table * numpy.float32(rope.magnitude), axes=(0,)),
                shape=(self.batch, self.count, len(rope.frequencies)),
            )
            for table in (g.cos(angles), g.sin(angles))
        )
        return cos, sin

    def _mask(self, window: int | None) -> Value:
        """bool [s, past + s]: the keys that each new token sees."""
        if window not in self._allowed:
            g = self.g
            every = g.range(count=self.past + self.count)
            own = g.unsqueeze(self.positions, axes=(1,))
            allowed = g.less_equal(every, own)
            if window is not None:
                allowed = g.logical_and(allowed, g.greater(every, own - window))
            self._allowed[window] = allowed
        return self._allowed[window]

    def _soft_cap(self, x: Value, cap: float) -> Value:
        return self.g.tanh(x / numpy.float32(cap)) * numpy.float32(cap) if cap else x

    # ---- weights ---------------------------------------------------------------------------------

    def _embed(self, ids: Value) -> Value:
        x = self._rows("embedding.weight", ids)
        if self.spec.embedding_scale != 1:
            x = x * numpy.float32(self.spec.embedding_scale)
        places = "places.weight"
        return x if self.weights(places) is None else x + self._rows(places, self.positions)

    def _rows(self, name: str, at: Value) -> Value:
        """Rows of a table, in float32."""
        g, table = self.g, self.weights(name)
        assert table is not None  # checked when names are resolved
        if not isinstance(table, Blocks):
            return g.cast(g.gather(self._constant(name), at, axis=0), to=float32)
        codes, scales = (
            g.gather(self._constant(name, part), at, axis=0) for part in ("codes", "scales")
        )
        made = g.cast(codes, to=float32) * self._spread(scales, table.block)
        if table.minima is None:
            return made
        minima = g.gather(self._constant(name, "minima"), at, axis=0)
        return made + self._spread(minima, table.block)

    def _spread(self, blocks: Value, block: int) -> Value:
        """Repeat the last axis for each element of a block."""
        g = self.g
        *outer, count = blocks.shape
        wide = g.expand(g.unsqueeze(blocks, axes=(-1,)), shape=(*outer, count, block))
        return g.reshape(wide, shape=(*outer, count * block))

    def _linear(self, x: Value, name: str, otherwise: str = "") -> Value:
        """x [..., in] times the transposed weights [out, in], plus a bias."""
        g, held = self.g, f"{name}.weight"
        matrix = self.weights(held)
        if matrix is None:
            held = f"{otherwise}.weight"
            matrix = self.weights(held)
        assert matrix is not None  # checked when names are resolved
        if isinstance(matrix, Blocks):
            made = self._block_product(x, held, matrix)
        else:
            made = g.matmul(x, g.transpose(g.cast(self._constant(held), to=float32)))
        bias = self._vector(f"{name}.bias")
        return made if bias is None else made + g.constant(bias)

    def _block_product(self, x: Value, name: str, matrix: Blocks) -> Value:
        """A product with weights of few bits; minima are a product with sums of blocks of x."""
        g = self.g
        if matrix.order is not None:
            x = g.gather(x, self._constant(name, "order"), axis=-1)
        codes, scales = self._constant(name, "codes"), self._constant(name, "scales")
        weights = g.dequantize(codes, scales, axis=1, block=matrix.block)
        made = g.matmul(x, g.transpose(weights))
        if matrix.minima is None:
            return made
        return made + g.matmul(
            self._block_sums(x, matrix.block), g.transpose(self._constant(name, "minima"))
        )

    def _block_sums(self, x: Value, block: int) -> Value:
        key = (x.name, block)
        if key not in self._sums:
            *outer, width = x.shape
            parts = self.g.reshape(x, shape=(*outer, width // block, block))
            self._sums[key] = self.g.reduce_sum(parts, axes=(-1,))
        return self._sums[key]

    def _vector(self, name: str) -> numpy.ndarray | None:
        found = self.weights(name)
        if found is None:
            return None
        array = found.floats() if isinstance(found, Blocks) else found
        return numpy.asarray(array, numpy.float32).reshape(-1)

    def _constant(
        self, name: str, part: str = "",
        change: Callable[[numpy.ndarray], numpy.ndarray] = lambda array: array,
    ) -> Value:  # fmt: skip
        """A weight, or a part of it; tied weights are one value."""
        key, weights = (name, part), self.weights
        if key not in self._constants:

            def read() -> numpy.ndarray:
                matrix: Any = weights(name)
                return change(getattr(matrix, part) if part else matrix)

            first = read()
            self._constants[key] = self.g.constant(
                Constant.of_reader(read, first.dtype, first.shape)
            )
        return self._constants[key]
