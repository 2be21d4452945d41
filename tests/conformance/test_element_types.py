"""Promise: every operator compiles in every element type that its schema allows, and is right
there; or it is refused as element_type_refusals.txt says.

`python -m tests.conformance.element_types` tells more.
"""

from __future__ import annotations

import pytest

from tests.conformance import element_types
from tests.conformance.element_types import NAMES, Variation, known_refusals, unexpected

SHARDS = 8
QUICK = {
    "GRU": "bfloat16", "LSTM": "float16", "RNN": "bfloat16", "BatchNormalization": "float16",
    "Conv": "double", "Gemm": "int64", "LayerNormalization": "double", "Pow": "double",
    "ReduceL2": "int32", "Resize": "uint8", "ScatterElements": "bool", "Shrink": "int8",
    "Softmax": "bfloat16", "TopK": "uint16",
}  # fmt: skip
"""Operators of every kind of kernel, and those that were wrong in some type."""


def every() -> list[Variation]:
    return list(element_types.variations())


def quick() -> list[Variation]:
    """The first sample of an operator in its type of QUICK."""
    found = {}
    for each in every():
        if QUICK.get(each.sample.operator) == each.type:
            found.setdefault(each.sample.operator, each)
    assert found.keys() == QUICK.keys()
    return list(found.values())


def test_one_type_of_some_operators():
    assert not unexpected([element_types.run(each) for each in quick()])


def test_every_refusal_has_a_reason_and_is_of_a_variation():
    keys = {variation.key for variation in every()}
    for key, why in known_refusals().items():
        assert key in keys or key[:2] == ("*", "*"), key
        assert why and key[2] in NAMES


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_type_of_every_operator(shard):
    outcomes = [element_types.run(each) for each in every()[shard::SHARDS]]
    lines = [line for line in unexpected(outcomes) if "take it off" not in line]
    assert not lines, "\n".join(lines)
    assert sum(outcome.state == "right" for outcome in outcomes) > len(outcomes) // 2
