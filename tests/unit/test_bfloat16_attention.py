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
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_models_round_both_products(precision: str) -> None:
    run, shared, exact = (encoder(p, threads=n) for p, n in (
        (precision, 1), (precision, 3), ("exact", 1)))  # fmt: skip
    text = " ".join(str(run.explain()).split())
    assert "attention_bfloat16" in text and (precision == "int8" or "16: 2 of 2 products" in text)
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
    "exact", {"s": "exact", "*": "int8"}, {"o": "exact", "*": "bfloat16"},
], ids=str)  # fmt: skip
def test_a_product_that_stays_keeps_the_other(precision: object) -> None:
    run, exact = encoder(precision), encoder("exact")
    arrays = sequences(2, 40)
    np.testing.assert_array_equal(call(run, arrays), call(exact, arrays))


def decoder(dtype: ad.DType, precision: str, threads: int = 1) -> ad.Model:
    """Attention of `s` queries behind `past` keys, as in a decoder: caches, and their new ends."""
    g = ad.Builder("decoder")
    s, past = g.dim("s", 0, 64), g.dim("past", 0, 2000)
    q = g.input("q", ad.float32, (1, 2, 3, s, DEPTH))
    shape = (1, 2, past + s, DEPTH)
    keys, values = (g.cast(g.input(n, dtype, shape), to=ad.float32) for n in ("keys", "values"))
    own = g.unsqueeze(
        g.add(g.range(count=s), g.size_tensor(values=(past,), scalar=True)), axes=(1,)
    )
    x = g.einsum(q, keys, equation="bhgid,bhjd->bhgij") * np.float32(0.25)
    x = g.where(g.less_equal(g.range(count=past + s), own), x, np.float32("-inf"))
    g.output("y", g.einsum(g.softmax(x, axis=-1), values, equation="bhgij,bhjd->bhgid"))
    return ad.compile(g, precision=precision, threads=threads)


@needs_pairs
@pytest.mark.parametrize("dtype", [ad.float32, ad.bfloat16], ids=str)
def test_a_token_has_its_bits_in_any_part_of_a_prompt(dtype: ad.DType) -> None:
    """Alone, among few keys and among many; by caches of float32 and of bfloat16."""
    random = np.random.default_rng(1)
    q, keys, values = (random.standard_normal((1, 2, *more, DEPTH)).astype(np.float32)
                       for more in ((3, 600), (600,), (600,)))  # fmt: skip
    keys, values = (a.astype(ad.bfloat16.numpy).astype(dtype.numpy) for a in (keys, values))
    made = decoder(dtype, "bfloat16"), decoder(dtype, "int8", 2)
    exact = decoder(ad.float32, "exact")
    floats = [a.astype(np.float32) for a in (keys, values)]
    for first, last in ((0, 40), (490, 550), (560, 600)):
        whole, other = (call(run, [q[..., first:last, :], keys[:, :, :last], values[:, :, :last]])
                        for run in made)  # fmt: skip
        want = call(exact, [q[..., first:last, :], *(a[:, :, :last] for a in floats)])
        assert 0 < abs(whole - want).max() <= 0.03
        np.testing.assert_array_equal(other, whole)
        for at in (first, first + 1, first + 17, last - 1):
            own = [q[..., at : at + 1, :], keys[:, :, : at + 1], values[:, :, : at + 1]]
            for run in made:
                np.testing.assert_array_equal(call(run, own)[..., 0, :], whole[..., at - first, :])


@needs_pairs
def test_caches_of_bfloat16_are_read_in_place() -> None:
    """Without a copy in float32, which the default needs."""
    counts = {(d, p): len(decoder(d, p).program.sites) for d in (ad.float32, ad.bfloat16)
              for p in ("exact", "int8")}  # fmt: skip
    assert counts[ad.bfloat16, "int8"] == counts[ad.float32, "int8"] < counts[ad.bfloat16, "exact"]


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
