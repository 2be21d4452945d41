"""Transposed convolutions beside onnxruntime: python -m bench.kernels.transposed

Layers of decoders, generators and vocoders with bias and ReLU, image sizes free, weights constant.
Both take turns in one process on one core; a ratio is the median of the ratios of neighbours,
above 1 where anydim is faster.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from statistics import geometric_mean

import onnx

import anydim as ad
from bench.kernels.layers import PLACES, beside_onnxruntime, layer_model, options_of, stay_on


@dataclass(frozen=True)
class Layer:
    """Channels in and out; sides of x and of the window, stride and padding along all axes."""

    what: str
    inner: int
    outer: int
    side: int
    window: int
    stride: int
    pad: int
    axes: int = 2
    groups: int = 1
    dilation: int = 1
    more: int = 0

    @property
    def flops(self) -> int:
        taps: int = (self.window * self.side) ** self.axes
        return 2 * self.outer * self.inner // self.groups * taps

    def __str__(self) -> str:
        extra = f" in {self.groups}" if self.groups > 1 else ""
        extra += f" dilated {self.dilation}" if self.dilation > 1 else ""
        shape = f"{self.side}^{self.axes} {self.window}/{self.stride}{extra}"
        return f"{self.what:10} {self.inner:4} -> {self.outer:<4} {shape}"


LAYERS = (
    Layer("u-net", 512, 256, 28, 2, 2, 0),
    Layer("u-net", 128, 64, 112, 2, 2, 0),
    Layer("u-net", 64, 32, 128, 2, 2, 0),
    Layer("dcgan", 1024, 512, 4, 4, 2, 1),
    Layer("dcgan", 512, 256, 8, 4, 2, 1),
    Layer("dcgan", 256, 128, 16, 4, 2, 1),
    Layer("dcgan", 128, 64, 32, 4, 2, 1),
    Layer("dcgan", 64, 3, 64, 4, 2, 1),
    Layer("decoder", 64, 64, 64, 3, 2, 1, more=1),
    Layer("decoder", 256, 128, 16, 3, 2, 1, more=1),
    Layer("decoder", 128, 64, 16, 5, 2, 2, more=1),
    Layer("decoder", 64, 64, 56, 3, 1, 1),
    Layer("decoder", 32, 32, 56, 3, 1, 2, dilation=2),
    Layer("decoder", 128, 128, 28, 4, 2, 1, groups=4),
    Layer("decoder", 64, 64, 28, 4, 2, 1, groups=64),
    Layer("hifi-gan", 512, 256, 100, 16, 8, 4, axes=1),
    Layer("hifi-gan", 256, 128, 800, 16, 8, 4, axes=1),
    Layer("hifi-gan", 128, 64, 6400, 4, 2, 1, axes=1),
    Layer("hifi-gan", 64, 32, 12800, 4, 2, 1, axes=1),
    Layer("vocoder", 256, 128, 400, 11, 5, 3, axes=1),
    Layer("volume", 64, 32, 14, 2, 2, 0, axes=3),
    Layer("volume", 32, 32, 14, 4, 2, 1, axes=3),
    Layer("volume", 32, 32, 14, 3, 2, 1, axes=3, more=1),
)


def model_of(layer: Layer) -> onnx.ModelProto:
    """ConvTranspose with bias, then Relu; the batch and all places are free."""
    axes = layer.axes
    shape = (layer.inner, layer.outer // layer.groups, *(layer.window,) * axes)
    return layer_model(
        "ConvTranspose", layer.inner, shape, layer.outer, pads=[layer.pad] * 2 * axes,
        strides=[layer.stride] * axes, dilations=[layer.dilation] * axes, group=layer.groups,
        output_padding=[layer.more] * axes,
    )  # fmt: skip


def measure(layer: Layer, batch: int, seconds: float) -> float:
    """Write a line of the table; returns how many times as fast as onnxruntime."""
    dims = {"n": ad.Dim(0, 64), **{name: ad.Dim(0, 1 << 16) for name in PLACES[: layer.axes]}}
    shape = (batch, layer.inner, *(layer.side,) * layer.axes)
    timings = beside_onnxruntime(model_of(layer), dims, shape, seconds)
    times = [timings.median(name) for name in ("anydim", "onnxruntime")]
    speed, faster = layer.flops * batch / times[0] / 1e9, timings.ratio("onnxruntime", "anydim")
    sys.stdout.write(
        f"{layer!s:40} {times[0] * 1e3:8.3f} {times[1] * 1e3:12.3f} {faster:8.2f} {speed:9.1f}\n"
    )
    sys.stdout.flush()
    return faster


def main() -> None:
    """Measure the layers whose line holds `--only`, and write a table."""
    parser = options_of(__doc__)
    parser.add_argument("--only", default="", help="lines with this text")
    options = parser.parse_args()
    stay_on(options.cpu)
    head = f"{'layer':40} {'anydim':>8} {'onnxruntime':>12} {'times':>8} {'GFLOP/s':>9}"
    sys.stdout.write(f"{head}   milliseconds\n")
    chosen = [layer for layer in LAYERS if options.only in str(layer)]
    ratios = [measure(layer, options.batch, options.seconds) for layer in chosen]
    sys.stdout.write(f"geometric mean {geometric_mean(ratios):.2f} (worst {min(ratios):.2f})\n")


if __name__ == "__main__":
    main()
