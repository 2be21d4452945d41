"""Promise: a plan is a document that says of every value its shape, bytes, most bytes and place."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.api.model import Model

SIZE = {"formula": str, "bytes": int, "max_bytes": (int, type(None))}
LIFE = {"first": (int, type(None)), "last": (int, type(None))}
PLACE = {"storage": int, "offset": str, "offset_bytes": int}
TYPE = {"dtype": str, "shape": list}
NAMED = {"name": str, "kind": str}
SCHEMA: dict[str, Any] = {
    "format": int,
    "model": str,
    "dims": [{"name": str, "low": int, "high": (int, type(None)), "size": int}],
    "constraints": list,
    "memory": {
        **dict.fromkeys(("peak", "values", "arena", "kept", "inputs", "outputs"), SIZE),
        "constants": int,
    },
    "storages": [{"id": int, "kind": str, **SIZE}],
    "values": [{**NAMED, **TYPE, **SIZE, **PLACE, **LIFE}],
    "launches": [{"kernel": str, "source": str, "body": str, "kept": bool}],
}
BETWEEN = {**NAMED, **SIZE, **PLACE}  # steps of a program that data steers


def fits(value: Any, schema: Any, where: str = "plan") -> None:
    """Raise AssertionError unless a document has just these keys, of these types."""
    if isinstance(schema, list):
        assert isinstance(value, list), where
        for number, item in enumerate(value):
            between = isinstance(item, dict) and item.get("kind") == "between"
            fits(item, BETWEEN if between else schema[0], f"{where}[{number}]")
    elif isinstance(schema, dict):
        assert isinstance(value, dict) and value.keys() == schema.keys(), (where, value)
        for key, inner in schema.items():
            fits(value[key], inner, f"{where}.{key}")
    else:
        assert isinstance(value, schema), (where, value)


@pytest.fixture(scope="module")
def published() -> Model:
    """The example of the method's authors: two joins, joined."""
    g = ad.Builder("published")
    n1, n2, n3 = g.dim("n1", 0, 128), g.dim("n2", 0, 32), g.dim("n3", 0, 12)
    shapes = {"x": n1, "y": n2, "a": n3, "b": 27}
    x, y, a, b = (g.input(name, ad.float32, (n, 4, 2, 3)) for name, n in shapes.items())
    z, c = g.concat(x, y, axis=0), g.concat(a, b, axis=0)
    g.output("out", g.concat(z, c, axis=0))
    return ad.compile(g)


def test_the_published_example(published: Model) -> None:
    made = published.plan(n1=5, n2=2, n3=1).document()
    fits(made, SCHEMA)
    values = {value["name"]: value for value in made["values"]}
    most = {name: values[name]["max_bytes"] for name in ("x", "y", "a", "b", "out")}
    assert most == {"x": 12288, "y": 3072, "a": 1152, "b": 2592, "out": 19104}
    assert [dim["high"] for dim in made["dims"]] == [128, 32, 12]
    assert values["out"]["shape"] == ["n1 + n2 + n3 + 27", "4", "2", "3"]
    assert values["x"]["bytes"] == 5 * 96
    assert len({values[name]["storage"] for name in most}) == 5


def test_values_that_live_together_do_not_overlap_and_stay_in_the_arena() -> None:
    g = ad.Builder("chain")
    n = g.dim("n", 0, 4096)
    x = g.input("x", ad.float32, (n, 16))
    total = g.reduce_sum(x, axes=(1,), keepdims=True)
    mean = g.reduce_mean(g.exp(x - total), axes=(0,), keepdims=True)
    g.output("y", g.softmax(x - mean) + total)
    made = ad.compile(g).plan(n=1000).document()
    fits(made, SCHEMA)
    storages = {storage["id"]: storage for storage in made["storages"]}
    held = [value for value in made["values"] if value["kind"] == "value"]
    assert held and all(storages[v["storage"]]["kind"] == "arena" for v in held)
    for number, one in enumerate(held):
        assert one["offset_bytes"] + one["bytes"] <= storages[one["storage"]]["bytes"]
        for other in held[:number]:
            if one["first"] <= other["last"] and other["first"] <= one["last"]:
                low, high = sorted((one, other), key=lambda v: v["offset_bytes"])
                assert low["offset_bytes"] + low["bytes"] <= high["offset_bytes"]


def test_a_program_that_data_steers_shows_what_is_allocated_when_it_is_known() -> None:
    g = ad.Builder("found")
    x = g.input("x", ad.float32, (g.dim("n", 0, 100),))
    g.output("y", g.exp(g.cast(g.nonzero(x), to="float32")))
    planned = ad.compile(g).plan(n=7)
    assert "between steps, at most: taken as known" in str(planned)
    assert len(planned.decided) == 1 and f"data decides '{planned.decided[0]}'" in str(planned)
    made = planned.document()
    fits(made, SCHEMA)
    assert {value["kind"] for value in made["values"]} >= {"input", "output", "between"}
    assert made["memory"]["peak"]["max_bytes"] is not None


def test_a_saved_model_has_the_same_document(published: Model, tmp_path: Any) -> None:
    published.save(tmp_path / "published.anydim")
    loaded = ad.load(tmp_path / "published.anydim")
    sizes = {"n1": 100, "n2": 0, "n3": 12}
    assert loaded.plan(**sizes).document() == published.plan(**sizes).document()
    assert json.loads(loaded.plan(**sizes).json()) == published.plan(**sizes).document()
    x = {n: np.ones((s, 4, 2, 3), np.float32) for n, s in zip("xyab", (100, 0, 12, 27))}
    assert loaded(**x)["out"].shape == (139, 4, 2, 3)
