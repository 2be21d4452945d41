"""Attention leaves out keys that a mask shuts out, and nothing that has a share."""

from __future__ import annotations

import numpy as np
import pytest

from anydim.compiler.kernels.attention_form import attention_form
from tests.unit.compiler.kernels.attention_cases import BY_NAME
from tests.unit.compiler.kernels.test_attention import prepared

LOWEST = float(np.finfo(np.float32).min)
QUERIES = 27  # three tiles


def allowed(keys: int) -> np.ndarray:
    """[patterns, queries, keys]: who sees whom."""
    query, key = np.arange(QUERIES)[:, None], np.arange(keys)[None]
    everybody = np.ones((QUERIES, keys), bool)
    return np.stack([
        key <= query + keys // 3,  # causal
        everybody & (key < keys - keys // 2),
        everybody & (key >= keys // 2),
        (key <= query + keys // 2) & (key > query),  # a window
        (key <= query) & (query % 5 != 2),
        ~everybody,
        np.random.default_rng(keys).random((QUERIES, keys)) < 0.03,
    ])  # fmt: skip


@pytest.mark.parametrize("blocks", (0, 1))
def test_keys_are_left_out_where_they_have_no_share(blocks: int) -> None:
    case, made = BY_NAME["one batch axis"], prepared("one batch axis", 64, blocks)
    lows = np.repeat(np.array((-np.inf, LOWEST, -1e9, -60.0), np.float32), 7)[:, None, None]
    seen = np.tile(allowed(61), (4, 1, 1))
    env = {"B": len(seen), "Q": QUERIES, "K": 61, "H": 1}
    arrays = case.arrays(env)
    at = case.names.index("bias")
    arrays[at] = np.where(seen, arrays[at], lows)
    (found,) = made.outputs(arrays, env, compiled=True)
    rows = seen.any(-1) | (lows[:, 0] != -1e9)  # 1e9 takes the bits of what is added to it
    right = case.expected(arrays, env)
    np.testing.assert_allclose(found[rows], right[rows], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("blocks", (0, 1))
def test_rows_have_the_bits_that_they_have_alone(blocks: int) -> None:
    """Whatever the other rows of a tile see."""
    made = prepared("one batch axis", 64, blocks)
    case, env = BY_NAME["one batch axis"], {"B": 1, "Q": QUERIES, "K": 130, "H": 1}
    arrays = case.arrays(env)
    at = case.names.index("bias")
    arrays[at] = np.where(allowed(130)[:1], arrays[at], np.float32(-np.inf))
    (together,) = made.outputs(arrays, env, compiled=True)
    for row in (5,):
        alone = [a[:, row : row + 1] if n in ("q", "bias") else a
                 for n, a in zip(case.names, arrays)]  # fmt: skip
        (found,) = made.outputs(alone, {**env, "Q": 1}, compiled=True)
        np.testing.assert_array_equal(found, together[:, row : row + 1])


def test_scores_of_a_choice_are_bounded_by_it() -> None:
    """A key that is chosen away may still be the best: all others are lower."""
    case, made = BY_NAME["chosen"], prepared("chosen", 64)
    env = {"B": 2, "H": 1, "Q": 3, "K": 40}
    arrays = case.arrays(env)
    at = case.names.index("on")
    arrays[at] = np.arange(40)[None] < np.array([[20], [7]])
    arrays[0][:] = -1e4 * abs(arrays[0])
    arrays[1][:] = abs(arrays[1])  # far below -10000
    (found,) = made.outputs(arrays, env, compiled=True)
    np.testing.assert_allclose(found, case.expected(arrays, env), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("blocks", (0, 1))
@pytest.mark.parametrize(
    "low, left_out",
    ((-np.inf, True), (LOWEST, True), (-2e30, True), (-1e9, False), (-65504.0, False),
     (-10000.0, False)),
)  # fmt: skip
def test_which_added_masks_leave_keys_out(low: float, left_out: bool, blocks: int) -> None:
    """Products may be as large as what smaller masks add. A key of NaN tells who was read."""
    case, made = BY_NAME["one batch axis"], prepared("one batch axis", 64, blocks)
    env = {"B": 1, "Q": QUERIES, "K": 61, "H": 1}
    arrays = case.arrays(env)
    bias = arrays[case.names.index("bias")]
    bias[..., 20:] = low
    arrays[case.names.index("keys")][:, 32:] = np.nan
    (found,) = made.outputs(arrays, env, compiled=True)
    assert np.isfinite(found).all() if left_out else np.isnan(found).all()


@pytest.mark.parametrize(
    "name, bounded",
    (("causal", True), ("chosen", True), ("one batch axis", True), ("counted", True),
     ("plain", False), ("merged", False), ("looked up", False)),
)  # fmt: skip
def test_what_may_be_a_mask_is_known(name: str, bounded: bool) -> None:
    form = attention_form(BY_NAME[name].group())
    assert form is not None
    assert (form.bound is not None) == bounded
