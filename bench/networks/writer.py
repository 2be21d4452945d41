"""Layers of networks as ONNX nodes, named and spelled the way a torch export does it."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from examples.minilm.onnx_writer import GraphWriter

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Network(GraphWriter):
    """A graph that is written layer by layer; weights are random, always the same ones."""

    def __init__(self) -> None:
        super().__init__()
        self._random = np.random.default_rng(0)
        self._number = 0

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """A node and the name of its one output."""
        return self.node("", operator, *inputs, **attributes)

    def number(self, value: float) -> str:
        return self.constant("", value, np.float32)

    def integers(self, *values: int) -> str:
        return self.constant("", list(values), np.int64)

    def drawn(self, *shape: int, mean: float = 0.0) -> str:
        """Random weights that keep the size of values from layer to layer."""
        self._number += 1
        inner = max(1, int(np.prod(shape[1:])) if len(shape) > 2 else shape[0])
        values = mean + self._random.standard_normal(shape) / np.sqrt(inner)
        return self.weight(f"weight.{self._number}", values.astype(np.float32))

    def conv(
        self, x: str, channels: int, out: int, kernel: int = 1, stride: int = 1, groups: int = 1
    ) -> str:
        weight, bias = self.drawn(out, channels // groups, kernel, kernel), self.drawn(out)
        return self(
            "Conv", x, weight, bias, kernel_shape=[kernel] * 2, strides=[stride] * 2,
            pads=[kernel // 2] * 4, group=groups,
        )  # fmt: skip

    def silu(self, x: str) -> str:
        return self("Mul", x, self("Sigmoid", x))

    def gelu(self, x: str) -> str:
        inner = self("Erf", self("Div", x, self.number(2.0**0.5)))
        twice = self("Mul", x, self("Add", inner, self.number(1.0)))
        return self("Mul", twice, self.number(0.5))

    def linear(self, x: str, wide: int, out: int) -> str:
        return self("Add", self("MatMul", x, self.drawn(wide, out)), self.drawn(out))

    def norm(self, x: str, wide: int) -> str:
        scale = self.drawn(wide, mean=1.0)
        return self("LayerNormalization", x, scale, self.drawn(wide), axis=-1)

    def sizes(self, x: str, *axes: int) -> list[str]:
        """Sizes of some axes, each a vector of one element."""
        return [self.dimension("", x, axis) for axis in axes]

    def scalar_size(self, x: str, axis: int) -> str:
        place = self.constant("", axis, np.int64)
        return self("Gather", self("Shape", x), place, axis=0)

    def reshape(self, x: str, *shape: str | int) -> str:
        """Shape: names of vectors of one element, or numbers."""
        parts = [self.integers(part) if isinstance(part, int) else part for part in shape]
        return self("Reshape", x, self("Concat", *parts, axis=0))

    def doubled(self, x: str) -> str:
        """Twice as high and wide, nearest neighbours."""
        scales = self.constant("", [1.0, 1.0, 2.0, 2.0], np.float32)
        return self(
            "Resize", x, "", scales, mode="nearest", nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        )  # fmt: skip

    def resized(self, x: str, like: str) -> str:
        """Bilinear, to the height and width of another value."""
        target = self("Concat", *self.sizes(x, 0, 1), *self.sizes(like, 2, 3), axis=0)
        return self(
            "Resize", x, "", "", target, mode="linear",
            coordinate_transformation_mode="half_pixel",
        )  # fmt: skip

    def heads(self, x: str, heads: int, width: int) -> str:
        """[b, s, heads*width] -> [b, heads, s, width]"""
        split = self.reshape(x, *self.sizes(x, 0, 1), heads, width)
        return self("Transpose", split, perm=[0, 2, 1, 3])

    def joined(self, x: str, size: int) -> str:
        """[b, heads, s, width] -> [b, s, heads*width]"""
        turned = self("Transpose", x, perm=[0, 2, 1, 3])
        return self.reshape(turned, *self.sizes(turned, 0, 1), size)
