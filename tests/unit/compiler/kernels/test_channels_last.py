"""Convolutions whose tensors lie channels-last agree with float64 numpy at every size.

Results are n h w c; x is so too, or has its channels first as a network's first image has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy
import pytest

from anydim.base.dtypes import float32
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.contraction import contraction_template as contraction
from anydim.compiler.kernels.matmul.winograd.winograd_form import (
    ChannelsLastForm,
    channels_last_form_of,
)
from anydim.compiler.kernels.template import Task, Template
from anydim.compiler.kernels.templates import TEMPLATES
from anydim.compiler.kernels.window_reduction import window_template as sliding
from anydim.compiler.targets.llvm.host import machine as host_machine
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import Group, TensorType
from anydim.sizes import ALWAYS, Box, Dim, parse
from tests.unit.compiler.kernels.convolution_cases import convolved
from tests.unit.compiler.kernels.launching import Prepared, once_for_each_target

IMAGES = next(each for each in TEMPLATES if each.name == "winograd_across")
BOX = Box.of(Dim("n", 0, 64), Dim("h", 0, 512), Dim("v", 0, 512))
SMALL = Machine(16, 16, 4 * 1024, 64 * 1024)
SIDES = (0, 1, 2, 3, 5, 7, 8, 9, 13, 17, 28, 31)


@dataclass(frozen=True)
class Layer:
    """A convolution: channels, window, strides, dilations, pads before and after, in each axis."""

    inner: int
    outer: int
    window: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    first: bool = False  # channels of x come first

    @property
    def text(self) -> str:
        places = [self._place(axis) for axis in (0, 1)]
        x = ["n", "c", *places] if self.first else ["n", *places, "c"]
        padded = f"(x({','.join(x)}) else 0)" if any(self.pads) else f"x({','.join(x)})"
        ranges = ", ".join(f"{name} in 0:{self._count(axis)}" for axis, name in enumerate("ab"))
        return f"""def layer(float({"N,C,H,V" if self.first else "N,H,V,C"}) x, float(M,C,R,Q) w,
            float(M) z) -> (y) {{
          t(n,a,b,m) +=! {padded} * w(m,c,r,q) where n in 0:N, m in 0:M, c in 0:C, r in 0:R,
            q in 0:Q, {ranges}
          y(n,a,b,m) = t(n,a,b,m) + z(m)
        }}"""

    def _place(self, axis: int) -> str:
        index = f"{'ab'[axis]} * {self.strides[axis]} + {'rq'[axis]} * {self.dilations[axis]}"
        return f"{index} - {self.pads[axis]}"

    def _count(self, axis: int) -> str:
        reach = (self.window[axis] - 1) * self.dilations[axis] + 1
        room = f"{'HV'[axis]} + {self.pads[axis] + self.pads[2 + axis] - reach}"
        return f"max(({room}) // {self.strides[axis]} + 1, 0)"

    @property
    def weights(self) -> tuple[int, ...]:
        return (self.outer, self.inner, *self.window)

    @property
    def added(self) -> tuple[str, ...]:
        """The shape of z."""
        return (str(self.outer),)

    @property
    def group(self) -> Group:
        x = ("n", str(self.inner), "h", "v") if self.first else ("n", "h", "v", str(self.inner))
        shapes = (x, tuple(map(str, self.weights)), self.added)
        types = [TensorType(float32, tuple(map(parse, shape))) for shape in shapes]
        return instantiate(parse_definition(self.text), types, box=BOX)

    def arrays(self, sizes: Mapping[str, int]) -> list[numpy.ndarray]:
        """x with its channels last, w and z."""
        random = numpy.random.default_rng(sorted(sizes.values()))
        x = (sizes["n"], sizes["h"], sizes["v"], self.inner)
        z = [parse(extent).evaluate(sizes) for extent in self.added]
        shapes = (x, self.weights, z)
        return [random.standard_normal(shape).astype(numpy.float32) for shape in shapes]

    def expected(self, x: numpy.ndarray, w: numpy.ndarray, z: numpy.ndarray) -> numpy.ndarray:
        found = convolved(
            x.transpose(0, 3, 1, 2), w, z,
            strides=self.strides, dilations=self.dilations, pads=self.pads,
        )  # fmt: skip
        return found.transpose(0, 2, 3, 1)


@dataclass(frozen=True)
class Own(Layer):
    """Each channel by itself: sums weighted by w(r,q,m), or the largest in a window."""

    largest: bool = False

    @property
    def text(self) -> str:
        x = f"x(n,{self._place(0)},{self._place(1)},m)"
        ranges = ", ".join(f"{name} in 0:{self._count(axis)}" for axis, name in enumerate("ab"))
        value = f"max=! ({x} else -inf)" if self.largest else f"+=! ({x} else 0) * w(r,q,m)"
        return f"""def layer(float(N,H,V,M) x, float(R,Q,M) w, float(M) z) -> (y) {{
          t(n,a,b,m) {value} where n in 0:N, m in 0:M, r in 0:R, q in 0:Q, {ranges}
          y(n,a,b,m) = t(n,a,b,m) + z(m)
        }}"""

    @property
    def weights(self) -> tuple[int, ...]:
        return (*self.window, self.outer)

    def expected(self, x: numpy.ndarray, w: numpy.ndarray, z: numpy.ndarray) -> numpy.ndarray:
        if not self.largest:
            w = w.transpose(2, 0, 1)[:, None]
            found = convolved(
                x.transpose(0, 3, 1, 2), w, z, groups=self.outer,
                strides=self.strides, dilations=self.dilations, pads=self.pads,
            )  # fmt: skip
            return found.transpose(0, 2, 3, 1)
        before, after = self.pads[:2], self.pads[2:]
        padded = numpy.pad(x, [(0, 0), *zip(before, after), (0, 0)], constant_values=-numpy.inf)
        reach = [(k - 1) * d + 1 for k, d in zip(self.window, self.dilations)]
        if padded.shape[1] < reach[0] or padded.shape[2] < reach[1]:
            counts = [
                max(0, (n - k) // s + 1) for n, k, s in zip(padded.shape[1:3], reach, self.strides)
            ]
            return numpy.zeros((x.shape[0], *counts, self.outer))
        found = numpy.lib.stride_tricks.sliding_window_view(padded, reach, axis=(1, 2))
        (down, along), (r, q) = self.strides, self.dilations
        return found[:, ::down, ::along, :, ::r, ::q].max((-2, -1)).astype(numpy.float64) + z


LAYERS = {
    "3x3": Layer(5, 19),
    "whole vectors": Layer(16, 48),
    "many channels": Layer(67, 50),
    "stride 2": Layer(25, 17, strides=(2, 2)),
    "1x1": Layer(20, 33, (1, 1), pads=(0, 0, 0, 0)),
    "1x1 stride 2": Layer(20, 33, (1, 1), (2, 2), pads=(0, 0, 0, 0)),
    "not padded": Layer(6, 8, pads=(0, 0, 0, 0)),
    "one-sided": Layer(6, 8, pads=(2, 0, 0, 1)),
    "wide padding": Layer(3, 8, pads=(3, 5, 4, 7)),
    "dilated": Layer(22, 18, dilations=(2, 3), pads=(2, 3, 2, 3)),
    "along one axis": Layer(7, 18, (1, 7), pads=(0, 3, 0, 3)),
    "down one axis": Layer(7, 18, (7, 1), (2, 3), pads=(3, 0, 3, 0)),
    "first": Layer(3, 24, (7, 7), (2, 2), pads=(3, 3, 3, 3), first=True),
    "first, dilated": Layer(3, 9, (3, 3), (1, 1), (2, 2), (2, 2, 2, 2), first=True),
    "one channel": Layer(1, 20),
    "first, every other place": Layer(20, 33, (1, 1), (2, 2), pads=(0, 0, 0, 0), first=True),
    "first, down": Layer(5, 17, (3, 1), (1, 2), pads=(1, 0, 1, 0), first=True),
    "long sums": Layer(120, 3, (5, 5), pads=(2, 2, 2, 2)),
    "depthwise": Own(40, 40),
    "depthwise, whole vectors": Own(32, 32),
    "depthwise, few channels": Own(9, 9),
    "depthwise stride 2": Own(24, 24, strides=(2, 2)),
    "depthwise 5x5": Own(19, 19, (5, 5), (2, 1), pads=(2, 2, 2, 2)),
    "depthwise 7x7": Own(16, 16, (7, 7), pads=(3, 3, 3, 3)),
    "depthwise 1x19": Own(16, 16, (1, 19), pads=(0, 9, 0, 9)),
    "depthwise, dilated": Own(17, 17, dilations=(2, 3), pads=(2, 3, 1, 0)),
    "depthwise, wide padding": Own(17, 17, pads=(3, 5, 4, 7)),
    "largest": Own(40, 40, largest=True),
    "largest stride 2": Own(17, 17, (3, 3), (2, 2), pads=(1, 1, 0, 1), largest=True),
    "largest 2x2": Own(16, 16, (2, 2), (2, 2), pads=(0, 0, 0, 0), largest=True),
    "largest 5x5": Own(16, 16, (5, 5), pads=(2, 2, 2, 2), largest=True),
}


def prepared(layer: Layer, template: Template, machine: Machine) -> Prepared:
    return Prepared(layer.group, [template], BOX, machine, frozenset({"w", "z"}))


@once_for_each_target
def made(name: str, machine: Machine) -> Prepared:
    layer = LAYERS[name]
    own = isinstance(layer, Own)
    return prepared(layer, sliding.TEMPLATE if own else contraction.TEMPLATE, machine)


def given(layer: Layer, arrays: Sequence[numpy.ndarray]) -> list[numpy.ndarray]:
    x, *others = arrays
    return [numpy.ascontiguousarray(x.transpose(0, 3, 1, 2)) if layer.first else x, *others]


def check(
    layer: Layer, one: Prepared, sizes: Mapping[str, int], parts: int, compiled: bool = True,
    error: float = 1e-4,
) -> None:  # fmt: skip
    """Sums of up to 3000 products of numbers around 1: some rounding of each."""
    arrays = layer.arrays(sizes)
    (found,) = one.outputs(given(layer, arrays), sizes, parts, compiled)
    exact = layer.expected(*arrays)
    assert found.shape == exact.shape
    numpy.testing.assert_allclose(found, exact, rtol=1e-5, atol=error)


@pytest.mark.sampled(most=7)
@pytest.mark.parametrize("name", LAYERS)
def test_every_window(name: str) -> None:
    one = made(name, host_machine())
    for number, side in enumerate(SIDES):
        sizes = {"n": number % 3, "h": side if number % 2 else 6, "v": side}
        check(LAYERS[name], one, sizes, 1 + number % 3)


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize(
    "name", [
        "3x3", "stride 2", "wide padding", "dilated", "first",
        *(name for name, layer in LAYERS.items() if isinstance(layer, Own)),
    ],
)  # fmt: skip
def test_nothing_outside_is_touched(name: str) -> None:
    one = made(name, SMALL)
    check(LAYERS[name], one, {"n": 2, "h": 13, "v": 17}, 3)
    for height, width in ((3, 5), (1, 7), (4, 1)):
        check(LAYERS[name], one, {"n": 1, "h": height, "v": width}, 1, compiled=False)


@pytest.mark.parametrize(
    "name", ["3x3", "dilated", "long sums", "first", "depthwise", "largest stride 2"]
)
def test_an_image_has_its_bits_in_every_batch_and_part(name: str) -> None:
    layer, one = LAYERS[name], made(name, host_machine())
    sizes = {"n": 5, "h": 11, "v": 7}
    arrays = layer.arrays(sizes)
    (whole,) = one.outputs(given(layer, arrays), sizes, 1, compiled=True)
    (parts,) = one.outputs(given(layer, arrays), sizes, 7, compiled=True)
    assert parts.tobytes() == whole.tobytes()
    for image in range(5):
        alone = given(layer, [arrays[0][image : image + 1], *arrays[1:]])
        (found,) = one.outputs(alone, {**sizes, "n": 1}, 1, compiled=True)
        assert found.tobytes() == whole[image : image + 1].tobytes()


@pytest.mark.parametrize(
    "name, template",
    [
        ("3x3", contraction.TEMPLATE),
        ("1x1 stride 2", contraction.TEMPLATE),
        ("3x3", IMAGES),
    ],
)
def test_layers_that_differ_in_channels_share_a_kernel(name: str, template: Template) -> None:
    """Whether channels in and out are as many, or happen to be what another size is."""
    layers = (
        replace(LAYERS[name], inner=inner, outer=outer)
        for inner, outer in ((64, 64), (64, 128), (96, 48), (33, 70), (128, 400))
    )
    kernels = {prepared(each, template, host_machine()).launch.kernel.name for each in layers}
    assert len(kernels) == 1


def test_taps_that_no_row_of_a_tile_has_inside_are_not_multiplied() -> None:
    """3 x 3 dilated by 18 at 15 x 9 took five times onnxruntime's time."""
    layer = LAYERS["dilated"]
    sizes = {"n": 3, "h": 2, "v": 9}
    x, w, z = layer.arrays(sizes)
    exact = layer.expected(x, w, z)
    w[:, :, [0, 2]] = numpy.inf
    (found,) = made("dilated", host_machine()).outputs([x, w, z], sizes, 1, compiled=True)
    numpy.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-4)


