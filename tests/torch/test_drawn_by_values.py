"""Promise: random numbers by the values of a tensor are those of eager torch in torch.compile."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import anydim.torch.backend  # noqa: E402, F401  registers the backend
from tests.torch.compiling import anew  # noqa: E402, F401

DRAWS = {
    "bernoulli": torch.bernoulli,
    "bernoulli_": lambda p: torch.empty_like(p).bernoulli_(p),
    "normal of means": lambda p: torch.normal(p, 2.0),
    "normal of widths": lambda p: torch.normal(1.0, p),
    "normal of both": lambda p: torch.normal(p, p[:1]),
    "one class": lambda p: torch.multinomial(p, 1),
    "one class with replacement": lambda p: torch.multinomial(p, 1, replacement=True),
    "classes": lambda p: torch.multinomial(p, 3),
    "classes with replacement": lambda p: torch.multinomial(p, 9, replacement=True),
    "classes of one row": lambda p: torch.multinomial(p[0], 3),
    "exponential": lambda p: torch.empty_like(p).exponential_(2.0),
    "Gumbel": lambda p: F.gumbel_softmax(p.log()),
    "two": lambda p: torch.multinomial(p, 1) + torch.bernoulli(p) + torch.rand_like(p),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", DRAWS)
def test_a_seed_gives_the_numbers_of_eager_torch(name: str, dtype: Any) -> None:
    draw = DRAWS[name]
    call = torch.compile(draw, backend="anydim", dynamic=True)
    for rows, columns in ((3, 5), (8, 40), (2, 4), (1, 7)):
        p = torch.rand(rows, columns, dtype=dtype) * 0.98 + 0.01
        torch.manual_seed(rows)
        expected = [draw(p), draw(p)], torch.get_rng_state()
        torch.manual_seed(rows)
        found = [call(p), call(p)], torch.get_rng_state()
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
        assert found[0][0].stride() == expected[0][0].stride()


def test_a_generator_is_used() -> None:
    generator, p = torch.Generator(), torch.rand(4, 6)

    def draw(p: Any) -> Any:
        return torch.multinomial(p, 2, generator=generator)

    call = torch.compile(draw, backend="anydim", dynamic=True)
    generator.manual_seed(5)
    expected = [draw(p), draw(p)]
    generator.manual_seed(5)
    torch.testing.assert_close([call(p), call(p)], expected)


def test_a_distribution_has_a_class() -> None:
    def draw(p: Any) -> Any:
        return torch.multinomial(p, 2, replacement=True)

    call = torch.compile(draw, backend="anydim", dynamic=True)
    assert call(torch.ones(5)).shape == (2,)
    with pytest.raises(RuntimeError):
        call(torch.ones(0))
