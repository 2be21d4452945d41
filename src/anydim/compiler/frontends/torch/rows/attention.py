"""Scaled dot-product attention, built by the functions of ONNX's Attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anydim.base.dtypes import boolean
from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.nesting import BuilderNode
from anydim.compiler.frontends.onnx.operators.attention import (
    operands_of,
    scale_of,
    scores_of,
    weighted_values,
)
from anydim.compiler.frontends.torch.builder import Build, TorchBuilder
from anydim.compiler.frontends.torch.refusal import Refused
from anydim.sizes import Size, maximum, product


def scaled_dot_product(
    g: TorchBuilder, query: Value, key: Value, value: Value, mask: Value | None = None,
    dropout: float = 0.0, causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:  # fmt: skip
    """Axes before the last two are batch and heads; the mask broadcasts.

    `enable_gqa`: the heads of keys and values are repeated to the number of query heads.
    """
    if dropout:
        raise Refused("dropout inside attention")
    rank = len(query.shape)
    if mask is not None and len(mask.shape) > rank:
        raise Refused(f"a mask of {len(mask.shape)} axes for queries of {rank}")
    query, key, value = _of_equal_batches(g, (query, key, value), enable_gqa)
    lead = query.shape[:-2]
    query, key, value = (_with_heads(g, each) for each in (query, key, value))
    if mask is not None and rank > 4:
        whole = g.expand(mask, shape=(*lead, query.shape[2], key.shape[2]))
        mask = _with_heads(g, whole)
    if mask is not None and mask.dtype != boolean:
        mask = g.as_type(mask, query.dtype)
    made = _attend(g, (query, key, value), mask, causal, scale)
    return made if rank == 4 else g.reshape(made, shape=(*lead, *made.shape[-2:]))


def _of_equal_batches(
    g: TorchBuilder, given: Sequence[Value], enable_gqa: bool
) -> tuple[Value, Value, Value]:
    """Broadcasts batch axes of query, key and value.

    With `enable_gqa`, keys and values keep their own, equal, number of heads.
    """
    first = -3 if enable_gqa and len(given[0].shape) > 2 else -2
    if first == -3:
        given = _match_heads(g, *given)
    lead = g.broadcast_shape(*(each.shape[:first] for each in given))
    query, key, value = (
        g.expand(each, shape=(*lead, *each.shape[first:])) if each.shape[:first] != lead else each
        for each in given
    )
    return query, key, value


def _match_heads(g: TorchBuilder, query: Value, key: Value, value: Value) -> list[Value]:
    """Checks that heads divide; repeats heads if keys and values have different numbers."""
    heads = query.shape[-3]
    for name, each in (("keys", key), ("values", value)):
        own = maximum(each.shape[-3], 1)
        g.require(heads % own, "==", 0, f"the heads of {name} divide those of queries")
    if not g.proved(key.shape[-3], "==", value.shape[-3]):
        key, value = (_repeat_heads(g, each, heads) for each in (key, value))
    return [query, key, value]


def _repeat_heads(g: TorchBuilder, value: Value, heads: Size) -> Value:
    """Repeats each head to reach a number of heads."""
    *lead, own, rows, depth = value.shape
    group = heads // maximum(own, 1)
    apart = g.unsqueeze(value, axes=(len(lead) + 1,))
    whole = g.expand(apart, shape=(*lead, own, group, rows, depth))
    return g.reshape(whole, shape=(*lead, heads, rows, depth))


def _attend(
    g: TorchBuilder, given: tuple[Value, Value, Value], mask: Value | None, causal: bool,
    scale: float | None,
) -> Value:  # fmt: skip
    """Attention of [batch, heads, rows, depth]; a row whose mask allows no key has the result 0.

    Other rows with a score that is NaN have the result NaN.
    """
    call = BuilderNode(g, "attention")
    query, key, value = given
    operands = operands_of(call, query.name, key.name, value.name)
    number = scale_of(call, scale, operands.depth, operands.dtype)
    shape = operands.parts if operands.grouped else operands.whole
    if mask is not None and operands.grouped:
        mask = _by_groups(g, mask, shape)
    raw = Value(g, scores_of(call, operands, number, shape))
    scores = _mask_scores(g, raw, mask, causal)
    shares = (
        g.softmax(scores, axis=-1) if mask is None else g.call_definition("masked_softmax", scores)
    )
    return Value(g, weighted_values(call, shares.name, operands, flat=False))


def _by_groups(g: TorchBuilder, mask: Value, parts: Sequence[Size]) -> Value:
    """Reshapes a mask of [batch, heads, ...] for scores of [batch, kept, group, ...]."""
    if len(mask.shape) < 3:
        return mask
    *lead, own, rows, columns = mask.shape
    if own.constant == 1:
        return g.unsqueeze(mask, axes=(len(lead),))
    _, kept, group, *_ = parts
    if not g.proved(own, "==", kept * group):
        mask = g.expand(mask, shape=(*lead, kept * group, rows, columns))
    return g.reshape(mask, shape=(*lead, kept, group, rows, columns))


def _mask_scores(g: TorchBuilder, scores: Value, mask: Value | None, causal: bool) -> Value:
    """Masks scores: a bool mask selects, another one is added."""
    lowest = g.scalar(float("-inf"), scores.dtype)
    if causal:
        rows, columns = scores.shape[-2:]
        place = g.unsqueeze(g.positions(rows), axes=(1,))
        scores = g.where(g.less_equal(g.positions(columns), place), scores, lowest)
    if mask is None:
        return scores
    return g.where(mask, scores, lowest) if mask.dtype == boolean else g.add(scores, mask)


def _with_heads(g: TorchBuilder, value: Value) -> Value:
    """[..., heads, rows, depth] with one axis before heads; missing axes are 1."""
    lead, inner = value.shape[:-3], value.shape[-3:]
    if len(lead) == 1:
        return value
    if len(inner) == 2:
        return g.unsqueeze(value, axes=(0, 1))
    return g.reshape(value, shape=(product(lead), *inner))


def efficient(
    g: TorchBuilder, query: Value, key: Value, value: Value, dropout: float = 0.0,
    causal: bool = False, *, attn_mask: Value | None = None, scale: float | None = None,
    **_: Any,
) -> list[Value]:  # fmt: skip
    """(result, the logarithm of sums, which only derivatives use).

    torch calls it where all batches are equal, and heads too or with `enable_gqa`.
    """
    made = scaled_dot_product(
        g, query, key, value, attn_mask, dropout, causal, scale=scale, enable_gqa=True
    )
    return [made]


ROWS: dict[str, Build] = {
    "scaled_dot_product_attention.default": scaled_dot_product,
    "_scaled_dot_product_flash_attention_for_cpu.default": efficient,
}  # fmt: skip
