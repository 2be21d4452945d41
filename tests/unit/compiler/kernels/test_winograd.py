"""Winograd's 3 x 3 convolutions agree with float64 numpy at every size.

Sizes choose between it and a plain convolution; most of what follows asks it at all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy
import pytest

import anydim as ad
from anydim.base import settings
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.convolution import convolution_template as convolution
from anydim.compiler.kernels.matmul.winograd.winograd_form import (
    ChannelsFirstForm,
    channels_first_form_of,
)
from anydim.compiler.kernels.template import Task
from anydim.compiler.kernels.templates import TEMPLATES
from anydim.compiler.targets.llvm.host import machine as host_machine
from anydim.sizes import ALWAYS
from tests.unit.compiler.kernels.convolution_cases import BOX, Case, convolved
from tests.unit.compiler.kernels.launching import Prepared

PLANES = next(each for each in TEMPLATES if each.name == "winograd")
AVX2 = Machine(32, 16)
SMALL = Machine(16, 16, 4 * 1024, 64 * 1024)
SIDES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 28, 31, 63, 64, 65, 66, 67, 130)
CASES = {
    "padded": Case("n 17 h v", "19 17 3 3", {"pads": (1,) * 4}),
    "with bias": Case("n 16 h v", "16 16 3 3", {"pads": (1,) * 4}, bias=True),
    "not padded": Case("n 16 h v", "24 16 3 3", {"pads": (0,) * 4}),
    "one-sided": Case("n 16 h v", "24 16 3 3", {"pads": (2, 0, 0, 1)}),
    "wide padding": Case("n 16 h v", "17 16 3 3", {"pads": (3, 5, 4, 7)}),
    "many rows": Case("n 16 h v", "150 16 3 3", {"pads": (1,) * 4}),
    "groups": Case("n 36 h v", "40 18 3 3", {"pads": (1,) * 4, "groups": 2}, bias=True),
}


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sizes choose Winograd's way everywhere."""
    with monkeypatch.context() as patch:
        patch.setattr(ChannelsFirstForm, "pays", ALWAYS)
        yield


def prepared(name: str, machine: Machine) -> Prepared:
    constants = frozenset({"w", "b"})
    return Prepared(CASES[name].group(), [PLANES], BOX, machine, constants)


def check(name: str, made: Prepared, sizes: Mapping[str, int], parts: int, compiled: bool) -> None:
    """The transforms add up terms about 100 times as large as the sums: 1e-5 of those."""
    case = CASES[name]
    arrays = case.arrays(sizes, seed=sum(sizes.values()))
    (found,) = made.outputs(arrays, sizes, parts, compiled)
    exact = convolved(*arrays, **case.attributes)
    assert found.shape == exact.shape
    magnitude = convolved(*map(numpy.abs, arrays), **case.attributes)
    assert numpy.abs(found - exact).max(initial=0) <= 1e-5 * magnitude.max(initial=0)


@pytest.mark.sampled("groups-small", "not padded-small", "one-sided-avx2", most=2)
@pytest.mark.parametrize("machine", [None, AVX2, SMALL], ids=["host", "avx2", "small"])
@pytest.mark.parametrize("name", CASES)
def test_every_size(name: str, machine: Machine | None, always: None) -> None:
    made = prepared(name, machine or host_machine())
    for number, side in enumerate(SIDES):
        sizes = {"n": number % 3, "h": side if number % 2 else 9, "v": side}
        check(name, made, sizes, 1 + number % 4, compiled=True)


def test_nothing_outside_is_touched(always: None) -> None:
    check("padded", prepared("padded", SMALL), {"n": 1, "h": 3, "v": 5}, 1, compiled=False)


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("name", CASES)
def test_sizes_choose_the_way(name: str) -> None:
    made = prepared(name, host_machine())
    for number, side in enumerate(SIDES):
        sizes = {"n": number % 3, "h": side if number % 2 else 9, "v": side}
        check(name, made, sizes, 1 + number % 4, compiled=True)


def test_the_plain_way_has_the_bits_of_a_plain_convolution() -> None:
    case = CASES["with bias"]
    both = prepared("with bias", host_machine())
    constants = frozenset({"w", "b"})
    alone = Prepared(case.group(), [convolution.TEMPLATE], BOX, host_machine(), constants)
    for side in (1, 2, 3, 7, 11):
        sizes = {"n": 2, "h": side, "v": side}
        arrays = case.arrays(sizes, seed=side)
        (found,), (expected,) = (each.outputs(arrays, sizes, 2, True) for each in (both, alone))
        numpy.testing.assert_array_equal(found, expected)


