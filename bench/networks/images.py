"""Networks that take images [b, 3, h, w], every size free: a detector, a U-Net, a segmenter."""

from __future__ import annotations

import numpy as np
import onnx

from bench.networks.writer import FLOAT, Network

IMAGE = {"images": (FLOAT, ["b", 3, "h", "w"])}
CLASSES, BINS = 80, 16


def detector() -> onnx.ModelProto:
    """The layers of YOLOv8n: backbone, two pyramids, three heads, boxes from distributions."""
    net = _Detector()
    x = net.block(net.block("images", 3, 16, 3, 2), 16, 32, 3, 2)
    x = net.bottlenecks(x, 32, 32, 1)
    eighth = net.bottlenecks(net.block(x, 32, 64, 3, 2), 64, 64, 2)
    sixteenth = net.bottlenecks(net.block(eighth, 64, 128, 3, 2), 128, 128, 2)
    x = net.bottlenecks(net.block(sixteenth, 128, 256, 3, 2), 256, 256, 1)
    top = net.pooled(x, 256)
    middle = net.bottlenecks(net("Concat", net.doubled(top), sixteenth, axis=1), 384, 128, 1, False)
    fine = net.bottlenecks(net("Concat", net.doubled(middle), eighth, axis=1), 192, 64, 1, False)
    joined = net("Concat", net.block(fine, 64, 64, 3, 2), middle, axis=1)
    middle = net.bottlenecks(joined, 192, 128, 1, False)
    joined = net("Concat", net.block(middle, 128, 128, 3, 2), top, axis=1)
    coarse = net.bottlenecks(joined, 384, 256, 1, False)
    net.detect([(fine, 64, 8), (middle, 128, 16), (coarse, 256, 32)])
    return net.model("detector", IMAGE, {"found": (FLOAT, ["b", 4 + CLASSES, "places"])})