@dataclass(frozen=True)
class Gated(Layer):
    """What is added to the sums, and what they are multiplied by then, is of each place."""

    @property
    def text(self) -> str:
        return (
            super()
            .text.replace("float(M) z", "float(N,H,V,M) z")
            .replace("t(n,a,b,m) + z(m)", "(t(n,a,b,m) + z(n,a,b,m)) * z(n,a,b,m)")
        )

    @property
    def added(self) -> tuple[str, ...]:
        return ("n", "h", "v", str(self.outer))

    def expected(self, x: numpy.ndarray, w: numpy.ndarray, z: numpy.ndarray) -> numpy.ndarray:
        return (super().expected(x, w, numpy.zeros(self.outer)) + z) * z


@pytest.mark.parametrize(
    "layer",
    [
        LAYERS["many channels"],
        LAYERS["dilated"],
        LAYERS["stride 2"],
        Gated(24, 20),
    ],
    ids=lambda layer: f"{type(layer).__name__} {layer.inner}",
)
def test_rows_are_the_images_of_one_place(layer: Layer) -> None:
    """Of 4 images and more of a few places in short lines, with the bits of an image alone."""
    one = prepared(layer, contraction.TEMPLATE, host_machine())
    assert "x_spots" in one.launch.kernel.sizes
    for n, h, v in (
        (3, 2, 2),
        (4, 2, 2),
        (13, 3, 5),
        (17, 7, 7),
        (5, 2, 8),
        (6, 4, 11),
        (33, 5, 1),
        (9, 2, 0),
        (0, 2, 2),
    ):
        sizes = {"n": n, "h": h, "v": v}
        check(layer, one, sizes, 1 + n % 3)
        arrays = layer.arrays(sizes)
        (whole,) = one.outputs(arrays, sizes, 2, compiled=True)
        x, w, z = arrays
        alone = [x[-1:], w, z[-1:] if isinstance(layer, Gated) else z]
        (found,) = one.outputs(alone, {**sizes, "n": min(n, 1)}, 1, compiled=True)
        assert found.tobytes() == whole[-1:].tobytes()


