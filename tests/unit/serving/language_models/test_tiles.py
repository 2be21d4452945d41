"""Promise: with AMX, prompts and steps of language models use tiles, in bits that no division of
tokens changes; int8 has the bits of vectors."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

import anydim as ad
from tests.tile_emulator import tiles as tiles
from tests.unit.serving.language_models.test_language_model import logits_of
from tests.unit.serving.language_models.tiny_models import write_folder


@pytest.mark.sampled(only=["int8-1", "bfloat16-2"])  # parts: tests/unit/test_bfloat16_parts.py
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("precision", ["int8", "bfloat16", "bfloat16x3", "bfloat16x2"])
def test_prompts_and_steps(
    request: pytest.FixtureRequest, tmp_path: Path, precision: str, threads: int
) -> None:
    path = write_folder(tmp_path / "tiny")
    options = {"threads": threads, "precision": precision}
    tokens = numpy.random.default_rng(0).integers(0, 30, 37)
    with ad.language_model(path, **options) as model:
        vectors = logits_of(model, tokens.tolist())
    emulator = request.getfixturevalue("tiles")
    with ad.language_model(path, **options) as model:
        emulator.counted()
        expected = logits_of(model, tokens.tolist())
        counted = emulator.counted()
        assert not counted or counted["int8" if precision == "int8" else "bfloat16"]
        for part in (1, 7, 16):
            row = model.model.join()
            for begin in range(0, len(tokens), part):
                made = model.model.step({row: tokens[begin : begin + part]})["logits"]
            model.model.leave(row)
            assert numpy.array_equal(made[0], expected)
    error = abs(vectors - expected).max() / abs(vectors).max()
    assert error == 0 if precision == "int8" else error < 1e-4
    assert emulator.in_use == 0
