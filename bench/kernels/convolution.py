"""Single convolutions beside onnxruntime: python -m bench.kernels.convolution

Layers of the usual architectures with bias and ReLU, image sizes free, weights constant. Both take
turns in one process on one core; a ratio is the median of the ratios of neighbours, above 1 where
anydim is faster. `--plain` leaves Winograd's way out.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from statistics import geometric_mean

import onnx

import anydim as ad
from anydim.base import settings
from bench.kernels.layers import beside_onnxruntime, layer_model, options_of, stay_on


@dataclass(frozen=True)
class Layer:
    """Channels in and out, side of the image and of the window, stride, groups."""

    inner: int
    outer: int
    side: int
    window: int
    stride: int = 1
    groups: int = 1

    @property
    def flops(self) -> int:
        places = (-(-self.side // self.stride)) ** 2
        return 2 * self.outer * self.inner // self.groups * self.window**2 * places

    def __str__(self) -> str:
        extra = f" /{self.stride}" if self.stride > 1 else ""
        extra += f" in {self.groups}" if self.groups > 1 else ""
        window = f"{self.window}x{self.window}{extra}"
        return f"{self.inner:4} -> {self.outer:<4} {self.side:3}²  {window}"


LAYERS = (
    Layer(3, 64, 224, 7, 2),
    Layer(3, 64, 224, 3),
    Layer(64, 64, 56, 1),
    Layer(64, 256, 56, 1),
    Layer(256, 64, 56, 1),
    Layer(256, 512, 56, 1, 2),
    Layer(1024, 256, 14, 1),
    Layer(512, 2048, 7, 1),
    Layer(64, 64, 56, 3),
    Layer(128, 128, 28, 3),
    Layer(256, 256, 14, 3),
    Layer(512, 512, 7, 3),
    Layer(128, 32, 28, 3),
    Layer(128, 128, 56, 3, 2),
    Layer(96, 256, 27, 5, 1, 2),
    Layer(128, 128, 28, 3, 1, 128),
    Layer(256, 256, 14, 3, 2, 256),
)


def model_of(layer: Layer) -> onnx.ModelProto:
    """Conv with bias, then Relu; batch, height and width are free."""
    shape = (layer.outer, layer.inner // layer.groups, layer.window, layer.window)
    return layer_model(
        "Conv", layer.inner, shape, layer.outer, pads=[layer.window // 2] * 4,
        strides=[layer.stride] * 2, group=layer.groups,
    )  # fmt: skip


def measure(layer: Layer, batch: int, seconds: float) -> float:
    """Write a line of the table; returns how many times as fast as onnxruntime."""
    dims = {"n": ad.Dim(0, 64), "h": ad.Dim(1, 512), "v": ad.Dim(1, 512)}
    shape = (batch, layer.inner, layer.side, layer.side)
    timings = beside_onnxruntime(model_of(layer), dims, shape, seconds)
    speeds = [layer.flops * batch / timings.median(n) / 1e9 for n in ("anydim", "onnxruntime")]
    faster = timings.ratio("onnxruntime", "anydim")
    sys.stdout.write(f"{layer!s:32} {speeds[0]:8.1f} {speeds[1]:12.1f} {faster:8.2f}\n")
    sys.stdout.flush()
    return faster


def main() -> None:
    """Measure every layer and write a table."""
    parser = options_of(__doc__)
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    stay_on(options.cpu)
    sys.stdout.write(f"{'layer':32} {'anydim':>8} {'onnxruntime':>12} {'times':>8}   GFLOP/s\n")
    with settings.override(winograd=not options.plain):
        ratios = [measure(layer, options.batch, options.seconds) for layer in LAYERS]
    sys.stdout.write(f"geometric mean {geometric_mean(ratios):.2f} (worst {min(ratios):.2f})\n")


if __name__ == "__main__":
    main()