class _Detector(Network):
    def block(self, x: str, channels: int, out: int, kernel: int = 1, stride: int = 1) -> str:
        return self.silu(self.conv(x, channels, out, kernel, stride))

    def bottlenecks(self, x: str, channels: int, out: int, count: int, add: bool = True) -> str:
        half = out // 2
        whole = self.block(x, channels, out)
        first = self("Slice", whole, *map(self.integers, (0, half, 1)))
        parts = [first, self("Slice", whole, *map(self.integers, (half, out, 1)))]
        for _ in range(count):
            y = self.block(self.block(parts[-1], half, half, 3), half, half, 3)
            parts.append(self("Add", parts[-1], y) if add else y)
        return self.block(self("Concat", *parts, axis=1), (2 + count) * half, out)

    def pooled(self, x: str, channels: int) -> str:
        parts = [self.block(x, channels, channels // 2)]
        for _ in range(3):
            parts.append(self("MaxPool", parts[-1], kernel_shape=[5, 5], pads=[2] * 4))
        return self.block(self("Concat", *parts, axis=1), 2 * channels, channels)

    def detect(self, levels: list[tuple[str, int, int]]) -> None:
        batch = self.sizes("images", 0)[0]
        flat, anchors, strides = [], [], []
        for x, channels, stride in levels:
            box = self.block(self.block(x, channels, 64, 3), 64, 64, 3)
            kind = self.block(self.block(x, channels, CLASSES, 3), CLASSES, CLASSES, 3)
            both = self(
                "Concat", self.conv(box, 64, 4 * BINS), self.conv(kind, CLASSES, CLASSES), axis=1
            )
            flat.append(self.reshape(both, batch, 4 * BINS + CLASSES, -1))
            anchor = self.anchors(both)
            anchors.append(anchor)
            strides.append(self.filled(anchor, stride))
        every = self("Concat", *flat, axis=2)
        boxes = self("Slice", every, *map(self.integers, (0, 4 * BINS, 1)))
        kinds = self("Slice", every, *map(self.integers, (4 * BINS, 4 * BINS + CLASSES, 1)))
        boxes = self.corners(self.distances(boxes, batch), self("Concat", *anchors, axis=0))
        stride = self("Transpose", self("Concat", *strides, axis=0), perm=[1, 0])
        self(
            "Concat", self("Mul", boxes, stride), self("Sigmoid", kinds), axis=1, output="found"
        )  # fmt: skip

    def anchors(self, x: str) -> str:
        """[h*w, 2]: the middles of places, counted as floats like torch.arange of a float type."""
        zero, one, half = map(self.number, (0.0, 1.0, 0.5))
        extents = [self("Cast", self.scalar_size(x, axis), to=FLOAT) for axis in (3, 2)]
        across, down = (self("Add", self("Range", zero, e, one), half) for e in extents)
        shape = self("Concat", *self.sizes(x, 2, 3), axis=0)
        column = self.reshape(down, -1, 1)
        grids = [self("Expand", across, shape), self("Expand", column, shape)]
        last = self.integers(-1)
        stacked = self("Concat", *(self("Unsqueeze", g, last) for g in grids), axis=-1)
        return self("Reshape", stacked, self.integers(-1, 2))

    def filled(self, anchor: str, stride: int) -> str:
        shape = self("Concat", *self.sizes(anchor, 0), self.integers(1), axis=0)
        return self("Expand", self.number(float(stride)), shape)

    def distances(self, boxes: str, batch: str) -> str:
        """The mean of each distribution over distances: [b, 64, a] -> [b, 4, a]"""
        split = self.reshape(boxes, batch, 4, BINS, *self.sizes(boxes, 2))
        shares = self("Softmax", self("Transpose", split, perm=[0, 2, 1, 3]), axis=1)
        bins = self.weight("bins", np.arange(BINS, dtype=np.float32).reshape(1, BINS, 1, 1))
        mean = self("Conv", shares, bins, kernel_shape=[1, 1])
        return self.reshape(mean, batch, 4, *self.sizes(boxes, 2))

    def corners(self, distances: str, anchors: str) -> str:
        middle = self("Unsqueeze", self("Transpose", anchors, perm=[1, 0]), self.integers(0))
        low = self("Slice", distances, *map(self.integers, (0, 2, 1)))
        high = self("Slice", distances, *map(self.integers, (2, 4, 1)))
        first, last = self("Sub", middle, low), self("Add", middle, high)
        centre = self("Div", self("Add", first, last), self.number(2.0))
        return self("Concat", centre, self("Sub", last, first), axis=1)


def unet() -> onnx.ModelProto:
    """Four levels of two convolutions each, with transposed convolutions up and skips across."""
    net = Network()

    def twice(x: str, channels: int, out: int) -> str:
        x = net("Relu", net.conv(x, channels, out, 3))
        return net("Relu", net.conv(x, out, out, 3))

    x, skips, channels = "images", [], 3
    for out in (32, 64, 128, 256):
        x = twice(x, channels, out)
        skips.append((x, out))
        x, channels = net("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), out
    x = twice(x, 256, 512)
    channels = 512
    for skip, out in reversed(skips):
        x = net(
            "ConvTranspose", x, net.drawn(channels, out, 2, 2), net.drawn(out),
            kernel_shape=[2, 2], strides=[2, 2],
        )  # fmt: skip
        x, channels = twice(net("Concat", skip, x, axis=1), 2 * out, out), out
    net("Conv", x, net.drawn(2, 32, 1, 1), net.drawn(2), kernel_shape=[1, 1], output="mask")
    return net.model("unet", IMAGE, {"mask": (FLOAT, ["b", 2, "height", "width"])})


def recogniser() -> onnx.ModelProto:
    """Lines of text: separable convolutions down to one row, then scores for each column."""
    net, channels = Network(), 16
    x = net("HardSwish", net.conv("lines", 3, channels, 3, 2))
    for out, low in ((32, 0), (64, 1), (64, 0), (128, 1), (128, 0), (256, 1), (256, 0)):
        wide = net.conv(x, channels, channels, 5 if out > 64 else 3, groups=channels)
        x = net("HardSwish", net.conv(net("HardSwish", wide), channels, out))
        if low:
            x = net("MaxPool", x, kernel_shape=[2, 1], strides=[2, 1])
        channels = out
    columns = net("Transpose", net("ReduceMean", x, net.integers(2), keepdims=0), perm=[0, 2, 1])
    net("Softmax", net.linear(columns, channels, 97), axis=2, output="scores")
    inputs = {"lines": (FLOAT, ["b", 3, 48, "width"])}
    return net.model("recogniser", inputs, {"scores": (FLOAT, ["b", "columns", 97])})


def segmenter() -> onnx.ModelProto:
    """The layers of SegFormer-B0: four stages of attention over fewer keys, one head of all."""
    net = _Segmenter()
    x, channels, stages = "images", 3, []
    for out, heads, reduction, kernel, stride in (
        (32, 1, 8, 7, 4), (64, 2, 4, 3, 2), (160, 5, 2, 3, 2), (256, 8, 1, 3, 2),
    ):  # fmt: skip
        x = net.stage(x, channels, out, heads, reduction, kernel, stride)
        stages.append((x, out))
        channels = out
    first, _ = stages[0]
    parts = []
    for x, out in stages:
        flat = net.linear(net.flat(x, out), out, 256)
        parts.append(net.resized(net.image(flat, x, 256), first))
    joined = net("Relu", net.conv(net("Concat", *reversed(parts), axis=1), 1024, 256))
    net("Identity", net.conv(joined, 256, 150), output="classes")
    return net.model("segmenter", IMAGE, {"classes": (FLOAT, ["b", 150, "height", "width"])})


class _Segmenter(Network):
    def flat(self, x: str, channels: int) -> str:
        """[b, c, h, w] -> [b, h*w, c]"""
        rows = self.reshape(x, *self.sizes(x, 0), channels, -1)
        return self("Transpose", rows, perm=[0, 2, 1])

    def image(self, x: str, like: str, channels: int) -> str:
        """[b, h*w, c] -> [b, c, h, w] of another value's height and width"""
        columns = self("Transpose", x, perm=[0, 2, 1])
        return self.reshape(columns, *self.sizes(like, 0), channels, *self.sizes(like, 2, 3))

    def stage(
        self, x: str, channels: int, out: int, heads: int, reduction: int, kernel: int, stride: int
    ) -> str:
        like = self.conv(x, channels, out, kernel, stride)
        x = self.norm(self.flat(like, out), out)
        for _ in range(2):
            x = self("Add", x, self.attention(self.norm(x, out), like, out, heads, reduction))
            x = self("Add", x, self.mixed(self.norm(x, out), like, out))
        return self.image(self.norm(x, out), like, out)

    def attention(self, x: str, like: str, size: int, heads: int, reduction: int) -> str:
        source = x
        if reduction > 1:
            image = self.image(x, like, size)
            fewer = self(
                "Conv", image, self.drawn(size, size, reduction, reduction), self.drawn(size),
                kernel_shape=[reduction] * 2, strides=[reduction] * 2,
            )  # fmt: skip
            source = self.norm(self.flat(fewer, size), size)
        width = size // heads
        query, key, value = (
            self.heads(self.linear(each, size, size), heads, width) for each in (x, source, source)
        )
        scores = self("MatMul", query, self("Transpose", key, perm=[0, 1, 3, 2]))
        shares = self("Softmax", self("Div", scores, self.number(width**0.5)), axis=-1)
        return self.linear(self.joined(self("MatMul", shares, value), size), size, size)

    def mixed(self, x: str, like: str, size: int) -> str:
        wide = self.image(self.linear(x, size, 4 * size), like, 4 * size)
        wide = self.conv(wide, 4 * size, 4 * size, 3, groups=4 * size)
        return self.linear(self.gelu(self.flat(wide, 4 * size)), 4 * size, size)