def test_where_each_way_pays() -> None:
    """Measured: kernels/matmul/convolution/notes.md."""
    case = Case("n 64 h v", "64 64 3 3", {"pads": (1,) * 4})
    found = channels_first_form_of(Task(case.group(), BOX, host_machine(), frozenset({"w"})))
    assert found is not None
    pays = found.pays
    for height, width, expected in (
        (1, 1, 0), (7, 7, 0), (12, 12, 0), (1000, 3, 0), (1, 100, 0), (20, 20, 1),
        (56, 56, 1), (4, 40, 1), (1 << 20, 1 << 12, 1),
    ):  # fmt: skip
        assert pays.holds({"n": 3, "h": height, "v": width}) == expected, (height, width)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["padded", "not padded", "one-sided", "groups"])
def test_nothing_outside_is_touched_anywhere(name: str, always: None) -> None:
    made = prepared(name, SMALL)
    for height, width in ((3, 5), (6, 19)):
        check(name, made, {"n": 1, "h": height, "v": width}, 1, compiled=False)


@pytest.mark.parametrize(
    "case",
    [
        Case("n 16 h v", "16 16 3 3", {"pads": (1,) * 4, "strides": (1, 2)}),
        Case("n 16 h v", "16 16 3 3", {"pads": (1,) * 4, "dilations": (2, 1)}),
        Case("n 16 h v", "16 16 3 5", {"pads": (1,) * 4}),
        Case("n 16 h v", "16 16 3 3", {"pads": (1,) * 4}, constant=False),
        Case("n 8 h v", "16 8 3 3", {"pads": (1,) * 4}),
        Case("n 16 7 7", "16 16 3 3", {"pads": (1,) * 4}),
    ],
    ids=["strided", "dilated", "3x5", "weights at run time", "few channels", "a small image"],
)
def test_left_to_the_plain_way(case: Case) -> None:
    constants = frozenset({"w"}) if case.constant else frozenset()
    with pytest.raises(AssertionError, match="no template"):
        Prepared(case.group(), [PLANES], BOX, host_machine(), constants)


def test_what_follows_is_done_with_it() -> None:
    g = ad.Builder("block")
    n, h, v = g.dim("n", 0, 4), g.dim("h", 0, 64), g.dim("v", 0, 64)
    random = numpy.random.default_rng(3)
    w, b = (random.standard_normal(s).astype(numpy.float32) for s in ((16, 16, 3, 3), (16,)))
    x = g.input("x", ad.float32, (n, 16, h, v))
    y = g.conv(x, g.constant(w), g.constant(b), pads=(1, 1, 1, 1))
    g.output("y", g.relu(y + x))
    graph = g.graph()
    model = ad.compile(graph)
    assert "winograd: " in model.explain(details=True) and len(model.program.sites) == 1
    with settings.override(winograd=False):
        plain = ad.compile(graph)
    assert "convolution: " in plain.explain(details=True)
    for sizes in ((0, 3, 3), (1, 1, 1), (2, 17, 33), (1, 40, 5), (2, 64, 64)):
        shape = (sizes[0], 16, *sizes[1:])
        x_values = random.standard_normal(shape).astype(numpy.float32)
        exact = numpy.maximum(convolved(x_values, w, b, pads=(1,) * 4) + x_values, 0)
        for found in (model(x=x_values)["y"], plain(x=x_values)["y"]):
            numpy.testing.assert_allclose(found, exact, atol=2e-3)


def test_what_it_cannot_do_follows_in_another_kernel() -> None:
    g = ad.Builder("swish")
    n, h, v = g.dim("n", 0, 4), g.dim("h", 0, 64), g.dim("v", 0, 64)
    random = numpy.random.default_rng(4)
    w = random.standard_normal((16, 16, 3, 3)).astype(numpy.float32)
    x = g.input("x", ad.float32, (n, 16, h, v))
    y = g.conv(x, g.constant(w), pads=(1, 1, 1, 1))
    g.output("y", y * g.sigmoid(y))
    with settings.override(layout="channels_first"):
        model = ad.compile(g)
    assert [step.schedule.partition("(")[0] for step in model.program.sites] == [
        "winograd", "pointwise",
    ]  # fmt: skip
    for sizes in ((0, 3, 3), (1, 1, 1), (2, 17, 33), (2, 64, 64)):
        x_values = random.standard_normal((sizes[0], 16, *sizes[1:])).astype(numpy.float32)
        exact = convolved(x_values, w, None, pads=(1,) * 4)
        numpy.testing.assert_allclose(
            model(x=x_values)["y"], exact / (1 + numpy.exp(-exact)), atol=2e-3
        )
