"""Values that kernels of `precision="bfloat16"` round are stored in 16 bits, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.compiler.passes.store_rounded import StoreRounded
from anydim.compiler.targets.llvm.host import machine
from tests.models.building import graph, model, node

pytestmark = pytest.mark.skipif(not machine().pairs, reason="no bfloat16 products")
RANDOM = np.random.default_rng(11)
HEADS, DEPTH = 3, 32
WIDTH = HEADS * DEPTH
SHAPES = {"heads": np.int64([0, 0, HEADS, DEPTH]), "joined": np.int64([0, 0, WIDTH])}


def weights(*shape: int) -> np.ndarray:
    random = np.random.default_rng(shape)
    return random.standard_normal(shape, np.float32) / np.float32(shape[0] ** 0.5)


def layers(inner: int, function: str) -> ad.Model:
    """Two products with a function between them, a norm, and a product with a residual."""
    between = [f"r = {function}(u)"]
    if function == "Gelu":
        between = ["e = Mul(u, root)", "f = Erf(e)", "g = Add(f, one)", "r = Mul(u, g)"]
    nodes = [
        node("u = MatMul(x, w)"), *map(node, between), node("t = MatMul(r, v)"),
        node("h = LayerNormalization(t, scale)", axis=-1), node("q = MatMul(h, z)"),
        node("y = Add(q, h)"),
    ]  # fmt: skip
    constants = {
        "w": weights(WIDTH, inner), "v": weights(inner, WIDTH), "z": weights(WIDTH, WIDTH),
        "scale": np.ones(WIDTH, np.float32), "one": np.float32(1), "root": np.float32(0.5**0.5),
    }  # fmt: skip
    made = graph("layers", [f"x f[rows, {WIDTH}]"], nodes, [f"y f[rows, {WIDTH}]"], constants)
    return ad.compile(model(made), precision="bfloat16", threads=1)


def encoder() -> ad.Model:
    """Attention between products with constants."""
    nodes = [
        *(node(f"{n} = MatMul(x, w{n})") for n in "qkv"),
        *(node(f"{n}h = Reshape({n}, heads)") for n in "qkv"),
        node("qt = Transpose(qh)", perm=[0, 2, 1, 3]),
        node("kt = Transpose(kh)", perm=[0, 2, 3, 1]),
        node("vt = Transpose(vh)", perm=[0, 2, 1, 3]),
        node("s = MatMul(qt, kt)"), node("p = Softmax(s)"), node("o = MatMul(p, vt)"),
        node("ot = Transpose(o)", perm=[0, 2, 1, 3]), node("m = Reshape(ot, joined)"),
        node("y = MatMul(m, wo)"),
    ]  # fmt: skip
    constants = {**SHAPES, **{f"w{n}": weights(WIDTH, WIDTH) for n in "qkvo"}}
    made = graph("encoder", [f"x f[b, s, {WIDTH}]"], nodes, [f"y f[b, s, {WIDTH}]"], constants)
    return ad.compile(model(made), precision="bfloat16", threads=1)


def call(run: ad.Model, x: np.ndarray) -> np.ndarray:
    (result,) = run(x).values()
    return result


def both(make: object, *arguments: object) -> tuple[ad.Model, ad.Model]:
    """The model, and the same without the pass."""
    found = []
    for run in (StoreRounded.run, lambda self, graph: graph):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StoreRounded, "run", run)
            found.append(make(*arguments))  # type: ignore[operator]
    return found[0], found[1]


@pytest.mark.parametrize("inner", [64, 65, 130], ids=["words", "odd", "even"])
def test_the_bits_are_those_of_rounding_while_reading(inner: int) -> None:
    run, plain = both(layers, inner, "Relu")
    assert str(plain.explain(details=True)) != str(run.explain(details=True))
    for rows in (0, 1, 2, 7, 8, 9, 31, 200):
        x = RANDOM.standard_normal((rows, WIDTH), np.float32)
        np.testing.assert_array_equal(call(run, x), call(plain, x))


def test_attention_takes_and_gives_16_bits() -> None:
    run, plain = both(encoder)
    for batch, length in ((0, 3), (2, 0), (1, 1), (3, 5), (2, 24), (1, 77), (2, 130)):
        x = RANDOM.standard_normal((batch, length, WIDTH), np.float32)
        found, want = call(run, x), call(plain, x)
        if length >= 24:  # fewer keys are multiplied in float32 where they are stored in it
            np.testing.assert_array_equal(found, want)
        np.testing.assert_allclose(found, want, atol=0.02)
        for at in range(batch):
            np.testing.assert_array_equal(call(run, x[at : at + 1])[0], found[at])


def test_a_row_has_the_same_bits_behind_shorter_functions() -> None:
    """GELU is computed to 1e-4 where only products read it: rows stay alone, errors small."""
    run, plain = both(layers, 128, "Gelu")
    x = RANDOM.standard_normal((200, WIDTH), np.float32)
    whole = call(run, x)
    np.testing.assert_allclose(whole, call(plain, x), atol=0.03)
    for rows in range(1, 200):
        np.testing.assert_array_equal(call(run, x[200 - rows :]), whole[200 - rows :])
