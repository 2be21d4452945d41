"""Networks that say what an image shows, every size free: resnet18, MobileNetV2, ConvNeXt-T."""

from __future__ import annotations

import onnx

from bench.networks.writer import FLOAT, Network

IMAGE = {"images": (FLOAT, ["b", 3, "h", "w"])}
CLASSES = 1000


class _Classifier(Network):
    def ended(self, name: str, x: str, channels: int) -> onnx.ModelProto:
        """The mean over all places, then scores."""
        flat = self("Flatten", self("GlobalAveragePool", x))
        self("Identity", self.linear(flat, channels, CLASSES), output="scores")
        return self.model(name, IMAGE, {"scores": (FLOAT, ["b", CLASSES])})


def resnet18() -> onnx.ModelProto:
    """Four stages of two blocks of two 3 x 3 convolutions."""
    net, channels = _Classifier(), 64
    x = net("Relu", net.conv("images", 3, channels, 7, 2))
    x = net("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for out in (64, 128, 256, 512):
        for stride in (1 if out == 64 else 2, 1):
            y = net("Relu", net.conv(x, channels, out, 3, stride))
            y = net.conv(y, out, out, 3)
            skip = x if (channels, stride) == (out, 1) else net.conv(x, channels, out, 1, stride)
            x, channels = net("Relu", net("Add", y, skip)), out
    return net.ended("resnet18", x, channels)


def mobilenet() -> onnx.ModelProto:
    """Blocks that widen, filter each channel by itself and narrow again."""
    net = _Classifier()
    capped = lambda x: net("Clip", x, net.number(0.0), net.number(6.0))  # noqa: E731
    x, channels = capped(net.conv("images", 3, 32, 3, 2)), 32
    for widen, out, count, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
        (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for number in range(count):
            stride, wide = first if number == 0 else 1, widen * channels
            y = capped(net.conv(x, channels, wide)) if widen > 1 else x
            y = capped(net.conv(y, wide, wide, 3, stride, groups=wide))
            y = net.conv(y, wide, out)
            x = net("Add", x, y) if (stride, channels) == (1, out) else y
            channels = out
    return net.ended("mobilenet", capped(net.conv(x, channels, 1280)), 1280)


def convnext() -> onnx.ModelProto:
    """Depthwise 7 x 7, normalised over channels, two dense layers in each block."""
    net, channels = _Classifier(), 96
    x = net("Conv", "images", net.drawn(96, 3, 4, 4), net.drawn(96), kernel_shape=[4, 4],
            strides=[4, 4])  # fmt: skip
    for out, count in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if out != channels:
            weight = net.drawn(out, channels, 2, 2)
            x = net("Conv", x, weight, net.drawn(out), kernel_shape=[2, 2], strides=[2, 2])
            channels = out
        for _ in range(count):
            y = net.conv(x, out, out, 7, groups=out)
            y = net.norm(net("Transpose", y, perm=[0, 2, 3, 1]), out)
            y = net.linear(net.gelu(net.linear(y, out, 4 * out)), 4 * out, out)
            x = net("Add", x, net("Transpose", y, perm=[0, 3, 1, 2]))
    return net.ended("convnext", x, channels)
