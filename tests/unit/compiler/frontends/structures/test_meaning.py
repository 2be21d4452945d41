"""Promise: a recursion over structures is the recursion, for any structures, alone and together."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest

import anydim as ad
from tests.unit.compiler.frontends.structures.definitions import MEANINGS, TEXT, vector

SIZES = ((3, 4, 2), (1, 1, 1), (0, 2, 0), (2, 0, 1), (17, 9, 3))  # of D, H, C
Model = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Model]:
    """Compiles a definition, once for all tests."""
    file = tmp_path_factory.mktemp("structures") / "definitions.tc"
    file.write_text(TEXT, "utf-8")

    @cache
    def model(name: str, threads: int = 1) -> Model:
        return ad.compile(f"{file}:{name}", threads=threads)

    return model


def weights(name: str, sizes: tuple[int, ...], seed: int) -> dict[str, np.ndarray]:
    known = dict(zip("DHC", sizes))
    random = Random(seed)
    found = {}
    for key, letters in (MEANINGS[name].tensors or {}).items():
        shape = [known.get(each) if each in known else int(each) for each in letters]
        found[key] = vector(random, *shape)
    return found


def forests(name: str, sizes: tuple[int, ...], count: int, seed: int) -> dict[str, list[Any]]:
    random = Random(seed)
    drawn = MEANINGS[name].structures
    rows = [{key: draw(random, sizes[0]) for key, draw in drawn.items()} for _ in range(count)]
    return {key: [each[key] for each in rows] for key in drawn}


def expected(name: str, given: dict[str, Any], held: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What the recursion in Python gives for a structure."""
    wide = {key: each.astype(np.float64) for key, each in held.items()}
    wide_given = {key: widened(each) for key, each in given.items()}
    made = MEANINGS[name].recursion(*wide_given.values(), **wide)
    return [np.asarray(each) for each in (made if isinstance(made, tuple) else (made,))]


def widened(given: Any) -> Any:
    """A structure with numbers in float64."""
    if isinstance(given, (tuple, list)):
        return type(given)(map(widened, given))
    return given.astype(np.float64) if isinstance(given, np.ndarray) else given


def agree(name: str, found: dict[str, Any], right: list[np.ndarray]) -> None:
    assert len(found) == len(right)
    for got, wanted in zip(found.values(), right):
        assert np.shape(got) == wanted.shape
        largest = max(1.0, float(np.abs(wanted).max(initial=0)))
        off = np.abs(np.asarray(got, np.float64) - wanted).max(initial=0)
        assert off <= MEANINGS[name].within * largest, (name, got, wanted)


@pytest.mark.sampled(most=7)
@pytest.mark.parametrize("count", [6, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MEANINGS)
def test_it_is_the_recursion_in_python(
    name: str, count: int, models: Callable[..., Model]
) -> None:  # fmt: skip
    model = models(name)
    for seed, sizes in enumerate(SIZES):
        held = weights(name, sizes, seed + count)
        given = forests(name, sizes, count, seed + count)
        found = model(**given, **held)
        for row in range(count):
            own = {key: each[row] for key, each in given.items()}
            right = expected(name, own, held)
            agree(name, {key: each[row] for key, each in found.items()}, right)
            agree(name, model(**own, **held), right)  # a single structure


FEW = ((1, (3, 4, 2)), (5, (8, 16, 1)), (40, (5, 33, 2)))
MANY = tuple((1 + number % 9, (number % 7, 1 + number % 33, 2)) for number in range(60))


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize("points", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MEANINGS)
def test_a_tree_has_the_same_bits_in_any_batch(
    name: str, points: Any, models: Callable[..., Model]
) -> None:  # fmt: skip
    models = [models(name), models(name, 2)]
    for seed, (count, sizes) in enumerate(points):
        held, given = weights(name, sizes, seed), forests(name, sizes, count, seed + 10)
        whole = [model(**given, **held) for model in models]
        for key, each in whole[0].items():
            assert each.tobytes() == whole[1][key].tobytes()
        for row in (0, count // 2, count - 1):
            own = {key: [each[row]] for key, each in given.items()}
            alone = models[0](**own, **held)
            for key, each in whole[0].items():
                assert each[row : row + 1].tobytes() == alone[key].tobytes(), (name, row)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("halves", "float16"), ("doubles", "float64"), ("length", "int64"), ("roses", "float32")],
)
def test_cases_have_one_element_type(name: str, dtype: str, models: Callable[..., Any]) -> None:
    """Literals of one case take that of tensors in another."""
    assert [str(each.dtype) for each in models(name).outputs] == [dtype]


@pytest.mark.sampled(most=14)
@pytest.mark.parametrize("name", MEANINGS)
def test_an_empty_forest(name: str, models: Callable[..., Model]) -> None:
    held = weights(name, (3, 4, 2), 0)
    given: dict[str, list[Any]] = {key: [] for key in MEANINGS[name].structures}
    assert all(len(each) == 0 for each in models(name)(**given, **held).values())


def test_shared_nodes_are_computed_once(models: Callable[..., Model]) -> None:
    """2^60 paths lead from the root to the leaf."""
    t: Any = ("leaf", np.ones(1, np.float32))
    for _ in range(60):
        t = ("node", t, t)
    assert models("sum_tree")(t=t)["s"] == 2.0**60
    assert models("nodes")(t=t)["n"] == 2**61 - 1


def test_chains_longer_than_the_stack(models: Callable[..., Model]) -> None:
    items: Any = ("nil",)
    for item in range(20_000):
        items = ("cons", float(item % 2), items)
    assert models("total")(l=items)["s"] == 10_000
    assert models("length")(l=items)["n"] == 20_000
    assert models("even")(l=items)["s"] == 1


def test_any_number_of_children(models: Callable[..., Model]) -> None:
    leaves = [("bush", np.ones(1, np.float32), []) for _ in range(20_000)]
    found = models("widest")(t=("bush", np.ones(1, np.float32), leaves))
    assert (found["n"], found["m"]) == (20_000, 20_001)


def test_a_cycle_is_an_error(models: Callable[..., Model]) -> None:
    fields = {"leaf": {"x": np.ones((1, 2), np.float32)}, "node": {"left": [0, 1], "right": [2, 0]}}
    with pytest.raises(ad.AnydimError, match="cycle"):
        models("sum_tree")(t=ad.Structure(fields, [1]))


@pytest.mark.parametrize("child", [-1, 3, 2**40])
def test_a_child_that_does_not_exist_is_an_error(child: int, models: Callable[..., Model]) -> None:
    fields = {"leaf": {"x": np.ones((1, 2), np.float32)}, "node": {"left": [0], "right": [child]}}
    with pytest.raises(ad.AnydimError):
        models("sum_tree")(t=ad.Structure(fields, [1]))
