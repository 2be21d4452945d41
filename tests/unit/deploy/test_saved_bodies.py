"""Promise: bodies for certain sizes travel with a saved model, and serve it without a compiler."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy
import pytest

import anydim as ad
from anydim.base.errors import ArtefactError
from anydim.runtime.program.variants import StoredSite, StoredVariant
from tests.unit.compiler.variants.models import Here, depthwise, here, image
from tests.unit.deploy.hostile import DAMAGE, lie, outcome
from tests.unit.deploy.kinds import KINDS

__all__ = ["here"]


@pytest.fixture
def saved(here: Here, tmp_path: Path) -> tuple[ad.Model, Path]:
    """A model with bodies for a size and for a span, and its file."""
    here.ratio = 0.5
    model, path = depthwise("adaptive"), tmp_path / "m.anydim"
    model.prepare(b=1, h=9, q=10)
    model.prepare(b=1, h=4, q=10)
    model.save(path, ["native", "x86-64-v3"])
    return model, path


def test_bodies_serve_a_loaded_model(saved: tuple[ad.Model, Path]) -> None:
    model, path = saved
    loaded = ad.load(path)
    kinds = [(each.kernel, each.sizes, each.schedule, each.ratio) for each in loaded.variants()]
    made = [(each.kernel, each.sizes, each.schedule, each.ratio) for each in model.variants()]
    assert kinds == made and len(made) == 4
    for height in (9, 4, 5, 1, 0, 9):
        given = image(height)
        numpy.testing.assert_array_equal(loaded(x=given)["y"], model(x=given)["y"])
    assert sum(each.hits for each in loaded.variants()) == 6
    assert "0.50 of the generic time, 2 hits, from a file" in loaded.explain(details=True)
    assert ad.load(path, level="x86-64-v3").variants() == ()
    found = ad.inspect(path)
    assert "native has" in str(found) and len(found.taken.bodies) == 4  # type: ignore[union-attr]


def test_spans_travel_too(here: Here, tmp_path: Path) -> None:
    here.ratio = 0.5
    model, path = depthwise("buckets(h=[8, 16], b=1)"), tmp_path / "m.anydim"
    model.save(path)
    loaded = ad.load(path)
    assert len(loaded.variants()) == len(model.variants()) > 0
    assert any(
        isinstance(size, tuple) for each in loaded.variants() for size in each.sizes.values()
    )
    for height in (0, 1, 7, 8, 9, 16, 17, 40):
        given = image(height)
        numpy.testing.assert_array_equal(loaded(x=given)["y"], model(x=given)["y"])
    assert sum(each.hits for each in loaded.variants()) > 0


def test_a_generic_model_has_none(tmp_path: Path) -> None:
    depthwise("generic").save(tmp_path / "m.anydim")
    assert ad.load(tmp_path / "m.anydim").variants() == ()


BODY = StoredVariant((3, 1), (3, 1), "f", 1, 1, 0, "rows()")
SPAN = StoredVariant((3, 1), (4, 1), "f", -1, 1, 0, "rows()")


@pytest.mark.parametrize(
    "place",
    [
        StoredSite("other", (), (0,), 2, ("n", "parallel"), (BODY,)),
        StoredSite("k", (), (0, 1), 2, ("n", "parallel"), (BODY,)),
        StoredSite("k", (), (-1,), 2, ("n", "parallel"), (BODY,)),
        StoredSite("k", (), (0,), 2, ("n",), (BODY,)),
        StoredSite("k", (), (0,), -2, ("n", "parallel"), (BODY,)),
        StoredSite(
            "k", (), (0,), 2, ("n", "m"), (StoredVariant((3, 1), (2, 1), "f", 1, 1, 0, ""),)
        ),
        StoredSite(
            "k", (), (0,), 2, ("n", "m"), (StoredVariant((3, 1), (3, 1), "f", -1, 1, 0, ""),)
        ),
        StoredSite(
            "k", (), (0,), 2, ("n", "m"), (StoredVariant((3, 1), (3, 1), "f", 1, 0, 0, ""),)
        ),
    ],
)
def test_bodies_that_no_launch_can_have_are_refused(place: StoredSite) -> None:
    with pytest.raises(ArtefactError):
        place.check(["k", "other"])


def test_bodies_that_launches_can_have_are_taken() -> None:
    StoredSite("k", (), (0,), 2, ("n", "parallel"), (BODY, SPAN)).check(["k", "other"])


def test_damage_and_lies(here: Here, tmp_path: Path) -> None:
    kind, path = KINDS["encoder"], tmp_path / "m.anydim"
    model, cases = ad.compile(kind.build(), strategy="exact"), []
    for inputs in kind.inputs():
        cases.append((inputs, {name: array.tobytes() for name, array in model(**inputs).items()}))
    model.save(path)
    assert len(ad.load(path).variants()) >= len(kind.sizes)
    data, found = path.read_bytes(), Counter[str]()
    for number in range(120):
        chance, bad = random.Random(number), tmp_path / f"bad{number}"
        change = chance.choice((*DAMAGE, None))
        if change is None:
            lie(chance, path, bad)
        else:
            bad.write_bytes(change(chance, bytearray(data), [data]))
        with numpy.errstate(all="ignore"):
            found[outcome(bad, cases)] += 1
    assert set(found) == {"refused", "equal"}
