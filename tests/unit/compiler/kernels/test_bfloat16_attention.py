"""Attention of bfloat16: sums of the evaluator, bits of each sequence, and its errors."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from anydim.base.dtypes import bfloat16, float32
from anydim.compiler.kernels.attention.attention_template import BFLOAT16, TEMPLATE
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.targets.llvm.host import machine
from anydim.lang.tree import Apply, Cast, Group, Statement
from tests.unit.compiler.kernels.attention_cases import BOX, BY_NAME, LONG, Case
from tests.unit.compiler.kernels.launching import Prepared

VECTORS = Machine(64, 32, pairs=True)
needs_pairs = pytest.mark.skipif(not machine().pairs, reason="no bfloat16 products")


@pytest.fixture(autouse=True)
def _vectors_of_words(kernel_target: str) -> None:
    if kernel_target != "llvm":
        pytest.skip("no instruction for pairs")


def of_sequences(name: str) -> Case:
    """A case with queries and keys of one length."""
    case = BY_NAME[name]
    shapes = {n: s.replace("Q", "K") for n, s in case.inputs.items()}
    return Case(name, shapes, case.body, case.kinds)


def rounded(group: Group) -> Group:
    """The group with rounded factors of both products."""

    def change(statement: Statement) -> Statement:
        body = statement.body
        if statement.combine != "add" or not isinstance(body, Apply) or body.function != "mul":
            return statement
        factors = (Cast(float32, Cast(bfloat16, each)) for each in body.arguments)
        return statement.with_body(Apply("mul", tuple(factors)))

    return replace(group, statements=tuple(map(change, group.statements)))


@cache
def prepared(name: str, blocks: int = 0) -> Prepared:
    group, box = rounded(of_sequences(name).group(LONG if blocks else BOX)), LONG if blocks else BOX
    schedule = BFLOAT16.match(group, box, VECTORS, frozenset())
    assert schedule is not None and TEMPLATE.match(group, box, VECTORS, frozenset()) is None
    if blocks:
        schedule = replace(schedule, key_block=16 * blocks, query_block=schedule.rows)
    return Prepared(group, (BFLOAT16,), box, VECTORS, schedule=schedule)


NAMES = (
    "plain", "merged", "safe", "causal", "chosen", "counted", "looked up", "unlike", "sliced 20",
    "keys as columns", "keys of all heads", "grouped heads",
    "grouped heads, masks of their own", "more grouped heads than rows of a tile",
)  # fmt: skip


@needs_pairs
@pytest.mark.sampled(most=4)
@pytest.mark.parametrize("blocks", (0, 2))
@pytest.mark.parametrize("name", NAMES)
def test_sums_are_those_of_the_evaluator(name: str, blocks: int) -> None:
    """But for the order in which the lanes of a total are added."""
    made, case = prepared(name, blocks), of_sequences(name)
    for keys in (23, 33):
        env = {"B": 1, "H": 1, "K": keys, "Q": keys}
        arrays = case.arrays(env)
        (found,), (want,) = (made.outputs(arrays, env, compiled=c) for c in (True, False))
        np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-8)


@needs_pairs
@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("blocks", (0, 2))
@pytest.mark.parametrize("name", NAMES)
def test_a_sequence_has_the_same_bits_alone(name: str, blocks: int) -> None:
    """In any batch and in any number of parts, and near float64."""
    made, case = prepared(name, blocks), of_sequences(name)
    for keys in (0, 1, 16, 24, 31, 64, 100):
        env = {"B": 3, "H": 2, "K": keys, "Q": keys}
        arrays = case.arrays(env)
        (whole,) = made.outputs(arrays, env, compiled=True)
        for parts in (2, 5):
            (found,) = made.outputs(arrays, env, parts, compiled=True)
            np.testing.assert_array_equal(found, whole)
        alone = [a[1:2] if s.startswith("B") else a
                 for a, s in zip(arrays, case.inputs.values())]  # fmt: skip
        (found,) = made.outputs(alone, {**env, "B": 1}, compiled=True)
        np.testing.assert_array_equal(found, whole[1:2])
        error = abs(whole - case.expected(arrays, env)).max(initial=0)
        assert error <= (0.08 if keys >= 24 else 1e-4)


def test_only_rounded_products_match() -> None:
    for group in (rounded(BY_NAME["plain"].group(BOX)), rounded(of_sequences("plain").group(BOX))):
        assert BFLOAT16.match(group, BOX, VECTORS, frozenset()) is not None
        assert TEMPLATE.match(group, BOX, VECTORS, frozenset()) is None
    plain = of_sequences("plain").group(BOX)
    assert BFLOAT16.match(plain, BOX, VECTORS, frozenset()) is None
    assert TEMPLATE.match(plain, BOX, VECTORS, frozenset()) is not None