def test_windows_of_one_place_are_read_where_they_lie() -> None:
    """Copying them made networks of 1 x 1 convolutions take 1.1 times as long."""
    launch = made("1x1", host_machine()).launch
    assert launch.scratch.constant == 0
    assert made("1x1 stride 2", host_machine()).launch.scratch.constant != 0


# ---- Winograd's way ----------------------------------------------------------------------------

WINOGRAD = {
    "padded": Layer(17, 19),
    "many columns": Layer(16, 150),
    "not padded": Layer(16, 24, pads=(0, 0, 0, 0)),
    "one-sided": Layer(16, 48, pads=(2, 0, 0, 1)),
    "wide padding": Layer(16, 17, pads=(3, 5, 4, 7)),
}


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sizes choose Winograd's way everywhere."""
    with monkeypatch.context() as patch:
        patch.setattr(ChannelsLastForm, "pays", ALWAYS)
        yield


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("name", WINOGRAD)
def test_winograd(name: str, always: None) -> None:
    """The transforms lose about a digit; blocks of windows end inside of images."""
    layer = WINOGRAD[name]
    one = prepared(layer, IMAGES, host_machine())
    for number, side in enumerate(SIDES):
        sizes = {"n": number % 4, "h": side if number % 2 else 6, "v": side}
        check(layer, one, sizes, 1 + number % 3, error=2e-3)
    small = prepared(layer, IMAGES, SMALL)
    check(layer, small, {"n": 2, "h": 3, "v": 5}, 2, compiled=False, error=2e-3)


