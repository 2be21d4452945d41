"""Promise: a saved model, in a process with numpy alone, is the compiled one: bits and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy
import pytest

import anydim as ad
from bench.light import light_model
from examples.detector import detector
from examples.minilm.model import SMALL as SMALL_ENCODER
from examples.minilm.model import build_model, model_path, random_weights
from tests.models import saved_process
from tests.models.test_bidirectional_lstm import model as tagger

ROOT = Path(__file__).resolve().parents[2]
CALLS = 50
ATTENTION = """
def attention(float(...b,Q,64) q, float(...b,K,64) k, float(...b,K,64) v) -> (out) {
  s(...b,i,j) +=! q(...b,i,d) * k(...b,j,d)
  top(...b,i) max=! s(...b,i,j)
  e(...b,i,j) = exp(s(...b,i,j) - top(...b,i))
  total(...b,i) +=! e(...b,i,j)
  p(...b,i,j) = e(...b,i,j) / total(...b,i)
  out(...b,i,c) +=! p(...b,i,j) * v(...b,j,c)
}
"""


def defined(sizes: dict[str, int]) -> ad.Model:
    random = numpy.random.default_rng(0)
    arrays = saved_process.REAL["definition"].arrays(random, sizes)
    return ad.define(ATTENTION).attention.model(**arrays)


def small_classifier() -> ad.Model:
    dims = {"batch": ad.Dim(1, 2), "height": ad.Dim(32, 64), "width": ad.Dim(32, 64)}
    return ad.compile(light_model("squeezenet", ("batch", 3, "height", "width")), dims)


def encoder() -> ad.Model:
    dims = {"batch": ad.Dim(0, 64), "seq": ad.Dim(1, 512)}
    return ad.compile(model_path(), dims, threads=2)


Build = Callable[[], ad.Model]
SMALL: Mapping[str, Build] = {
    "encoder": lambda: ad.compile(
        build_model(SMALL_ENCODER, random_weights(SMALL_ENCODER)),
        {"batch": ad.Dim(0, 5), "seq": ad.Dim(1, 20)}, threads=2,
    ),
    "classifier": small_classifier,
    "tagger": lambda: ad.compile(tagger()),
    "detector": lambda: ad.compile(detector()),
    "definition": lambda: defined({"b.1": 2, "Q": 3, "K": 4}),
}  # fmt: skip
REAL: Mapping[str, Build] = {
    **SMALL,
    "encoder": encoder,
    "classifier": lambda: ad.compile(light_model("resnet50"), {"batch": ad.Dim(1, 16)}, threads=2),
}


def compare(folder: Path, kinds: str, builds: Mapping[str, Build]) -> None:
    """Outcomes here and there."""
    draws = saved_process.SMALL if kinds == "small" else saved_process.REAL
    expected = {}
    for name, build in builds.items():
        model = build()
        model.save(folder / f"{name}.anydim")
        expected[name] = saved_process.outcomes(model, draws[name], CALLS)
    command = [sys.executable, saved_process.__file__, str(folder), kinds, str(CALLS)]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=900,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["rooms"] == ["base", "deploy", "runtime", "sizes"]
    for name, known in expected.items():
        there = told["outcomes"][name]
        assert there.keys() == known.keys()
        differ = {what: (there[what], known[what]) for what in known if there[what] != known[what]}
        assert not differ, name
        texts = [text for text in known.values() if "Error: " in text]
        assert len(texts) > 7 and not any("Internal" in text for text in texts)


def test_small_models(tmp_path: Path) -> None:
    compare(tmp_path, "small", SMALL)


@pytest.mark.slow
def test_real_models(tmp_path: Path) -> None:
    compare(tmp_path, "real", REAL)
