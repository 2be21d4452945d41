"""Promise: estimators of scikit-learn give from one compile what they give there, at any row count.

The estimators compute in float64, their files in float32: numbers agree to some 1e-4, and classes
but for rows that lie as near to a border. onnxruntime, which runs the same file, is a second judge.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import anydim as ad

pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from tests.conformance.estimators import CASES, ROWS, X, rows, tensors  # noqa: E402

MANY = 100_000
NEAR = 1e-3  # the share of many rows that lie so near to a border that float32 takes another side
WITHOUT_PEER = {  # what onnxruntime refuses to run
    "RadiusNeighborsClassifier": "a gather at -1", "RadiusNeighborsRegressor": "a gather at -1",
}  # fmt: skip


def fitted(name: str):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so little data, and of what will change in 1.10
        model = CASES[name].fitted()
        return model, tensors(model)


def judged(model, judges, x) -> list[np.ndarray]:
    """What an estimator itself says of rows, one array for each result of its file."""
    if not judges:
        judges = ("predict", "predict_proba") if hasattr(model, "predict") else ("transform",)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [getattr(model, judge)(x) for judge in judges if hasattr(model, judge)]
    if judges == ("kneighbors",):
        found = list(found[0][::-1])  # the file gives indices first
    found = [np.stack(part) if isinstance(part, list) else part for part in found]
    return [part.toarray() if hasattr(part, "toarray") else np.asarray(part) for part in found]


def agree(got, right: np.ndarray, what: str, near: float = 0.0) -> None:
    """Close in all elements but for a share of them."""
    got = np.stack(got) if isinstance(got, list) else np.asarray(got)
    got = got.reshape(right.shape)
    if right.dtype.kind in "iuO":
        wrong = got != right
    else:
        wrong = ~np.isclose(got, right, rtol=1e-3, atol=2e-4)
    assert wrong.sum() <= near * wrong.size, f"{what}: {wrong.sum()} of {wrong.size} differ"


def results(model: ad.Model, file, x) -> list:
    found = model(**{file.graph.input[0].name: x})
    return [found[value.name] for value in file.graph.output]


def named(slow: bool | None):
    return [name for name, case in CASES.items() if slow is None or case.slow == slow]


@pytest.mark.sampled(most=17)
@pytest.mark.parametrize("name", named(slow=False))
def test_estimator(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", named(slow=True))
def test_another_estimator(name):
    check(name)


def check(name: str) -> None:
    model, file = fitted(name)
    compiled = ad.compile(file)
    for got, right in zip(results(compiled, file, X), judged(model, CASES[name].judges, X)):
        agree(got, right, name)
    assert all(np.size(part) == 0 for part in results(compiled, file, X[:0]))
    if name in WITHOUT_PEER:
        return
    session = onnxruntime.InferenceSession(file.SerializeToString())
    for count in (1, 7, ROWS):
        peer = session.run(None, {file.graph.input[0].name: X[:count]})
        for got, right in zip(results(compiled, file, X[:count]), peer):
            if isinstance(right, list):
                right = np.stack(right)
            agree(got, right, f"{name}, {count} rows")


@pytest.mark.slow
@pytest.mark.parametrize("name", named(slow=None))
def test_many_rows(name):
    model, file = fitted(name)
    x = rows(MANY, seed=1)
    found = results(ad.compile(file), file, x)
    for got, right in zip(found, judged(model, CASES[name].judges, x)):
        agree(got, right, name, NEAR)
