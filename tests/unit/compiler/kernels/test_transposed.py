"""Transposed convolutions: how they are cut into plain ones, and what they compute at every size.

Sums of some hundred products in float32 are compared with those in float64: 1e-4 of the largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import anydim as ad
from tests.ops.window_cases import spread

SIZES = ((1, 0, 3), (0, 2, 2), (1, 1, 1), (2, 7, 8), (1, 16, 5), (3, 9, 17), (2, 1, 40))


@dataclass(frozen=True)
class Layer:
    inner: int
    outer: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    before: tuple[int, ...]
    more: int = 0  # elements of the result after twice what it has of x
    groups: int = 1
    dilations: tuple[int, ...] | None = None
    dtype: str = "float32"
    constant: bool = True


LAYERS = {
    "two phases of one kind": Layer(5, 6, (2, 2), (2, 2), (0, 0)),
    "four phases shifted": Layer(8, 9, (4, 4), (2, 2), (1, 1)),
    "phases of unlike taps": Layer(4, 8, (3, 3), (2, 2), (1, 1), more=1),
    "a stride of three": Layer(3, 5, (4, 5), (3, 3), (1, 2)),
    "stride one is a convolution": Layer(8, 40, (3, 3), (1, 1), (1, 1)),
    "phases without taps": Layer(2, 3, (1, 2), (2, 4), (0, 0), more=1),
    "dilated": Layer(3, 4, (2, 3), (2, 3), (1, 0), dilations=(2, 2)),
    "groups": Layer(6, 6, (4, 4), (2, 2), (1, 1), groups=3),
    "a channel each": Layer(5, 5, (4, 3), (2, 1), (1, 1), groups=5),
    "few results": Layer(64, 3, (4, 4), (2, 2), (1, 1)),
    "few results of eleven taps": Layer(40, 2, (11,), (5,), (3,)),
    "eight phases": Layer(16, 3, (16,), (8,), (4,)),
    "weights as inputs": Layer(4, 6, (4, 3), (2, 2), (1, 1), constant=False),
    "groups of weights as inputs": Layer(4, 6, (4, 2), (2, 2), (1, 0), groups=2, constant=False),
    "float64": Layer(4, 6, (4, 4), (2, 2), (1, 1), dtype="float64"),
    "int32": Layer(4, 6, (4, 4), (2, 2), (1, 1), dtype="int32"),
    "float16": Layer(4, 6, (4, 4), (2, 2), (1, 1), dtype="float16"),
}


def compiled(layer: Layer, w: Any, b: Any) -> Any:
    """relu of the convolution with bias; the batch and all places are free."""
    axes = len(layer.kernel)
    g = ad.Builder()
    batch, *places = (g.dim(name, 0, 64) for name in ("n", "h", "v")[: axes + 1])
    kind = getattr(ad, layer.dtype)
    x = g.input("x", kind, (batch, layer.inner, *places))
    weights = g.constant(w) if layer.constant else g.input("w", kind, w.shape)
    y = g.conv_transpose(
        x, weights, g.constant(b), strides=layer.strides, dilations=layer.dilations,
        before=layer.before, groups=layer.groups,
        sizes=tuple(p * s + layer.more for p, s in zip(places, layer.strides)),
    )  # fmt: skip
    g.output("y", g.relu(y))
    return ad.compile(g)


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("name", LAYERS)
def test_every_size_is_that_of_the_definition(name: str) -> None:
    layer = LAYERS[name]
    random = np.random.default_rng(3)

    def made(*shape: int) -> Any:
        return random.integers(-9, 10, shape).astype(layer.dtype) / (
            np.dtype(layer.dtype).type(4 if layer.dtype[0] == "f" else 1)
        )

    w = made(layer.inner, layer.outer // layer.groups, *layer.kernel).astype(layer.dtype)
    b = made(layer.outer).astype(layer.dtype)
    model = compiled(layer, w, b)
    for batch, *places in SIZES:
        places = places[: len(layer.kernel)]
        x = made(batch, layer.inner, *places).astype(layer.dtype)
        want = spread(
            x.astype("float64"), w.astype("float64"), b.astype("float64"),
            sizes=[p * s + layer.more for p, s in zip(places, layer.strides)],
            before=layer.before, strides=layer.strides, dilations=layer.dilations,
            groups=layer.groups,
        ).clip(0)  # fmt: skip
        given = {"x": x} if layer.constant else {"x": x, "w": w}
        got = model(**given)["y"]
        assert got.shape == want.shape and got.dtype == layer.dtype
        close = 2e-3 if layer.dtype == "float16" else 1e-6
        assert not want.size or np.abs(got - want).max() <= close * max(1, want.max()), places


def test_phases_run_through_the_kernels_for_convolutions() -> None:
    layer = LAYERS["four phases shifted"]
    model = compiled(layer, np.zeros((8, 9, 4, 4), np.float32), np.zeros(9, np.float32))
    text = str(model.explain(details=True))
    assert text.count("convolution(") == 4 and "rows(" not in text
