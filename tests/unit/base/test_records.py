"""Promise: records behave as dataclasses of the standard library, whatever is called first."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from dataclasses import field
from functools import partial
from typing import Any

import pytest

from anydim.base.records import dataclass


def written(make: Any) -> tuple[type, type, type]:
    @make(frozen=True)
    class Point:
        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list, compare=False)
        note: str = field(default="", repr=False, kw_only=True)

    @make
    class Counter:
        name: str
        count: int = 0
        seen: dict[str, int] = field(default_factory=dict, init=False)

        def __post_init__(self) -> None:
            self.count += 1

    @make(frozen=True, eq=False)
    class Named(Point):
        name: str = "n"

    return Point, Counter, Named


OURS, STANDARD = written(dataclass), written(dataclasses.dataclass)
CALLS = [((), {}), ((1,), {}), ((1, 3), {"note": "a"}), ((1, 2, 3, 4, 5), {}), ((), {"no": 1})]


def told(action: Any) -> str:
    try:
        return str(action()).replace(".<locals>", "")
    except (TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_they_are_made_and_told_as_dataclasses(number: int, call: tuple[Any, Any]) -> None:
    given, named = call
    ours, theirs = (partial(kinds[number], *given, **named) for kinds in (OURS, STANDARD))
    assert told(ours) == told(theirs)


def test_they_compare_hash_change_and_travel() -> None:
    for point, counter, named in (OURS, STANDARD):
        assert point(1) == point(1, 2, ["other"]) != point(2)
        assert point(1) != named(1) == named(1, name="inherited")
        assert hash(point(1)) == hash(point(1, 2, ["other"]))
        assert told(partial(hash, counter("a"))).startswith("TypeError")
        assert dataclasses.replace(point(1), y=5) == point(1, 5)
        assert dataclasses.asdict(counter("a")) == {"name": "a", "count": 1, "seen": {}}
        for change in (lambda p: setattr(p, "x", 2), lambda p: delattr(p, "x")):
            with pytest.raises(dataclasses.FrozenInstanceError):
                change(point(1))
    with pytest.raises(dataclasses.FrozenInstanceError, match="'lanes'"):
        Sent(1).lanes = 2
    assert pickle.loads(pickle.dumps(Sent(3))) == Sent(3)


@dataclass(frozen=True)
class Sent:
    lanes: int


@pytest.mark.parametrize("make", [dataclass, dataclasses.dataclass])
def test_fields_compare_as_the_items_of_tuples_do(make: Any) -> None:
    point, *_ = written(make)
    nan = float("nan")
    assert point(nan) == point(nan), "the same object is equal, as in a tuple"
    assert point(float("nan")) != point(float("nan"))
    assert (point(1) == point(1, 2), point(1) == point(1, 3)) == (True, False)
    assert point(1, tags=["a"]) == point(1, tags=["b"]), "not compared"
    assert point(1, note="a") != point(1, note="b")
    assert point(1).__eq__((1, 2, "")) is NotImplemented


@pytest.mark.parametrize("name", ["state", "put", "names", "one", "two", "missing", "other"])
def test_a_field_may_have_any_name(name: str) -> None:
    made = dataclass(frozen=True)(type("Made", (), {"__annotations__": {name: "int", "x": "int"}}))
    for number in range(20):  # the first ones are initialised without generated code
        found = made(number, -number)
        assert (getattr(found, name), found.x) == (number, -number)
        assert found == made(number, -number) != made(number, 1)


def test_help_knows_how_they_are_called() -> None:
    for ours, standard in zip(written(dataclass), written(dataclasses.dataclass)):
        shown, expected = inspect.signature(ours), inspect.signature(standard)
        assert [*shown.parameters] == [*expected.parameters]
        for name, parameter in expected.parameters.items():
            assert shown.parameters[name].kind == parameter.kind
            assert (shown.parameters[name].default is inspect.Parameter.empty) == (
                parameter.default is inspect.Parameter.empty
            )
