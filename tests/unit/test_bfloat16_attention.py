"""Models with attention in `precision="bfloat16"`: what is rounded, and the bits of a sequence."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.compiler.targets.llvm.host import machine
from tests.models.building import graph, model, node

needs_pairs = pytest.mark.skipif(not machine().pairs, reason="no bfloat16 products")
HEADS, DEPTH = 3, 16
SHAPES = {"heads": np.int64([0, 0, HEADS, DEPTH]), "joined": np.int64([0, 0, HEADS * DEPTH])}


def encoder(precision: object, keys: str = "s", threads: int = 1) -> ad.Model:
    """Attention between two pointwise nodes, of `keys` keys by `s` queries."""
    nodes = [
        *(node(f"{n}h = Reshape({n}, heads)") for n in "qkv"),
        node("qt = Transpose(qh)", perm=[0, 2, 1, 3]),
        node("kt = Transpose(kh)", perm=[0, 2, 3, 1]),
        node("vt = Transpose(vh)", perm=[0, 2, 1, 3]),
        node("s = MatMul(qt, kt)"), node("u = Mul(s, c)"),
        node("w = Add(u, mask)"), node("p = Softmax(w)"),
        node("o = MatMul(p, vt)"),
        node("ot = Transpose(o)", perm=[0, 2, 1, 3]), node("y = Reshape(ot, joined)"),
    ]  # fmt: skip
    inputs = [f"{n} f[b, {'s' if n == 'q' else keys}, {HEADS * DEPTH}]" for n in "qkv"]
    made = graph("attention", [*inputs, f"mask f[b, 1, 1, {keys}]"], nodes,
                 [f"y f[b, s, {HEADS * DEPTH}]"], {**SHAPES, "c": np.float32(0.25)})  # fmt: skip
    return ad.compile(model(made), precision=precision, threads=threads)  # type: ignore[arg-type]


def sequences(batch: int, length: int) -> list[np.ndarray]:
    random = np.random.default_rng(length)
    shape = (batch, length, HEADS * DEPTH)
    mask = np.where(np.arange(length) < max(1, length - 3), 0, -np.inf).astype(np.float32)
    x = (random.standard_normal(shape).astype(np.float32) for _ in "qkv")
    return [*x, np.broadcast_to(mask, (batch, 1, 1, length)).copy()]


def call(run: ad.Model, arrays: list[np.ndarray]) -> np.ndarray:
    (result,) = run(*arrays).values()
    return result


@needs_pairs
def test_models_round_both_products() -> None:
    run, shared, exact = (encoder(p, threads=n) for p, n in (
        ("bfloat16", 1), ("bfloat16", 3), ("exact", 1)))  # fmt: skip
    text = " ".join(str(run.explain()).split())
    assert "bfloat16: 2 of 2 products" in text and "attention_bfloat16" in text
    for length in (0, 1, 23, 24, 77, 200):
        arrays = sequences(4, length)
        whole, want = call(run, arrays), call(exact, arrays)
        np.testing.assert_array_equal(call(shared, arrays), whole)
        for at in (0, 3):
            own = [a[at : at + 1] for a in arrays]
            np.testing.assert_array_equal(call(run, own), whole[at : at + 1])
        error = abs(whole - want).max(initial=0)
        assert error <= 0.04 and (error > 0) == (length >= 24)


@needs_pairs
@pytest.mark.parametrize("precision", [
    "exact", "int8", {"s": "exact", "*": "bfloat16"}, {"o": "exact", "*": "bfloat16"},
], ids=str)  # fmt: skip
def test_a_product_that_stays_keeps_the_other(precision: object) -> None:
    run, exact = encoder(precision), encoder("exact")
    arrays = sequences(2, 40)
    np.testing.assert_array_equal(call(run, arrays), call(exact, arrays))


@needs_pairs
def test_keys_of_another_length_stay_float32() -> None:
    assert "bfloat16: 0 of 2 products" in " ".join(str(encoder("bfloat16", "t").explain()).split())


@needs_pairs
def test_check_permits_the_rounding() -> None:
    report = encoder("bfloat16").check(samples=6)
    assert report.ok, str(report)


@needs_pairs
def test_hostile_sequences_stay_alone() -> None:
    """Infinities and NaN of one sequence reach no other; masked keys may hold anything."""
    run, arrays = encoder("bfloat16"), sequences(3, 50)
    plain = call(run, arrays)
    arrays[1][1, 7, 3], arrays[2][1, 2, 0] = np.nan, np.inf
    found = call(run, arrays)
    np.testing.assert_array_equal(found[::2], plain[::2])
    assert not np.isfinite(found[1, :, :DEPTH]).any()
