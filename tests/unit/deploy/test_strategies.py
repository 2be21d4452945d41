"""Promise: where there is no compiler, a strategy that needs one is refused before any call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import anydim as ad
from anydim.deploy import strategy
from tests.unit.compiler.variants.models import Here, depthwise, here, image

__all__ = ["here"]

SCRIPT = """
import json, sys, warnings
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("llvmlite", "onnx"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Blocked())
import numpy
import anydim as ad

path, x = sys.argv[1], numpy.load(sys.argv[2])
told = {}
for asked in ("generic", "buckets(h=[8, 16], b=1)", "adaptive", "adaptive(limit=3)", "exact",
              "where('h <= 4', exact(), else_=generic())", 'library("openblas")', "exakt"):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            model = ad.load(path, strategy=asked)
        except ad.OptionError as error:
            told[asked] = [str(error)]
            continue
    results = [model(x=x[:, :, :rows])["y"].tobytes().hex() for rows in (1, 7, 8, 9, 16, 17)]
    served = model.plan(b=1, h=9, q=10).launches[0].body
    warned = sum("no compiler" in str(each.message) for each in said)
    told[asked] = [str(model.strategy), warned, len(model.variants()), served, results]
modules = [name.split(".") for name in sys.modules if name.startswith("anydim.")]
told["rooms"] = sorted({part for name in modules for part in name[1:3]})
try:
    ad.compile("model.onnx", strategy="generic")
except ad.MissingError as error:
    told["compile"] = str(error)
print(json.dumps(told))
"""


def test_a_process_without_compiler(here: Here, tmp_path: Path) -> None:
    here.ratio, path, given = 0.5, tmp_path / "m.anydim", tmp_path / "x.npy"
    model, x = depthwise("buckets(h=[8, 16], b=1)"), image(17)
    model.save(path)
    numpy.save(given, x)
    results = [model(x=x[:, :, :rows])["y"].tobytes().hex() for rows in (1, 7, 8, 9, 16, 17)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), str(given)],
        capture_output=True, text=True, env=dict(os.environ),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told, bodies = json.loads(done.stdout), len(model.variants())
    assert bodies > 0 and told["generic"] == ["generic()", 0, 0, "generic", results]
    kind, *rest = told["buckets(h=[8, 16], b=1)"]
    assert kind == str(model.strategy) and rest[:2] == [0, bodies] and rest[3] == results
    assert rest[2].startswith("span window_reduction")
    assert told["adaptive"][:3] == ["generic()", 1, bodies] and told["adaptive"][4] == results
    assert told["adaptive(limit=3)"][:2] == ["generic()", 0]
    for refused in ("exact", "where('h <= 4', exact(), else_=generic())", 'library("openblas")'):
        assert "needs a compiler" in told[refused][0]
    assert "did you mean 'exact'" in told["exakt"][0]
    assert "variants" in told["rooms"] and not {"targets", "passes"} & set(told["rooms"])
    assert "llvmlite" in told["compile"]


def test_buckets_need_bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.anydim"
    depthwise("generic").save(path)
    with pytest.raises(ad.OptionError, match="no variants"):
        ad.load(path, strategy="buckets(h=[8, 16])")
    assert str(ad.load(path).strategy) == "generic()"
    monkeypatch.setattr(strategy, "_warned", set())
    with pytest.warns(RuntimeWarning, match="no compiler"):
        ad.load(path, strategy="adaptive")
