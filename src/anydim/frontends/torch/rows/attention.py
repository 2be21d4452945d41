"""Rows of scaled dot-product attention, by the rows of the standard's Attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anydim.base.dtypes import DType, boolean
from anydim.frontends.builder import Value
from anydim.frontends.nesting import BuilderNode
from anydim.frontends.onnx.operators.attention import (
    operands_of,
    scale_of,
    scores_of,
    weighted_values,
)
from anydim.frontends.torch.builder import TorchBuilder
from anydim.frontends.torch.record import Build
from anydim.frontends.torch.refusal import Refused
from anydim.sizes import product


class StandardNode(BuilderNode):
    """A node as rows of the standard's operators take it: with attributes, without inputs."""

    def __init__(self, g: TorchBuilder, stem: str, attributes: Mapping[str, Any]) -> None:
        super().__init__(g, stem)
        self.attributes = attributes

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def as_type(self, value: str, dtype: DType) -> str:
        return value if self.kind(value).dtype == dtype else self.emit("cast", value, to=dtype)


def scaled_dot_product(
    g: TorchBuilder, query: Value, key: Value, value: Value, mask: Value | None = None,
    dropout: float = 0.0, causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:  # fmt: skip
    """Axes before the last two are heads and batch; the mask broadcasts."""
    if dropout:
        raise Refused("dropout inside attention")
    rank = len(query.shape)
    lead = query.shape[:-2]
    if rank != 4:
        lead = g.broadcast_shape(query.shape[:-2], key.shape[:-2], value.shape[:-2])
        query, key, value = (_with_heads(g, each, lead) for each in (query, key, value))
    elif not enable_gqa:
        lead = g.broadcast_shape(*(each.shape[:-2] for each in (query, key, value)))
        query, key, value = (
            g.expand(each, shape=(*lead, *each.shape[-2:])) if each.shape[:-2] != lead else each
            for each in (query, key, value)
        )
    if mask is not None and rank != 4:
        whole = (*lead, query.shape[2], key.shape[2])
        mask = g.expand(mask, shape=whole)
        mask = g.reshape(mask, shape=(product(lead), 1, *whole[-2:]))
    if mask is not None and mask.dtype != boolean:
        mask = g.as_type(mask, query.dtype)
    made = _attended(g, (query, key, value), mask, causal, scale)
    return made if rank == 4 else g.reshape(made, shape=(*lead, *made.shape[-2:]))


def _attended(
    g: TorchBuilder, given: tuple[Value, Value, Value], mask: Value | None, causal: bool,
    scale: float | None,
) -> Value:  # fmt: skip
    """Attention of [batch, heads, rows, depth]; a row whose mask allows no key has the result 0.

    Other rows with a score that is NaN have the result NaN.
    """
    call: Any = StandardNode(g, "attention", {"scale": scale})
    query, key, value = given
    operands = operands_of(call, query.name, key.name, value.name)
    number = scale_of(call, operands.depth, operands.dtype)
    raw = Value(g, scores_of(call, operands, number, operands.whole))
    scores = _masked(g, raw, mask, causal)
    shares = g.softmax(scores, axis=-1) if mask is None else g.defined("masked_softmax", scores)
    return Value(g, weighted_values(call, shares.name, operands, flat=False))


def _masked(g: TorchBuilder, scores: Value, mask: Value | None, causal: bool) -> Value:
    """Scores with a mask: a bool mask selects, another one is added."""
    lowest = g.scalar(float("-inf"), scores.dtype)
    if causal:
        rows, columns = scores.shape[-2:]
        place = g.unsqueeze(g.positions(rows), axes=(1,))
        scores = g.where(g.less_equal(g.positions(columns), place), scores, lowest)
    if mask is None:
        return scores
    return g.where(mask, scores, lowest) if mask.dtype == boolean else g.add(scores, mask)


def _with_heads(g: TorchBuilder, value: Value, lead: Any) -> Value:
    """[lead..., rows, depth] as [product of lead, 1, rows, depth]."""
    whole = g.expand(value, shape=(*lead, *value.shape[-2:]))
    return g.reshape(whole, shape=(product(lead), 1, *value.shape[-2:]))


def efficient(
    g: TorchBuilder, query: Value, key: Value, value: Value, dropout: float = 0.0,
    causal: bool = False, *, attn_mask: Value | None = None, scale: float | None = None,
    **_: Any,
) -> list[Value]:  # fmt: skip
    """(result, the logarithm of sums, which only derivatives use)."""
    made = scaled_dot_product(g, query, key, value, attn_mask, dropout, causal, scale=scale)
    return [made]


ROWS: dict[str, Build] = {
    "scaled_dot_product_attention.default": scaled_dot_product,
    "_scaled_dot_product_flash_attention_for_cpu.default": efficient,
}  # fmt: skip
