"""Promise: a program whose parts are on devices gives what the host alone gives, at every size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy
import pytest

import anydim as ad
from anydim.compiler.targets.evaluated import EvaluatedDevice
from anydim.runtime.devices.device import Device, Launch
from anydim.runtime.program.region import copies
from tests.unit.runtime.devices.queued import QueuedDevice

SIZES = (0, 1, 7, 8, 9, 31, 64)
W = numpy.random.default_rng(0).standard_normal((4, 4)).astype(numpy.float32)


def graph_of(make: Callable[..., None], *devices: str) -> ad.Builder:
    g = ad.Builder("placed")
    n = g.dim("n", 0, 64)
    x = g.input("x", ad.float32, (n, 4))
    make(g, x, *devices)
    return g


def mixed(b: ad.Builder, x: ad.Builder) -> ad.Builder:
    """A launch of its own with a constant, as a product is; PoCL takes 1 s for it, not 11."""
    return b.softmax(x + W[0], axis=0)


def arrays(n: int) -> dict[str, numpy.ndarray]:
    return {"x": numpy.random.default_rng(n).standard_normal((n, 4)).astype(numpy.float32)}


def both(make: Callable[..., None], *devices: str) -> ad.Model:
    """The model with its parts placed, after it was compared with that of the host."""
    model = ad.compile(graph_of(make, *devices), devices={"a": "cpu:0", "b": "cpu:1"})
    host = ad.compile(graph_of(make, *("" for _ in devices)))
    for n in SIZES:
        given = arrays(n)
        came, expected = model(**given), host(**given)
        for name, value in expected.items():
            assert came[name].dtype == value.dtype
            # what is not fused adds four numbers in another order
            numpy.testing.assert_allclose(came[name], value, rtol=1e-6, atol=1e-6, strict=True)
    assert model.executable.leaked == 0
    return model


def copied(model: ad.Model) -> list[str]:
    return sorted(f"{step.value} -> {step.made}" for step in copies(model.program.regions))


def diamond(g: ad.Builder, x: ad.Builder, first: str, left: str, right: str, last: str) -> None:
    with g.on(first):
        top = mixed(g, x)
    with g.on(left):
        one = g.softmax(top)
    with g.on(right):
        two = g.tanh(top) * 0.5
    with g.on(last):
        g.output("y", mixed(g, one) + two)


@pytest.mark.parametrize("placed, count", [
    (("a", "a", "a", "a"), 2), (("", "a", "b", ""), 4), (("a", "a", "b", "a"), 4),
    (("a", "", "b", ""), 4), (("a", "b", "", "a"), 6), (("", "", "", "b"), 3),
])  # fmt: skip
def test_a_diamond(placed: tuple[str, ...], count: int) -> None:
    model = both(diamond, *placed)
    assert len(copied(model)) == count, copied(model)


def three_readers(g: ad.Builder, x: ad.Builder, first: str, second: str) -> None:
    h = g.exp(x)
    with g.on(first):
        one = g.reduce_sum(h, axes=(1,))
    with g.on(second):
        two = g.reduce_max(g.abs(h), axes=(1,))
    g.output("y", g.neg(h))
    g.output("one", one)
    g.output("two", two)


def test_a_value_read_on_three_devices_is_copied_twice() -> None:
    model = both(three_readers, "a", "b")
    assert sum(" -> exp" in each for each in copied(model)) == 2
    assert len(copied(model)) == 4  # and each result once


def iterated(g: ad.Builder, x: ad.Builder, device: str) -> None:
    def body(b: ad.Builder, i: ad.Builder, state: ad.Builder) -> ad.Builder:
        with b.on(device):
            new = b.tanh(mixed(b, state) + x)
            b.stack(b.reduce_sum(new, axes=(1,)))
        return new

    end, sums = g.loop(body, x, trips=5)
    g.output("end", end)
    g.output("sums", sums)


def test_a_loop_copies_nothing_in_its_iterations() -> None:
    model = both(iterated, "a")
    *held, outermost = model.program.regions
    assert not [*copies(held)]
    assert len([*copies([outermost])]) == 3  # in: x, once; out: the state and the stack


def chosen(g: ad.Builder, x: ad.Builder, first: str, second: str) -> None:
    def then(b: ad.Builder) -> ad.Builder:
        with b.on(first):
            return b.exp(x)

    def otherwise(b: ad.Builder) -> ad.Builder:
        with b.on(second):
            return mixed(b, x)

    positive = g.greater(g.reduce_sum(x, axes=(0, 1)), 0.0)
    g.output("y", g.branch(positive, then, otherwise))


def test_a_branch_copies_only_what_the_taken_one_reads() -> None:
    model = both(chosen, "a", "b")
    devices = [*model.devices.values()]
    for sign, (used, other) in ((1, (0, 1)), (-1, (1, 0))):
        before = [device.counters.copies for device in devices]
        model(x=numpy.full((3, 4), sign, numpy.float32))
        after = [device.counters.copies for device in devices]
        assert after[used] - before[used] == 2 and after[other] == before[other]


def grown(g: ad.Builder, x: ad.Builder, device: str) -> None:
    """A state that grows, one that changes places, and a stack of an open number of slices."""

    def body(b: ad.Builder, i: ad.Builder, *states: ad.Builder) -> tuple[ad.Builder, ...]:
        rows, one, two = states
        with b.on(device):
            total = b.reduce_sum(rows, axes=(0, 1))
            one = b.neg(one) + total
            b.stack(total)
        b.proceed(b.less(total, 1e3))
        return b.concat(rows, x, axis=0), two, one

    with g.on(device):
        start, zero = g.abs(x), g.reduce_sum(x, axes=(0, 1)) * 0.0
    results = g.loop(body, start, zero, zero + 1.0, trips=4, condition=g.constant(True))
    for number, value in enumerate(results):
        g.output(f"y{number}", value)


def test_states_that_grow_and_change_places() -> None:
    both(grown, "a")


def looked_up(g: ad.Builder, x: ad.Builder, device: str) -> None:
    with g.on(device):
        index = g.cast(g.reduce_max(x, axes=(1,)), to=ad.int64)
        g.output("y", g.gather(W, index, axis=0))


def test_an_index_that_leaves_its_axis_on_a_device_is_an_error() -> None:
    model = ad.compile(graph_of(looked_up, "a"), devices={"a": "cpu"})
    good = numpy.full((5, 4), 3, numpy.float32)
    numpy.testing.assert_array_equal(model(x=good)["y"], W[[3] * 5])
    with pytest.raises(ad.InputError, match="index 4"):
        model(x=good + 1)
    numpy.testing.assert_array_equal(model(x=good)["y"], W[[3] * 5])


def found(g: ad.Builder, x: ad.Builder, device: str) -> None:
    with g.on(device):
        h = g.greater(x, 0.0)
    places = g.nonzero(h)
    with g.on(device):
        g.output("y", g.cast(places, to=ad.float32) * 2.0)


def test_sizes_that_data_decides() -> None:
    both(found, "a")


def in_order(g: ad.Builder, x: ad.Builder, device: str) -> None:
    """Routines, one of them of several launches, a loop in order, and a recurrent operator."""
    with g.on(device):
        values, order = g.sort(x, axis=0)
        g.output("sums", g.cum_sum(values, axis=1))
        g.output("places", g.nonzero(g.greater(x, 0.0)))
        g.output("first", g.scatter_elements(x, order, values, axis=0, reduction="add"))
        steps = g.unsqueeze(x, axes=(1,))
        w, r = W[None], W[None].copy()
        zeros = numpy.zeros((1, 8), numpy.float32)
        tanh = (("tanh", 0.0, 0.0),)
        g.output("end", g.rnn(steps, w, r, zeros, given=("bias",), activations=tanh)[1])


def test_routines_and_loops_in_order() -> None:
    model = both(in_order, "a")
    assert {segment.device for segment in model.program.segments if segment.sites} == {"a"}


def test_both_names_may_be_one_device() -> None:
    given = arrays(9)
    expected = ad.compile(graph_of(diamond, "", "", "", ""))(**given)["y"]
    for one in ("cpu", "cpu:3"):
        model = ad.compile(graph_of(diamond, "a", "b", "a", "b"), devices={"a": one, "b": one})
        numpy.testing.assert_array_equal(model(**given)["y"], expected)
        first, second = model.devices.values()
        assert first is second
        before = replace(first.counters)
        model(**given)
        counted = first.counters
        assert counted.copies - before.copies == 2
        assert counted.copies_within - before.copies_within == 2


def test_a_device_that_nobody_names() -> None:
    g = graph_of(diamond, "gpu", "", "", "")
    with pytest.raises(ad.DeviceError, match=r"parts on 'gpu'.*\n.*devices=\{'gpu': 'cpu:0'\}"):
        ad.compile(g)
    with pytest.raises(ad.DeviceError, match="there is no device 'opencll:0'"):
        ad.compile(g, devices={"gpu": "opencll:0"})
    for wrong in ("cpu", {"gpu": 3}, {3: "cpu"}, {"": "cpu"}):
        with pytest.raises(ad.OptionError):
            ad.compile(g, devices=wrong)  # type: ignore[arg-type]


def test_what_is_not_for_devices_says_so(tmp_path: object) -> None:
    model = ad.compile(graph_of(diamond, "a", "a", "a", ""), devices={"a": "cpu"})
    with pytest.raises(ad.OptionError, match=r"it has parts on 'a'\n.*for the host only"):
        model.export(f"{tmp_path}/c")
    assert "copy 'x@a' = 'x', host to 'a'" in model.explain(details=True)
    assert model.check(samples=5).ok


@pytest.mark.parametrize("make, names", [
    (diamond, ("a", "b", "", "a")), (iterated, ("a",)), (chosen, ("a", "b")), (looked_up, ("a",)),
    (found, ("a",)), (grown, ("a",)), (in_order, ("a",)),
])  # fmt: skip
def test_a_device_that_checks_every_access(
    make: Callable[..., None], names: tuple[str, ...]
) -> None:
    """Kernels for a processor with short vectors, run as loop IR."""
    devices: dict[str, str | Device] = {"a": EvaluatedDevice(), "b": "cpu"}
    model = ad.compile(graph_of(make, *names), devices=devices)
    host = ad.compile(graph_of(make, *("" for _ in names)))
    for n in (0, 1, 5):
        given = {"x": numpy.minimum(numpy.abs(arrays(n)["x"]), 3)}
        came, expected = model(**given), host(**given)
        for name, value in expected.items():
            numpy.testing.assert_allclose(came[name], value, rtol=1e-5, atol=1e-5, strict=True)


class Watched(QueuedDevice):
    """Writes down what it is asked for, beside others."""

    def __init__(self, name: str, log: list[str]) -> None:
        super().__init__(name)
        self.log = log

    def launch(self, launch: Launch) -> None:
        self.log.append(f"{self.name} launch")
        super().launch(launch)

    def copy_out(self, target: int, source: int, bytes: int) -> None:
        self.log.append(f"{self.name} out")
        super().copy_out(target, source, bytes)

    def wait(self, event: int) -> None:
        self.log.append(f"{self.name} wait")
        super().wait(event)


def apart(g: ad.Builder, x: ad.Builder, first: str, second: str) -> None:
    parts = []
    for device in (first, second):
        with g.on(device):
            parts.append(g.softmax(g.matmul(x, W)))
    g.output("y", parts[0] - parts[1] + g.tanh(x))


def test_independent_parts_are_all_begun_before_anything_is_waited_for() -> None:
    log: list[str] = []
    devices = {name: Watched(name, log) for name in "ab"}
    model = ad.compile(graph_of(apart, "a", "b"), devices=devices)
    model(**arrays(5))
    first = next(place for place, line in enumerate(log) if line.endswith("wait"))
    assert {*log[:first]} == {"a launch", "b launch", "a out", "b out"}
    assert sorted(log[first:]) == ["a wait", "b wait"]