def test_an_image_has_its_bits_by_winograds_way(always: None) -> None:
    layer = WINOGRAD["many columns"]
    one = prepared(layer, IMAGES, host_machine())
    arrays = layer.arrays({"n": 5, "h": 11, "v": 18})
    sizes = {"n": 5, "h": 11, "v": 18}
    (whole,) = one.outputs(arrays, sizes, 1, compiled=True)
    (parts,) = one.outputs(arrays, sizes, 5, compiled=True)
    assert parts.tobytes() == whole.tobytes()
    for image in range(5):
        alone = [arrays[0][image : image + 1], *arrays[1:]]
        (found,) = one.outputs(alone, {**sizes, "n": 1}, 1, compiled=True)
        assert found.tobytes() == whole[image : image + 1].tobytes()


def test_sizes_choose_between_winograds_way_and_the_plain_one() -> None:
    layer = Layer(64, 64)
    one = prepared(layer, IMAGES, host_machine())
    assert [name for name, _ in one.launch.versions] == ["transformed", "plain"]
    for side in (1, 3, 30):
        check(layer, one, {"n": 2, "h": side, "v": side}, 2, error=5e-3)


@pytest.mark.parametrize(
    ("channels", "size", "expected"),
    [
        (64, (13, 7), 1), (64, (56, 56), 1), (128, (13, 7), 1), (192, (10, 10), 1),
        (256, (7, 7), 0), (256, (13, 7), 0), (256, (14, 14), 1), (256, (28, 28), 1),
        (512, (10, 10), 0), (512, (14, 14), 1), (512, (20, 20), 1),
    ],
)  # fmt: skip
def test_where_winograds_way_pays(channels: int, size: tuple[int, int], expected: int) -> None:
    """Measured with weights that no cache holds from 256 channels on: convolution/notes.md."""
    group = Layer(channels, channels).group
    found = channels_last_form_of(Task(group, BOX, host_machine(), frozenset({"w"})))
    assert found is not None
    assert found.pays.holds({"n": 1, "h": size[0], "v": size[1]}) == expected
