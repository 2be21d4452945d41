"""Promise: a saved model runs on as many threads as `load` allows, with the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import anydim as ad


def test_threads_of_a_loaded_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anydim.deploy.load.usual_cores", lambda: 2)
    g = ad.Builder("scores")
    x = g.input("x", ad.float32, (g.dim("n", 0, 4096), 64))
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    g.output("y", g.softmax(g.matmul(x, g.constant(w)), axis=-1))
    model = ad.compile(g, threads=3)
    model.save(tmp_path / "scores.anydim")
    given = np.random.default_rng(1).standard_normal((1000, 64)).astype(np.float32)
    for threads, expected in (("auto", 2), (1, 1), (2, 2), (3, 3)):
        loaded = ad.load(tmp_path / "scores.anydim", threads=threads)
        assert loaded.executable.threads == expected
        assert np.array_equal(loaded(given)["y"], model(given)["y"])
    for wrong, told in ((0, "threads is 0"), (8, "threads is 8, and .* was compiled for 3")):
        with pytest.raises(ad.OptionError, match=told):
            ad.load(tmp_path / "scores.anydim", threads=wrong)
