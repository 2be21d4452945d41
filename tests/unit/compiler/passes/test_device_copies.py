"""Promise: a program copies as few values between devices as any could."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import combinations, count

import pytest

from anydim.base.dtypes import float32
from anydim.compiler.passes.device_copies import CopiesBetween
from anydim.runtime.program.region import (
    BranchStep,
    CopyStep,
    LoopStep,
    Region,
    SegmentStep,
    copies,
)
from anydim.runtime.program.segment import Segment
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Box, as_size

DEVICES = ("", "a", "b")


def specs(names: tuple[str, ...]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, float32, ()) for name in names)


def segment(device: str, reads: tuple[str, ...], makes: tuple[str, ...]) -> SegmentStep:
    signature = Signature("part", Box(), specs(reads), specs(makes))
    return SegmentStep(Segment(signature, (), (), (), as_size(0), device=device))


def region(
    inputs: tuple[str, ...], outputs: tuple[str, ...], *steps: SegmentStep | BranchStep | LoopStep,
    constants: Mapping[str, str] | None = None,
) -> Region:  # fmt: skip
    names = (*inputs, *(constants or {}), *(name for step in steps for name in step.makes))
    signature = Signature("graph", Box(), specs(inputs), specs(outputs))
    values = {spec.name: spec for spec in specs(names)}
    return Region(signature, frozenset(), values, constants or {}, steps)


def random_region(chance: random.Random) -> Region:
    values, steps = ["x0", "x1"], []
    for number in range(chance.randrange(1, 4)):
        reads = tuple(chance.sample(values, chance.randrange(1, min(3, len(values)) + 1)))
        makes = tuple(f"v{number}_{each}" for each in range(chance.randrange(1, 3)))
        steps.append(segment(chance.choice(DEVICES), reads, makes))
        values += makes
    outputs = tuple(chance.sample(values[2:], chance.randrange(1, len(values) - 1)))
    return region(("x0", "x1"), outputs, *steps)


def runs(made: Region, allowed: set[tuple[str, str]]) -> bool:
    """Whether all steps find what they read, if these values are copied to these devices."""
    there = {(spec.name, "") for spec in made.signature.inputs}
    for step in made.steps:
        assert isinstance(step, SegmentStep)
        known = {name for name, _ in there}
        there |= {(name, device) for name, device in allowed if name in known}
        if not {(name, step.segment.device) for name in step.reads} <= there:
            return False
        there |= {(name, step.segment.device) for name in step.makes}
    there |= allowed & {(name, d) for name, _ in there for d in DEVICES}
    return {(spec.name, "") for spec in made.signature.outputs} <= there


def fewest(made: Region) -> int:
    """The least number of copies, by trying all sets of them."""
    home = {name: step.segment.device for step in made.segments for name in step.makes}
    places = [(name, device) for name in made.values for device in DEVICES]
    options = [(name, device) for name, device in places if home.get(name, "") != device]
    for number in count():
        if any(runs(made, {*chosen}) for chosen in combinations(options, number)):
            return number
    raise AssertionError


def crossings(made: Region) -> Iterator[str]:
    """What is wrong with a region: a step that reads what is on another device."""
    for step in made.steps:
        if isinstance(step, SegmentStep):
            ends = [(name, step.segment.device) for name in (*step.reads, *step.makes)]
        else:
            assert isinstance(step, CopyStep)
            ends = [(step.value, step.origin), (step.made, step.target)]
        yield from (name for name, device in ends if made.devices.get(name, "") != device)


@pytest.mark.parametrize("seed", range(100))
def test_straight_programs_copy_as_little_as_can_be(seed: int) -> None:
    before = random_region(random.Random(seed))
    (after,) = CopiesBetween().run([before])
    assert not [*crossings(after)]
    assert [spec.name for spec in after.signature.outputs] == [
        spec.name for spec in before.signature.outputs
    ]
    assert len([*copies([after])]) == fewest(before)


@pytest.mark.sampled(most=15)
@pytest.mark.parametrize("seed", range(60))
def test_branches_copy_as_little_as_can_be(seed: int) -> None:
    """In both arms together: the result is in one place, whichever arm made it."""
    chance = random.Random(seed)

    def some(*values: str) -> tuple[str, ...]:
        return tuple(chance.sample(values, chance.randrange(1, len(values) + 1)))

    def somewhere(reads: tuple[str, ...], made: str) -> SegmentStep:
        return segment(chance.choice(DEVICES), reads, (made,))

    first, last = somewhere(("x",), "w"), somewhere(("r", *some("x", "w")), "y")
    arms = [somewhere(some("x", "w"), "v") for _ in range(2)]
    outputs = some("y", "r") if chance.random() < 0.5 else ("y",)
    branch = BranchStep("c", 0, 1, ("x", "w"), ("r",))
    held = [region(("x", "w"), ("v",), arm) for arm in arms]
    made = CopiesBetween().run([*held, region(("x", "c"), outputs, first, branch, last)])
    (taken,) = (step for step in made[-1].steps if isinstance(step, BranchStep))
    found = sum(
        len([*copies([made[-1], made[number]])]) for number in (taken.then, taken.otherwise)
    )
    best = min(
        sum(
            fewest(region(("x",), outputs, first, arm, segment(place, ("v",), ("r",)), last))
            for arm in arms
        )
        for place in DEVICES
    )
    assert found == best


@pytest.mark.sampled(most=10)
@pytest.mark.parametrize("seed", range(25))
def test_loops_copy_as_little_as_can_be(seed: int) -> None:
    """As little as their iterations one after the other, where the state lives in one place."""
    chance = random.Random(seed)
    one, two, last = (chance.choice(DEVICES) for _ in range(3))
    inner = ("s", "g") if chance.random() < 0.5 else ("s",)
    outer = ("u", "g") if chance.random() < 0.5 else ("u",)
    body = region(("s", "g"), ("v",), segment(one, inner, ("u",)), segment(two, outer, ("v",)))
    loop = LoopStep(0, "i", as_size(2), None, ("x",), ("g",), (), ("r",))
    end = segment(last, ("r", "g"), ("y",))
    made = CopiesBetween().run([body, region(("x", "g"), ("y",), loop, end)])
    (left,) = (step for step in made[-1].steps if isinstance(step, LoopStep))
    found = len([*copies([made[-1]])]) + 2 * len([*copies([made[left.body]])])

    def iteration(number: int) -> Iterator[SegmentStep]:
        now = {"s": f"s{number}", "u": f"u{number}", "g": "g"}
        yield segment(one, tuple(now[name] for name in inner), (now["u"],))
        yield segment(two, tuple(now[name] for name in outer), (f"s{number + 1}",))

    steps = (segment(two, ("x",), ("s0",)), *iteration(0), *iteration(1))
    end = segment(last, ("s2", "g"), ("y",))
    assert found == fewest(region(("x", "g"), ("y",), *steps, end))


def test_a_value_goes_to_each_device_once_and_by_the_host_where_it_is_read_there() -> None:
    before = region(
        ("x",), ("y",), segment("a", ("x",), ("v",)), segment("b", ("v",), ("w",)),
        segment("", ("v", "w"), ("u",)), segment("b", ("v", "u"), ("y",)),
    )  # fmt: skip
    (after,) = CopiesBetween().run([before])
    found = [(step.value, step.origin, step.target) for step in copies([after])]
    assert found == [
        ("x", "", "a"), ("v@a", "a", ""), ("v", "", "b"), ("w@b", "b", ""), ("u", "", "b"),
        ("y@b", "b", ""),
    ]  # fmt: skip


def test_names_that_are_taken_stay_what_they_were() -> None:
    before = region(("x", "x@a"), ("y",), segment("a", ("x", "x@a"), ("y",)))
    (after,) = CopiesBetween().run([before])
    assert [step.made for step in copies([after])] == ["x@a'", "x@a@a", "y"]


def test_constants_are_no_copies() -> None:
    before = region(("x",), ("y", "c"), segment("a", ("x", "c"), ("y",)), constants={"c": "held"})
    (after,) = CopiesBetween().run([before])
    assert after.constants == {"c@a": "held", "c": "held"} and after.devices["c@a"] == "a"
    assert len([*copies([after])]) == 2
