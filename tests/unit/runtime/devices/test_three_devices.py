"""Promise: a program on the host and two OpenCL devices gives what the host alone gives, and copies
nothing that need not be copied."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy
import pytest

import anydim as ad
from anydim.runtime.devices.opencl.device import OpenClDevice
from tests.kernel_targets import needs_two_devices
from tests.unit.runtime.devices.test_placed_programs import (
    arrays,
    chosen,
    diamond,
    graph_of,
    iterated,
    mixed,
    three_readers,
)

# of vectors of 8 and 16 lanes, one row has 4 elements; primes, and the bounds of the dim
SIZES = (0, 1, 2, 3, 4, 5, 7, 31, 61, 64)
DEVICES = {"a": "opencl:0", "b": "opencl:1"}

pytestmark = needs_two_devices


def copies(model: ad.Model, given: dict[str, numpy.ndarray]) -> dict[str, tuple[int, int]]:
    """Copies to and from each device in a call."""
    devices = model.devices
    before = {name: (d.counters.copies_in, d.counters.copies_out) for name, d in devices.items()}
    model(**given)
    return {
        name: (d.counters.copies_in - before[name][0], d.counters.copies_out - before[name][1])
        for name, d in devices.items()
    }


def both(make: Callable[..., None], *devices: str) -> ad.Model:
    """The model on three devices that have memory of their own; it, and that on the devices as they
    are, were compared with that of the host."""
    apart = {
        name: OpenClDevice(each, number) for number, (name, each) in enumerate(DEVICES.items())
    }
    models = [ad.compile(graph_of(make, *devices), devices=these) for these in (DEVICES, apart)]
    host = ad.compile(graph_of(make, *("" for _ in devices)))
    for n in (*SIZES, *SIZES[::-1]):
        given = arrays(n)
        expected = host(**given)
        for model in models:
            came = model(**given)
            for name, value in expected.items():
                # what is not fused adds four numbers in another order
                numpy.testing.assert_allclose(came[name], value, rtol=1e-6, atol=1e-6, strict=True)
            assert model.executable.leaked == 0
    return models[-1]


@pytest.mark.parametrize(("placed", "counts"), [
    (("", "a", "b", ""), {"a": (1, 1), "b": (1, 1)}),  # each side: the top, its own part
    (("a", "", "b", "a"), {"a": (3, 2), "b": (1, 1)}),  # x and both sides; the top and y
])  # fmt: skip
def test_a_diamond(placed: tuple[str, ...], counts: dict[str, tuple[int, int]]) -> None:
    assert copies(both(diamond, *placed), arrays(9)) == counts


def test_a_value_read_on_three_devices() -> None:
    assert copies(both(three_readers, "a", "b"), arrays(9)) == {"a": (1, 1), "b": (1, 1)}


def looped(g: ad.Builder, x: ad.Builder, first: str, body: str) -> None:
    """What a device makes, a loop on another takes in; what it stacks, the first one adds up."""
    ends: list[ad.Builder] = []
    with g.on(first):
        start = g.tanh(x)
    iterated(g, start, body)
    with g.on(first):
        ends.append(g.softmax(start))
    g.output("softmax", ends[0])


def test_a_loop_with_its_body_on_another_device() -> None:
    model = both(looped, "a", "b")
    # b: the state, once before five iterations; its end and the stack. a: x; the state, softmax
    assert copies(model, arrays(9)) == {"a": (1, 2), "b": (1, 2)}


def test_branches_on_different_devices() -> None:
    model = both(chosen, "a", "b")
    for sign, counts in ((1, {"a": (1, 1), "b": (0, 0)}), (-1, {"a": (0, 0), "b": (1, 1)})):
        assert copies(model, {"x": numpy.full((3, 4), sign, numpy.float32)}) == counts


def nested(g: ad.Builder, x: ad.Builder, first: str, second: str) -> None:
    """A loop on one device whose iterations take a branch on the other, now and then."""

    def body(b: ad.Builder, i: ad.Builder, state: ad.Builder) -> ad.Builder:
        with b.on(first):
            new = b.tanh(mixed(b, state))
            total = b.reduce_sum(new, axes=(0, 1))

        def flipped(inner: ad.Builder) -> ad.Builder:
            with inner.on(second):
                return inner.neg(new)

        def kept(inner: ad.Builder) -> ad.Builder:
            with inner.on(first):
                return inner.exp(new)

        return b.branch(b.greater(total, 0.0), flipped, kept)

    g.output("y", g.loop(body, x, trips=4))


def test_branches_in_a_loop() -> None:
    both(nested, "a", "b")


def test_both_names_may_be_of_one_device_and_one_name_of_another_kind() -> None:
    given = arrays(31)
    expected = ad.compile(graph_of(diamond, "", "", "", ""))(**given)["y"]
    make = partial(graph_of, diamond, "a", "b", "a", "b")
    for devices in ({"a": "opencl:1", "b": "opencl:1"}, {"a": "cpu", "b": "opencl:0"}):
        made = ad.compile(make(), devices=devices)(**given)["y"]
        numpy.testing.assert_allclose(made, expected, rtol=1e-6, atol=1e-6)
