"""Estimators of scikit-learn with little data, and what it takes to make ONNX files of them.

Needs scikit-learn and skl2onnx: import it where those are there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import skl2onnx.common._container as container
import sklearn.base
from skl2onnx import to_onnx
from sklearn import (
    calibration,
    cluster,
    compose,
    cross_decomposition,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_selection,
    gaussian_process,
    impute,
    linear_model,
    mixture,
    model_selection,
    multiclass,
    multioutput,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    random_projection,
    svm,
    tree,
)  # fmt: skip
from sklearn.feature_extraction import text

ROWS, COLUMNS = 120, 4
OPSETS = {"": 21, "ai.onnx.ml": 3}  # the newest of both that all converters know


def rows(count: int, seed: int = 0) -> np.ndarray:
    """Rows [count, 4], float32, none below 0: some estimators ask for that."""
    random = np.random.default_rng(seed)
    return np.abs(random.standard_normal((count, COLUMNS)) + 1.5).astype(np.float32)


X = rows(ROWS)
LINE = X[:, 0] * 2 - X[:, 1] + np.sin(X[:, 2] * 2)
NUMBERS = np.abs(LINE) + 0.1
CLASSES = np.digitize(LINE, [1.2, 3.0])
TWO = (LINE > 2).astype(int)
NAMES = np.array(["low", "mid", "top"])[CLASSES]
PAIRS = np.stack([LINE, X[:, 3] - LINE], 1)
LABELS = np.stack([TWO, (X[:, 3] > 1).astype(int)], 1)


@dataclass(frozen=True)
class Case:
    """An estimator and what it learns; `judges` are its methods, one for each result of its file.

    `slow`: one of many of its kind, or long to fit.
    """

    make: Callable[[], Any]
    target: np.ndarray
    judges: tuple[str, ...] = ()
    slow: bool = False

    def fitted(self) -> Any:
        return self.make().fit(X, self.target)


def converted(model: Any, **options: Any) -> onnx.ModelProto:
    """The file of a fitted estimator, rows free; tensors, no lists of dicts, where it can."""
    plain = container.make_node

    def numbers(*given: Any, **attributes: Any) -> Any:
        """Attributes as protobuf takes them since its version 7: no numpy flags as integers."""
        for name, value in attributes.items():
            items = isinstance(value, (list, tuple, np.ndarray)) and len(value) > 0
            if items and any(isinstance(item, (bool, np.bool_)) for item in value):
                attributes[name] = [int(item) for item in value]
        return plain(*given, **attributes)

    container.make_node = numbers
    try:
        return to_onnx(model, **{"X": X[:1], "target_opset": OPSETS, **options})
    finally:
        container.make_node = plain


def tensors(model: Any, x: np.ndarray = X[:1]) -> onnx.ModelProto:
    """`converted` without ZipMap, which not all converters know; `x` is a row."""
    if sklearn.base.is_classifier(model) or isinstance(model, pipeline.Pipeline):
        try:
            return converted(model, X=x, options={id(model): {"zipmap": False}})
        except (NameError, ValueError, RuntimeError):
            pass
    return converted(model, X=x)


def _plain(module: Any, names: str, target: np.ndarray, **given: Any) -> dict[str, Case]:
    """Estimators that need nothing else said; those in brackets are slow."""
    made = {}
    for word in names.split():
        name = word.strip("()")
        make = getattr(module, name)
        made[name] = Case(lambda make=make: make(**given), target, slow=word.startswith("("))
    return made


def _logistic() -> Any:
    return linear_model.LogisticRegression()


def _shallow(kind: Any = tree.DecisionTreeClassifier) -> Any:
    return kind(max_depth=3, random_state=0)


TRANSFORM = ("transform",)
CASES: dict[str, Case] = {
    **_plain(linear_model, "LinearRegression Ridge Lasso HuberRegressor TheilSenRegressor "
             "(RidgeCV) ElasticNet (ElasticNetCV) (LassoCV) Lars (LarsCV) (LassoLars) "
             "(LassoLarsCV) (LassoLarsIC) (ARDRegression) BayesianRidge (GammaRegressor) "
             "PoissonRegressor (TweedieRegressor) QuantileRegressor SGDRegressor "
             "OrthogonalMatchingPursuit (OrthogonalMatchingPursuitCV) "
             "(PassiveAggressiveRegressor)", NUMBERS),
    **_plain(linear_model, "LogisticRegression (LogisticRegressionCV) Perceptron RidgeClassifier "
             "(RidgeClassifierCV) SGDClassifier (PassiveAggressiveClassifier)", CLASSES),
    **_plain(linear_model, "MultiTaskLasso (MultiTaskLassoCV) (MultiTaskElasticNet) "
             "(MultiTaskElasticNetCV)", PAIRS),
    "SGDOneClassSVM": Case(linear_model.SGDOneClassSVM, NUMBERS, slow=True),
    "RANSACRegressor": Case(
        lambda: linear_model.RANSACRegressor(
            linear_model.LinearRegression(), random_state=0, min_samples=20), NUMBERS),
    **_plain(tree, "DecisionTreeClassifier ExtraTreeClassifier", CLASSES, random_state=0),
    **_plain(tree, "DecisionTreeRegressor (ExtraTreeRegressor)", NUMBERS, random_state=0),
    **_plain(ensemble, "RandomForestClassifier ExtraTreesClassifier GradientBoostingClassifier "
             "AdaBoostClassifier BaggingClassifier", CLASSES, n_estimators=5, random_state=0),
    **_plain(ensemble, "RandomForestRegressor (ExtraTreesRegressor) GradientBoostingRegressor "
             "AdaBoostRegressor (BaggingRegressor)", NUMBERS, n_estimators=5, random_state=0),
    "IsolationForest": Case(
        lambda: ensemble.IsolationForest(n_estimators=5, random_state=0), NUMBERS,
        ("predict", "decision_function")),
    "HistGradientBoostingClassifier": Case(
        lambda: ensemble.HistGradientBoostingClassifier(max_iter=5), CLASSES),
    "HistGradientBoostingRegressor": Case(
        lambda: ensemble.HistGradientBoostingRegressor(max_iter=5), NUMBERS),
    "VotingClassifier": Case(
        lambda: ensemble.VotingClassifier(
            [("a", _logistic()), ("b", _shallow())], voting="soft", flatten_transform=False),
        CLASSES),
    "VotingRegressor": Case(
        lambda: ensemble.VotingRegressor(
            [("a", linear_model.Ridge()), ("b", _shallow(tree.DecisionTreeRegressor))]), NUMBERS),
    "StackingClassifier": Case(
        lambda: ensemble.StackingClassifier([("a", _logistic()), ("b", _shallow())], cv=2),
        CLASSES),
    "StackingRegressor": Case(
        lambda: ensemble.StackingRegressor(
            [("a", linear_model.Ridge()), ("b", _shallow(tree.DecisionTreeRegressor))]), NUMBERS),
    "SVC": Case(lambda: svm.SVC(probability=True, random_state=0), CLASSES),
    "NuSVC": Case(lambda: svm.NuSVC(nu=0.3, kernel="poly"), CLASSES, ("predict",), slow=True),
    **_plain(svm, "LinearSVC", CLASSES),
    **_plain(svm, "SVR NuSVR LinearSVR", NUMBERS),
    "OneClassSVM": Case(svm.OneClassSVM, NUMBERS, ("predict", "decision_function")),
    **_plain(naive_bayes, "GaussianNB BernoulliNB MultinomialNB ComplementNB", CLASSES),
    "CategoricalNB": Case(
        lambda: pipeline.make_pipeline(
            preprocessing.KBinsDiscretizer(
                3, encode="ordinal", quantile_method="averaged_inverted_cdf"),
            naive_bayes.CategoricalNB()), CLASSES, slow=True),
    **_plain(neighbors, "KNeighborsClassifier", CLASSES),
    **_plain(neighbors, "KNeighborsRegressor", NUMBERS),
    "RadiusNeighborsClassifier": Case(
        lambda: neighbors.RadiusNeighborsClassifier(2.0, outlier_label=0), CLASSES, ("predict",)),
    "RadiusNeighborsRegressor": Case(lambda: neighbors.RadiusNeighborsRegressor(6.0), NUMBERS),
    "KNeighborsTransformer": Case(
        lambda: neighbors.KNeighborsTransformer(n_neighbors=3), NUMBERS, TRANSFORM, slow=True),
    "LocalOutlierFactor": Case(
        lambda: neighbors.LocalOutlierFactor(novelty=True), NUMBERS,
        ("predict", "decision_function")),
    "NeighborhoodComponentsAnalysis": Case(
        lambda: neighbors.NeighborhoodComponentsAnalysis(2, random_state=0), CLASSES, TRANSFORM),
    "GaussianProcessRegressor": Case(
        lambda: gaussian_process.GaussianProcessRegressor(
            gaussian_process.kernels.RBF(2.0, "fixed"), alpha=0.1), NUMBERS),
    **_plain(cluster, "KMeans (MiniBatchKMeans)", NUMBERS, n_clusters=3, random_state=0, n_init=2),
    **_plain(mixture, "GaussianMixture (BayesianGaussianMixture)", NUMBERS, n_components=2,
             random_state=0),
    **_plain(neural_network, "MLPClassifier", CLASSES, hidden_layer_sizes=(8,), max_iter=60,
             random_state=0),
    **_plain(neural_network, "MLPRegressor", NUMBERS, hidden_layer_sizes=(8,), max_iter=60,
             random_state=0),
    **_plain(discriminant_analysis, "LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis",
             CLASSES),
    **_plain(cross_decomposition, "PLSRegression", PAIRS),
    "CalibratedClassifierCV": Case(
        lambda: calibration.CalibratedClassifierCV(_logistic(), cv=2), CLASSES),
    "OneVsRestClassifier": Case(lambda: multiclass.OneVsRestClassifier(_logistic()), CLASSES),
    "OneVsOneClassifier": Case(lambda: multiclass.OneVsOneClassifier(_logistic()), CLASSES),
    "NearestNeighbors": Case(
        lambda: neighbors.NearestNeighbors(n_neighbors=3, radius=None), NUMBERS, ("kneighbors",),
        slow=True),
    "TfidfTransformer": Case(text.TfidfTransformer, NUMBERS, TRANSFORM, slow=True),
    "MultiOutputRegressor": Case(
        lambda: multioutput.MultiOutputRegressor(linear_model.Ridge()), PAIRS),
    "MultiOutputClassifier": Case(
        lambda: multioutput.MultiOutputClassifier(_logistic()), LABELS),
    "GridSearchCV": Case(
        lambda: model_selection.GridSearchCV(_logistic(), {"C": [0.1, 1]}, cv=2), CLASSES),
    "Pipeline": Case(
        lambda: pipeline.make_pipeline(
            impute.SimpleImputer(), preprocessing.StandardScaler(), decomposition.PCA(3),
            ensemble.RandomForestClassifier(5, random_state=0)), CLASSES),
    "FeatureUnion": Case(
        lambda: pipeline.make_union(preprocessing.StandardScaler(), decomposition.PCA(2)),
        NUMBERS, TRANSFORM),
    "ColumnTransformer": Case(
        lambda: compose.make_column_transformer(
            (preprocessing.StandardScaler(), [0, 2]), (preprocessing.MinMaxScaler(), [1]),
            remainder="passthrough"), NUMBERS, TRANSFORM),
    **_plain(preprocessing, "StandardScaler (MinMaxScaler) (MaxAbsScaler) RobustScaler Normalizer "
             "Binarizer PolynomialFeatures PowerTransformer FunctionTransformer", NUMBERS),
    "QuantileTransformer": Case(
        lambda: preprocessing.QuantileTransformer(n_quantiles=20), NUMBERS, TRANSFORM, slow=True),
    "KBinsDiscretizer": Case(
        lambda: preprocessing.KBinsDiscretizer(
            3, encode="onehot-dense", quantile_method="averaged_inverted_cdf"),
        NUMBERS, TRANSFORM),
    **_plain(impute, "SimpleImputer", NUMBERS),
    "KNNImputer": Case(lambda: impute.KNNImputer(n_neighbors=2), NUMBERS, TRANSFORM, slow=True),
    **_plain(decomposition, "PCA TruncatedSVD (IncrementalPCA)", NUMBERS, n_components=2),
    "KernelPCA": Case(lambda: decomposition.KernelPCA(2, kernel="rbf"), NUMBERS, TRANSFORM),
    "GaussianRandomProjection": Case(
        lambda: random_projection.GaussianRandomProjection(2, random_state=0), NUMBERS, TRANSFORM,
        slow=True),
    "SelectKBest": Case(lambda: feature_selection.SelectKBest(k=2), CLASSES, TRANSFORM),
    "SelectPercentile": Case(
        lambda: feature_selection.SelectPercentile(percentile=50), CLASSES, TRANSFORM, slow=True),
    "GenericUnivariateSelect": Case(
        lambda: feature_selection.GenericUnivariateSelect(mode="k_best", param=2), CLASSES,
        TRANSFORM, slow=True),
    **_plain(feature_selection, "VarianceThreshold (SelectFdr) (SelectFpr) (SelectFwe)", CLASSES),
    "SelectFromModel": Case(
        lambda: feature_selection.SelectFromModel(_logistic()), CLASSES, TRANSFORM, slow=True),
    "RFE": Case(
        lambda: feature_selection.RFE(_logistic(), n_features_to_select=2), CLASSES, TRANSFORM),
    "RFECV": Case(
        lambda: feature_selection.RFECV(_logistic(), cv=2), CLASSES, TRANSFORM, slow=True),
}  # fmt: skip
