"""Promise: classes with names, lists of dicts, columns of strings and texts come out as from
onnxruntime, from one compile at every number of rows."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad

pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from skl2onnx.common.data_types import FloatTensorType, StringTensorType  # noqa: E402
from sklearn import (  # noqa: E402  # noqa: E402
    compose,
    ensemble,
    linear_model,
    naive_bayes,
    neighbors,
    pipeline,
    preprocessing,
    svm,
    tree,
)
from sklearn.feature_extraction import text  # noqa: E402

from tests.conformance.estimators import NAMES, ROWS, X, converted  # noqa: E402

RANDOM = np.random.default_rng(0)
WORDS = ["cat", "sat", "mat", "dog", "ran", "on", "the"]
TEXTS = np.array([" ".join(RANDOM.choice(WORDS, n)) for n in RANDOM.integers(1, 9, ROWS)], object)
COLORS = RANDOM.choice(["red", "green", "blue"], (ROWS, 2)).astype(object)

CLASSIFIERS = {
    "linear": lambda: linear_model.LogisticRegression(),
    "tree": lambda: tree.DecisionTreeClassifier(max_depth=4),
    "forest": lambda: ensemble.RandomForestClassifier(3, random_state=0),
    "vectors": lambda: svm.SVC(),
    "bayes": lambda: naive_bayes.GaussianNB(),
    "neighbours": lambda: neighbors.KNeighborsClassifier(3),
    "stack": lambda: ensemble.StackingClassifier(
        [("a", linear_model.LogisticRegression()), ("b", naive_bayes.GaussianNB())], cv=2),
}  # fmt: skip


def same(got, right) -> None:
    """Equal types throughout, equal names, numbers that differ by float32's rounding."""
    if isinstance(right, list):
        assert type(got) is list and len(got) == len(right)
        for mine, theirs in zip(got, right):
            assert list(mine) == list(theirs)
            for one, other in zip((mine.keys(), mine.values()), (theirs.keys(), theirs.values())):
                assert list(map(type, one)) == list(map(type, other))
            np.testing.assert_allclose([*mine.values()], [*theirs.values()], rtol=1e-4, atol=1e-5)
        return
    assert (got.dtype, got.shape) == (right.dtype, right.shape)
    if right.dtype == object:
        assert got.tolist() == right.tolist()
    else:
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)


def compare(file, feeds) -> ad.Model:
    session = onnxruntime.InferenceSession(file.SerializeToString())
    compiled = ad.compile(file)
    for count in (1, 7, ROWS):
        part = {name: value[:count] for name, value in feeds.items()}
        found = compiled(**part)
        for value, right in zip(file.graph.output, session.run(None, part)):
            same(found[value.name], right)
    none = compiled(**{name: value[:0] for name, value in feeds.items()})
    assert all(len(value) == 0 for value in none.values())
    return compiled


@pytest.mark.sampled(most=7)
@pytest.mark.parametrize("classes", [3, 2])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_names_of_classes_and_lists_of_dicts(name, classes):
    target = NAMES if classes == 3 else np.where(NAMES == "mid", "mid", "other")
    compare(converted(CLASSIFIERS[name]().fit(X, target)), {"X": X})


def test_numbers_of_classes_are_keys():
    file = converted(linear_model.LogisticRegression().fit(X, (NAMES == "mid") * 3 + 4))
    (first, *_) = compare(file, {"X": X})(X=X)[file.graph.output[1].name]
    assert list(first) == [4, 7]


def test_columns_of_strings_beside_numbers():
    table = np.concatenate([X[:, :2].astype(object), COLORS], 1)
    model = pipeline.make_pipeline(
        compose.make_column_transformer(
            (preprocessing.StandardScaler(), [0, 1]),
            (preprocessing.OneHotEncoder(handle_unknown="ignore"), [2, 3])),
        linear_model.LogisticRegression(),
    ).fit(table, NAMES)  # fmt: skip
    kinds = [(name, FloatTensorType([None, 1])) for name in "ab"]
    kinds += [(name, StringTensorType([None, 1])) for name in "cd"]
    file = converted(model, X=None, initial_types=kinds)
    feeds = {name: X[:, place : place + 1].copy() for place, name in enumerate("ab")}
    colors = np.where(COLORS == "blue", "violet", COLORS)  # which the model has not seen
    feeds |= {name: colors[:, place : place + 1] for place, name in enumerate("cd")}
    compare(file, feeds)


def test_encoders_of_strings():
    for encoder in (preprocessing.OneHotEncoder(sparse_output=False),
                    preprocessing.OrdinalEncoder()):  # fmt: skip
        kinds = [("s", StringTensorType([None, 2]))]
        compare(converted(encoder.fit(COLORS), X=None, initial_types=kinds), {"s": COLORS})
    encoder = preprocessing.LabelBinarizer().fit(NAMES)
    kinds = [("s", StringTensorType([None, 1]))]
    compare(converted(encoder, X=None, initial_types=kinds), {"s": COLORS[:, :1]})
    encoder = preprocessing.TargetEncoder().fit(COLORS, X[:, 0])
    kinds = [("s", StringTensorType([None, 2]))]
    compare(converted(encoder, X=None, initial_types=kinds), {"s": COLORS})
    kinds = [("s", StringTensorType([None]))]
    encoder = preprocessing.LabelEncoder().fit(NAMES)
    compare(converted(encoder, X=None, initial_types=kinds), {"s": NAMES.astype(object)})


@pytest.mark.parametrize(
    "vectorizer",
    [text.CountVectorizer(), text.TfidfVectorizer(ngram_range=(1, 2)),
     text.CountVectorizer(analyzer="char"), text.CountVectorizer(stop_words=["the"])],
    ids=["words", "pairs", "characters", "stopped"],
)  # fmt: skip
def test_texts(vectorizer):
    """onnxruntime takes such files only where a locale is installed; scikit-learn judges alone."""
    vectorizer.fit(TEXTS)
    kinds = [("t", StringTensorType([None, 1]))]
    file = converted(vectorizer, X=None, initial_types=kinds)
    compiled = ad.compile(file)
    for count in (0, 1, 7, ROWS):
        (got,) = compiled(t=TEXTS[:count, None]).values()
        right = (
            vectorizer.transform(TEXTS[:count]).toarray() if count else np.zeros((0, got.shape[1]))
        )
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)
    assert compiled.adapter.native is not None  # the counting is native


def test_a_classifier_of_texts():
    model = pipeline.make_pipeline(text.TfidfVectorizer(), linear_model.LogisticRegression())
    model.fit(TEXTS, NAMES)
    file = converted(model, X=None, initial_types=[("t", StringTensorType([None, 1]))])
    names, shares = ad.compile(file)(t=TEXTS[:, None]).values()
    assert names.tolist() == model.predict(TEXTS).tolist()
    right = model.predict_proba(TEXTS)
    np.testing.assert_allclose([[*row.values()] for row in shares], right, rtol=1e-4, atol=1e-5)
