"""Forests and boosted trees beside onnxruntime: python -m bench.trees [--threads 2]

Needs scikit-learn and skl2onnx. Both run the same file on the same rows in one process, in turns;
the least time of each counts.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnxruntime

import anydim as ad

ROWS = (1, 10, 100, 1_000, 10_000)
COLUMNS, TRAINED = 20, 4_000


def models() -> dict[str, Any]:
    """Four ensembles of 100 trees, fitted."""
    from sklearn import ensemble

    random = np.random.default_rng(0)
    x = random.standard_normal((TRAINED, COLUMNS)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) + 0.3 * random.standard_normal(TRAINED)
    classes = np.digitize(y, [-1, 1])
    return {
        "gradient boosting, 3 levels": ensemble.GradientBoostingRegressor().fit(x, y),
        "histogram boosting, 31 leaves": ensemble.HistGradientBoostingRegressor().fit(x, y),
        "forest, 3 classes, 10 levels": ensemble.RandomForestClassifier(max_depth=10).fit(
            x, classes
        ),
        "forest, whole trees": ensemble.RandomForestRegressor().fit(x, y),
    }


def least(first: Callable[[], Any], second: Callable[[], Any]) -> tuple[float, float]:
    """The least time of each of two calls in turns, in seconds."""
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + 1.0
    while time.perf_counter() < end or len(times[0]) < 5:
        for call, own in zip((first, second), times):
            start = time.perf_counter()
            call()
            own.append(time.perf_counter() - start)
    return min(times[0]), min(times[1])


def main() -> None:
    from tests.conformance.estimators import tensors

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    warnings.simplefilter("ignore")
    for name, model in models().items():
        file = tensors(model, np.zeros((1, COLUMNS), np.float32)).SerializeToString()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(file, options)
        compiled = ad.compile(file, threads=threads)
        for rows in ROWS:
            x = np.random.default_rng(1).standard_normal((rows, COLUMNS)).astype(np.float32)
            feed = {session.get_inputs()[0].name: x}
            own, peer = least(partial(compiled, **feed), partial(session.run, None, feed))
            print(
                f"{name:30} {rows:6} rows  anydim {own * 1e6:9.1f} us  "
                f"onnxruntime {peer * 1e6:9.1f} us  ratio {own / peer:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
