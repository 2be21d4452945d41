"""Attention: right at every size, vector width, block and split; like numpy at the edges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anydim.base.dtypes import DType, float32, float64
from anydim.compiler.kernels.attention.attention_template import TEMPLATE
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.schedule import parse_schedule, print_schedule
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import Group, TensorType
from anydim.sizes import Box, as_size
from tests.unit.compiler.kernels.attention_cases import BOX, BY_NAME, CASES, LONG, SOFTMAX, Case
from tests.unit.compiler.kernels.launching import Prepared, once_for_each_target

LOWEST = float(np.finfo(np.float32).min)


@once_for_each_target
def prepared(name: str, vector_bytes: int, key_block: int = 0, tiles: int = 0) -> Prepared:
    """The kernel of a case; `key_block` vectors of keys in a block, where that is not 0."""
    machine = Machine(vector_bytes, 32 if vector_bytes == 64 else 16)
    box: Box = LONG if key_block else BOX
    group = BY_NAME[name].group(box)
    schedule = TEMPLATE.match(group, box, machine, frozenset())
    assert schedule is not None
    if key_block:
        schedule = replace(schedule, key_block=key_block * schedule.lanes)
    if tiles:
        schedule = replace(schedule, query_block=tiles * schedule.rows)
    return Prepared(group, (TEMPLATE,), box, machine, schedule=schedule)


def check(
    case: Case, made: Prepared, env: dict[str, int], parts: int = 1, compiled: bool = True
) -> None:
    arrays = case.arrays(env)
    (found,) = made.outputs(arrays, env, parts, compiled)
    np.testing.assert_allclose(found, case.expected(arrays, env), rtol=1e-5, atol=1e-5)


def lengths(vector_bytes: int) -> tuple[int, ...]:
    lanes = vector_bytes // 4
    return (0, 1, 2, lanes - 1, lanes, lanes + 1, 2 * lanes, 3 * lanes + 5)


@pytest.mark.sampled(most=9)
@pytest.mark.parametrize("vector_bytes", (16, 64))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_access_is_inside(case: Case, vector_bytes: int) -> None:
    for blocks in (0, 1):
        made = prepared(case.name, vector_bytes, blocks)
        for queries, keys in ((3, 0), (1, vector_bytes // 4 + 1), (0, 2)):
            env = {"B": 1, "H": 2, "Q": queries, "K": keys}
            check(case, made, env, parts=2, compiled=False)


@pytest.mark.sampled(most=9)
@pytest.mark.parametrize("vector_bytes", (16, 32, 64))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_keys_in_one_block(case: Case, vector_bytes: int) -> None:
    made = prepared(case.name, vector_bytes)
    for keys in lengths(vector_bytes):
        for queries, batch, parts in ((1, 2, 1), (7, 1, 2), (13, 0, 1), (31, 1, 3), (0, 1, 1)):
            env = {"B": batch, "H": 3, "Q": queries, "K": keys}
            check(case, made, env, parts)


@pytest.mark.sampled(most=9)
@pytest.mark.parametrize("vector_bytes", (16, 64))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_several_blocks_of_keys(case: Case, vector_bytes: int) -> None:
    made = prepared(case.name, vector_bytes, key_block=2)
    for keys in (*lengths(vector_bytes), 97):
        for queries, batch, parts in ((1, 2, 1), (25, 1, 2)):
            env = {"B": batch, "H": 2, "Q": queries, "K": keys}
            check(case, made, env, parts)


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("name", ("sliced 32", "transposed result", "unlike"))
@pytest.mark.parametrize("tiles", (1, 3))
def test_long_sequences(name: str, tiles: int) -> None:
    made = prepared(name, 64, 0, tiles)
    for size in (127, 509, 511, 512):
        check(BY_NAME[name], made, {"B": 1, "H": 2, "Q": size, "K": size}, parts=3)


@pytest.mark.parametrize("blocks", (0, 1))
@pytest.mark.parametrize("name", [case.name for case in CASES if "grouped" in case.name])
def test_a_query_of_grouped_heads_has_its_bits_among_others(name: str, blocks: int) -> None:
    made, sizes = prepared(name, 64, blocks), {"B": 2, "H": 1, "K": 37}
    q, keys, values, mask = BY_NAME[name].arrays({**sizes, "Q": 13})
    (together,) = made.outputs([q, keys, values, mask], {**sizes, "Q": 13}, 1, True)
    for at in range(13):
        own = mask if mask.ndim == 1 else mask[..., at : at + 1, :]
        given = [np.ascontiguousarray(each) for each in (q[:, :, at : at + 1], keys, values, own)]
        (alone,) = made.outputs(given, {**sizes, "Q": 1}, 1, True)
        np.testing.assert_array_equal(alone[:, :, 0], together[:, :, at])


def test_blocks_of_the_usual_size() -> None:
    made = prepared("plain", 64, 32)
    for keys in (511, 512, 513, 1025):
        check(BY_NAME["plain"], made, {"B": 1, "H": 1, "Q": 14, "K": keys})


# ---- like numpy at the edges -------------------------------------------------------------------


@pytest.mark.parametrize("blocks", (0, 1))
@pytest.mark.parametrize("keys", (1, 5, 16, 37))
def test_rows_masked_by_the_lowest_number_are_means(keys: int, blocks: int) -> None:
    made, case = prepared("one batch axis", 64, blocks), BY_NAME["one batch axis"]
    env = {"B": 1, "Q": 4, "K": keys}
    arrays = case.arrays(env)
    arrays[3][:, 1] = LOWEST
    arrays[3][:, 2, : keys // 2] = LOWEST
    (found,) = made.outputs(arrays, env, compiled=True)
    np.testing.assert_allclose(found, case.expected(arrays, env), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[0, 1], arrays[2][0].mean(0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("blocks", (0, 1))
@pytest.mark.parametrize("keys", (1, 5, 16, 37))
def test_safe_rows_masked_by_minus_infinity_are_zero(keys: int, blocks: int) -> None:
    made, case = prepared("safe", 64, blocks), BY_NAME["safe"]
    env = {"B": 1, "Q": 4, "K": keys}
    arrays = case.arrays(env)
    arrays[3][:, 1] = -np.inf
    arrays[3][:, 2, 0] = np.nan
    (found,) = made.outputs(arrays, env, compiled=True)
    np.testing.assert_allclose(found, case.expected(arrays, env), rtol=1e-5, atol=1e-5)
    assert not found[0, 1].any() and not found[0, 2].any()


@pytest.mark.parametrize("blocks", (0, 1))
@pytest.mark.parametrize("keys", (1, 5, 16, 37))
def test_rows_masked_by_minus_infinity_are_nan(keys: int, blocks: int) -> None:
    made, case = prepared("one batch axis", 64, blocks), BY_NAME["one batch axis"]
    env = {"B": 1, "Q": 4, "K": keys}
    arrays = case.arrays(env)
    arrays[3][:, 1] = -np.inf
    arrays[3][:, 2, : keys - 1] = -np.inf
    (found,) = made.outputs(arrays, env, compiled=True)
    np.testing.assert_allclose(found, case.expected(arrays, env), rtol=1e-5, atol=1e-5)
    assert np.isnan(found[0, 1]).all()
    np.testing.assert_allclose(found[0, 2], arrays[2][0, -1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("blocks", (0, 1))
@pytest.mark.parametrize("place", (0, 20, 36))
@pytest.mark.parametrize("value", (np.nan, np.inf))
def test_nan_and_infinity_spoil_their_row_only(value: float, place: int, blocks: int) -> None:
    made, case = prepared("one batch axis", 64, blocks), BY_NAME["one batch axis"]
    env = {"B": 1, "Q": 4, "K": 37}
    arrays = case.arrays(env)
    arrays[3][0, 1, place] = value
    (found,) = made.outputs(arrays, env, compiled=True)
    assert np.isnan(found[0, 1]).all()
    np.testing.assert_allclose(found, case.expected(arrays, env), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("blocks", (0, 1))
def test_large_scores_do_not_overflow(blocks: int) -> None:
    made, case = prepared("plain", 64, blocks), BY_NAME["plain"]
    env = {"B": 1, "H": 2, "Q": 9, "K": 50}
    arrays = case.arrays(env, spread=30.0)
    (found,) = made.outputs(arrays, env, compiled=True)
    expected = case.expected(arrays, env)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-2)
    assert np.isfinite(found).all()


def test_without_keys_the_result_is_zero() -> None:
    made, case = prepared("plain", 64), BY_NAME["plain"]
    env = {"B": 2, "H": 1, "Q": 5, "K": 0}
    (found,) = made.outputs(case.arrays(env), env, compiled=True)
    assert found.shape == (2, 1, 5, 32) and not found.any()


# ---- what is not taken -------------------------------------------------------------------------

START = "s(b,i,k) +=! q(b,i,d) * keys(b,k,d)\n  x(b,i,k) = s(b,i,k)\n"
END = "o(b,i,v) +=! p(b,i,k) * values(b,k,v)"
USUAL = SOFTMAX.format(r="b,i")
OTHERS = {
    "no softmax": START + "p(b,i,k) = exp(x(b,i,k))\n" + END,
    "softmax over queries": START
    + "t(b,k) max=! x(b,i,k)\n e(b,i,k) = exp(x(b,i,k) - t(b,k))\n"
    + "n(b,k) +=! e(b,i,k)\n p(b,i,k) = e(b,i,k) / n(b,k)\n" + END,
    "another maximum": START + USUAL.replace("max=! x(b,i,k)", "max=! 2.0 * x(b,i,k)") + END,
    "another sum": START + USUAL.replace("+=! e(b,i,k)", "+=! 1.0 + e(b,i,k)") + END,
    "a minimum": START + USUAL.replace("max=!", "min=!") + END,
    "shares used again": START + USUAL + "y(b,i,k) = p(b,i,k) * 2.0\n"
    + END.replace("p(b,i,k)", "y(b,i,k)"),
    "values read aside": START + USUAL + "o(b,v,i) +=! p(b,i,k) * values(b,k,v)",
    "product of one": "s(b,i,k) +=! q(b,i,d) + keys(b,k,d)\n  x(b,i,k) = s(b,i,k)\n" + USUAL + END,
}  # fmt: skip


def group_of(body: str, kind: DType = float32, depth: str = "32", outputs: str = "o") -> Group:
    word = "float" if kind == float32 else "double"
    names = ("q", "keys", "values")
    text = ", ".join(f"{word}(B{n},{n}S,D{n}) {n}" for n in names)
    shapes = (f"B Q {depth}", f"B K {depth}", "B K 32")
    types = [TensorType(kind, tuple(as_size(s) for s in shape.split())) for shape in shapes]
    definition = parse_definition(f"def attention({text}) -> ({outputs}) {{ {body} }}")
    return instantiate(definition, types, box=BOX)


def taken(group: Group) -> bool:
    return TEMPLATE.match(group, BOX, Machine(), frozenset()) is not None


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
def test_what_is_not_attention_is_left_to_others(body: str) -> None:
    assert not taken(group_of(body))


def test_what_the_kernel_cannot_do_is_left_to_others() -> None:
    body = START + USUAL + END
    assert taken(group_of(body))
    assert not taken(group_of(body, kind=float64))
    assert not taken(group_of(body, depth="H"))
    assert not taken(group_of(body, outputs="o, p"))


def test_schedules_print_and_parse() -> None:
    schedule = TEMPLATE.match(group_of(START + USUAL + END), BOX, Machine(), frozenset())
    assert parse_schedule(print_schedule(schedule)) == schedule


def test_equal_groups_share_a_kernel() -> None:
    first, second = (prepared.__wrapped__("plain", 64).launch.kernel for _ in range(2))
    assert first.name == second.name == prepared("plain", 64).launch.kernel.name
    assert first.name != prepared("split", 64).launch.kernel.name
