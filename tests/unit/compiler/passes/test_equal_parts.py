"""Promise: equal layers are compiled once, and have the results that each would have for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.compiler import pipeline
from anydim.compiler.native.host import host_of
from anydim.compiler.passes.fuse import Fuse
from anydim.compiler.passes.graph_forms import form_of
from anydim.compiler.passes.schedule import Schedule
from anydim.runtime.program.program import Program

WIDTH = 24
Weights = Callable[[int, np.random.Generator], np.ndarray]


def random_weights(layer: int, random: np.random.Generator) -> np.ndarray:
    return random.standard_normal((WIDTH, WIDTH)).astype(np.float32)


def layers(count: int, weights: Weights = random_weights, **scales: float) -> ad.Builder:
    """Layers of a product, a scale, a norm and a sort, which ends a part."""
    random = np.random.default_rng(0)
    g = ad.Builder("layers")
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), WIDTH))
    for number in range(count):
        gain = g.constant(random.standard_normal(WIDTH).astype(np.float32))
        h = g.matmul(x, g.constant(weights(number, random))) * scales.get(f"scale{number}", 0.5)
        x = x + g.sort(h, axis=0)[0] * gain
        x = x / (g.reduce_max(g.abs(x), axes=(1,), keepdims=True) + 1)
    g.output("y", x)
    return g


def each_for_itself(parts: Any, run: Any) -> Any:
    return run(parts)


@pytest.fixture
def separately(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    def switch() -> None:
        monkeypatch.setattr(pipeline, "compile_parts", each_for_itself)

    return switch


def program(model: Any) -> Program:
    made: Program = model.program
    return made


def host_functions(model: Any) -> int:
    return sum(code.name.startswith("anydim_segment") for code in host_of(program(model)).code)


def results(model: Any) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [model(x=random.standard_normal((n, WIDTH)).astype(np.float32))["y"] for n in (0, 1, 7)]


def equal_bits(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    return [each.tobytes() for each in left] == [each.tobytes() for each in right]


def zero_in_one(layer: int, random: np.random.Generator) -> np.ndarray:
    made = random_weights(layer, random)
    return np.zeros_like(made) if layer == 2 else made


def same_object(held: list[np.ndarray]) -> Weights:
    def made(layer: int, random: np.random.Generator) -> np.ndarray:
        held.append(random_weights(layer, random))
        return held[0]

    return made


CASES: dict[str, Callable[[], ad.Builder]] = {
    "other weights": lambda: layers(5),
    "one layer of zeros": lambda: layers(5, zero_in_one),
    "another scale": lambda: layers(5, scale3=2.0),
    "shared weights": lambda: layers(5, same_object([])),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("precision", [None, "bfloat16", "int8"])
def test_results_are_those_of_layers_compiled_one_by_one(
    name: str, precision: str | None, separately: Callable[[], None]
) -> None:
    shared = ad.compile(CASES[name](), precision=precision)
    separately()
    alone = ad.compile(CASES[name](), precision=precision)
    assert equal_bits(results(shared), results(alone))
    kernels = [site.kernel for site in program(shared).sites]
    assert kernels == [site.kernel for site in program(alone).sites]
    assert program(shared).text() == program(alone).text()


def test_work_does_not_grow_with_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: dict[str, int] = {}

    def counted(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            counts[name] = counts.get(name, 0) + 1
            return method(*args)

        return run

    monkeypatch.setattr(Fuse, "run", counted("fused", Fuse.run))
    monkeypatch.setattr(Schedule, "run", counted("scheduled", Schedule.run))
    found = []
    for count in (4, 12):
        counts.clear()
        found.append((host_functions(ad.compile(layers(count))), dict(counts)))
    assert found[0] == found[1]
    assert found[0][0] < 12


def test_a_layer_with_another_literal_is_compiled_for_itself() -> None:
    forms = {form_of(layers(2, scale1=scale).graph()).key for scale in (0.5, 0.25)}
    assert len(forms) == 2
