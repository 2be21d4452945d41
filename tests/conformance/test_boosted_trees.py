"""Promise: LightGBM's and XGBoost's models give from one compile what the libraries give."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad

pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")
onnxruntime = pytest.importorskip("onnxruntime")
onnxmltools = pytest.importorskip("onnxmltools")

from onnxmltools.convert.common.data_types import FloatTensorType  # noqa: E402

from tests.conformance.estimators import CLASSES, COLUMNS, NUMBERS, ROWS, TWO, X, rows  # noqa: E402

TARGETS = {"numbers": NUMBERS, "two": TWO, "three": CLASSES}


def with_gaps(x: np.ndarray) -> np.ndarray:
    """Rows of which every tenth element is missing."""
    return np.where(np.random.default_rng(1).random(x.shape) < 0.1, np.nan, x).astype(np.float32)


def fitted(library: str, target: str):
    """A model of a library, and its file."""
    package = pytest.importorskip(library)
    kind = "Regressor" if target == "numbers" else "Classifier"
    name, quiet = {"lightgbm": ("LGBM", {"verbose": -1}), "xgboost": ("XGB", {})}[library]
    model = getattr(package, name + kind)(n_estimators=8, n_jobs=1, **quiet)
    model.fit(with_gaps(X), TARGETS[target])
    convert = getattr(onnxmltools, f"convert_{library}")
    options = {"zipmap": False} if library == "lightgbm" else {}
    kinds = [("x", FloatTensorType([None, COLUMNS]))]
    return model, convert(model, initial_types=kinds, target_opset=15, **options)


def check(model, file, x) -> None:
    found = ad.compile(file)(x=x)
    got = [found[value.name] for value in file.graph.output]
    right = [model.predict(x)]
    if len(got) > 1:
        right.append(model.predict_proba(x))
    for mine, theirs in zip(got, right):
        # XGBoost compares and sums in float32, LightGBM in float64: rows of float32 are the same
        np.testing.assert_allclose(mine.reshape(theirs.shape), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("target", TARGETS)
def test_boosted_trees(library, target):
    model, file = fitted(library, target)
    compiled = ad.compile(file)
    session = onnxruntime.InferenceSession(file.SerializeToString())
    for count in (1, 9, ROWS):
        x = with_gaps(X)[:count]
        check(model, file, x)
        for value, right in zip(file.graph.output, session.run(None, {"x": x})):
            np.testing.assert_allclose(compiled(x=x)[value.name], right, rtol=1e-5, atol=1e-6)
    assert all(len(value) == 0 for value in compiled(x=X[:0]).values())


@pytest.mark.slow
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("target", TARGETS)
def test_many_rows(library, target):
    model, file = fitted(library, target)
    check(model, file, with_gaps(rows(100_000, seed=2)))
