"""Convolutions of many images of few places: right, with what follows, and with an image's bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy
import pytest

import anydim as ad
from anydim.base import settings
from anydim.base.dtypes import float64
from anydim.compiler.frontends.graph_builder import Value
from anydim.compiler.kernels.launch import Machine
from tests.unit.compiler.kernels.convolution_cases import Case, check, convolved

SMALL = Machine(16, 16, 4 * 1024, 64 * 1024)
BATCHES = (0, 1, 2, 11, 12, 13, 25, 49)
PLACES = ((1, 1), (1, 2), (2, 2), (3, 1), (2, 4), (3, 3), (4, 4), (1, 17), (4, 6), (5, 5), (0, 3))


def window(k: int, pad: int, stride: int = 1, groups: int = 1) -> dict:
    return {"strides": (stride, stride), "pads": (pad,) * 4, "groups": groups}


CASES = {
    "3x3": Case("n 5 h v", "17 5 3 3", window(3, 1), bias=True),
    "3x3 whole tiles": Case("n 40 h v", "64 40 3 3", window(3, 1), bias=True),
    "3x3 stride 2": Case("n 4 h v", "40 4 3 3", window(3, 1, 2)),
    "no padding": Case("n 4 h v", "7 4 2 2", {}),
    "1x1": Case("n 20 h v", "24 20 1 1", {}),
    "1x1 packed": Case("n 20 h v", "72 20 1 1", {}, bias=True),
    "groups": Case("n 12 h v", "36 3 3 3", window(3, 1, 1, 4), bias=True),
    "weights of a call": Case("n 5 h v", "19 5 3 3", window(3, 1), True, constant=False),
    "float64": Case("n 5 h v", "33 5 3 3", window(3, 1), True, dtype=float64),
    "far taps": Case("n 5 h v", "16 5 3 3", {"pads": (4, 4, 4, 4), "dilations": (4, 4)}, bias=True),
    "padding before alone": Case("n 5 h v", "9 5 3 4", {"pads": (2, 3, 0, 0)}),
    "many chunks": Case("n 64 h v", "16 64 5 5", window(5, 2), bias=True),
    "frames": Case("n 5 v", "35 5 5", {"pads": (2, 2)}),
}


@pytest.mark.sampled("-no padding-small", "-float64-small", most=4)
@pytest.mark.parametrize("machine", [None, SMALL], ids=["host", "small"])
@pytest.mark.parametrize("name", CASES)
def test_every_batch_and_image(name: str, machine: Machine | None) -> None:
    prepared = CASES[name].prepared(machine)
    for number, (h, v) in enumerate(PLACES):
        for batch in (BATCHES[number % len(BATCHES)], 13):
            check(CASES[name], prepared, {"n": batch, "h": h, "v": v}, parts=1 + number % 3)


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("name", CASES)
def test_nothing_outside_is_touched(name: str) -> None:
    case = replace(CASES[name], w=CASES[name].w.replace("64 40", "16 3"))
    case = replace(case, x=case.x.replace("40", "3"))
    prepared = case.prepared(SMALL)
    few = ((3, 2, 2), (5, 1, 3))
    for batch, h, v in few if name == "many chunks" else (*few, (17, 1, 2)):
        check(case, prepared, {"n": batch, "h": h, "v": v}, compiled=False)


@pytest.mark.sampled(most=7)
@pytest.mark.parametrize("name", CASES)
def test_an_image_has_its_bits_in_every_batch_and_part(name: str) -> None:
    case = CASES[name]
    prepared = case.prepared()
    for batch, (h, v) in zip((2, 7, 13, 30) * 3, PLACES):
        sizes = {"n": batch, "h": h, "v": v}
        x, *rest = case.arrays(sizes)
        (every,) = prepared.outputs([x, *rest], sizes, 3, compiled=True)
        for image in (0, batch // 2, batch - 1):
            alone = [x[image : image + 1], *rest]
            (one,) = prepared.outputs(alone, {**sizes, "n": 1}, 1, compiled=True)
            assert one.tobytes() == every[image : image + 1].tobytes()


@pytest.mark.sampled(most=7)
@pytest.mark.parametrize("name", CASES)
def test_many_images_go_place_by_place(name: str) -> None:
    """From as many images on as a vector has lanes, where they have up to 16 places."""
    case = CASES[name]
    prepared = case.prepared()
    crowds = ((15, 2, 2), (16, 1, 1), (17, 2, 2), (49, 3, 3), (33, 4, 4), (16, 2, 8), (97, 1, 2))
    for batch, h, v in (*crowds, (31, 1, 16), (16, 1, 17), (16, 5, 4), (48, 0, 2)):
        sizes = {"n": batch, "h": h, "v": v}
        check(case, prepared, sizes, parts=1 + batch % 3)
        x, *rest = case.arrays(sizes)
        (every,) = prepared.outputs([x, *rest], sizes, 2, compiled=True)
        (one,) = prepared.outputs([x[-1:], *rest], {**sizes, "n": 1}, 1, compiled=True)
        assert one.tobytes() == every[-1:].tobytes()


@pytest.mark.parametrize("places", [(2, 2), (4, 4), (1, 3)])
def test_places_that_are_known_go_one_by_one(places: tuple[int, int]) -> None:
    h, v = places
    case = Case(f"n 5 {h} {v}", "17 5 3 3", window(3, 1), bias=True)
    prepared = case.prepared()
    for batch in (1, 13, 16, 50):
        check(case, prepared, {"n": batch})


Chain = Callable[[ad.Builder, Value, Value, Value], list[Value]]
FOLLOWS: dict[str, Chain] = {
    "relu": lambda g, y, more, own: [g.relu(y)],
    "residual": lambda g, y, more, own: [g.relu(y + more)],
    "residual of its bytes": lambda g, y, more, own: [g.relu(y + g.exp(more))],
    "sigmoid": lambda g, y, more, own: [y * g.sigmoid(y)],
    "two results": lambda g, y, more, own: [y, g.tanh(y) - y],
    "an image's bias": lambda g, y, more, own: [y + own],
    "an image's scale": lambda g, y, more, own: [g.tanh(y * own)],
}


def following(name: str, y: numpy.ndarray, more: numpy.ndarray, own: numpy.ndarray) -> list:
    """What `FOLLOWS` says, in float64."""
    return {
        "relu": lambda: [numpy.maximum(y, 0)],
        "residual": lambda: [numpy.maximum(y + more, 0)],
        "residual of its bytes": lambda: [numpy.maximum(y + numpy.exp(more), 0)],
        "sigmoid": lambda: [y / (1 + numpy.exp(-y))],
        "two results": lambda: [y, numpy.tanh(y) - y],
        "an image's bias": lambda: [y + own],
        "an image's scale": lambda: [numpy.tanh(y * own)],
    }[name]()


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize("name", FOLLOWS)
def test_what_follows_is_done_with_it(name: str) -> None:
    g = ad.Builder("block")
    n, h, v = g.dim("n", 0, 64), g.dim("h", 0, 64), g.dim("v", 0, 64)
    random = numpy.random.default_rng(3)
    w, b = (random.standard_normal(s).astype(numpy.float32) for s in ((20, 16, 5, 5), (20,)))
    x = g.input("x", ad.float32, (n, 16, h, v))
    more, own = g.input("z", ad.float32, (n, 20, h, v)), g.input("o", ad.float32, (n, 20, 1, 1))
    y = g.conv(x, g.constant(w), g.constant(b), pads=(2, 2, 2, 2))
    for number, result in enumerate(FOLLOWS[name](g, y, more, own)):
        g.output(f"y{number}", result)
    model = ad.compile(g)
    assert "convolution: " in model.explain(details=True)
    for sizes in ((0, 2, 2), (1, 2, 2), (13, 2, 2), (30, 1, 1), (7, 3, 5), (2, 9, 9)):
        feeds = {
            name: random.standard_normal(shape).astype(numpy.float32)
            for name, shape in (
                ("x", (sizes[0], 16, *sizes[1:])),
                ("z", (sizes[0], 20, *sizes[1:])),
                ("o", (sizes[0], 20, 1, 1)),
            )
        }
        exact = convolved(feeds["x"], w, b, pads=(2,) * 4)
        found = model(**feeds)
        for number, each in enumerate(following(name, exact, feeds["z"], feeds["o"])):
            numpy.testing.assert_allclose(found[f"y{number}"], each, atol=2e-3, rtol=1e-5)
        for image in range(0, sizes[0], 5):
            alone = model(**{key: array[image : image + 1] for key, array in feeds.items()})
            for key, array in alone.items():
                assert array.tobytes() == found[key][image : image + 1].tobytes()


def test_layers_of_a_network_have_short_formulas() -> None:
    """The arena's has the scratch of all of them: exact, it would be above the limit of sizes."""
    g = ad.Builder("stages")
    value = g.input("x", ad.float32, (g.dim("n"), 16, g.dim("height"), g.dim("width")))
    w = numpy.ones((16, 16, 3, 3), numpy.float32)
    for _ in range(5):
        value = g.relu(g.conv(value, g.constant(w), pads=(1, 1, 1, 1), strides=(2, 2)))
        value = value + g.conv(value, g.constant(w), pads=(1, 1, 1, 1))
    g.output("y", value)
    with settings.override(layout="channels_first"):
        program = ad.compile(g, strategy="generic").program
    assert max(len(str(site.scratch)) for site in program.sites) < 1000
