"""A graph written in Python whose sizes only data decides: the tail of a detector.

    .venv/bin/python -m examples.detector

Any number of boxes comes in; those that score high enough and hide behind no better one go out,
best first. How many those are is a size of the results that nobody knows before the call, and the
whole of it is native code, compiled once.
"""

from __future__ import annotations

import numpy as np

import anydim as ad

COUNTS = (0, 1, 5, 40, 3, 500)
LEAST_SCORE, MOST_OVERLAP, KEPT = 0.6, 0.5, 100


def detector() -> ad.Builder:
    """boxes [n, 4] (y0, x0, y1, x1) and scores [n] -> the boxes and scores that are kept."""
    g = ad.Builder("detector")
    n = g.dim("n", 0, 10_000)
    boxes = g.input("boxes", ad.float32, (n, 4))
    scores = g.input("scores", ad.float32, (n,))
    kept = g.non_max_suppression(
        g.unsqueeze(boxes, axes=(0,)),
        g.unsqueeze(scores, axes=(0, 1)),
        KEPT,
        MOST_OVERLAP,
        LEAST_SCORE,
    )
    places = g.gather(kept, np.array(2), axis=1)  # rows of kept are batch, class, box
    g.output("kept_boxes", g.gather(boxes, places, axis=0))
    g.output("kept_scores", g.gather(scores, places, axis=0))
    return g


def main() -> None:
    model = ad.compile(detector())
    random = np.random.default_rng(0)
    print("one compile, any number of boxes:")
    for count in COUNTS:
        corners = random.uniform(0, 40, (count, 2))
        boxes = np.hstack([corners, corners + random.uniform(2, 20, (count, 2))])
        scores = random.uniform(0, 1, count)
        found = model(boxes.astype(np.float32), scores.astype(np.float32))
        best = found["kept_scores"]
        print(f"  {count:4} boxes: {len(best):3} kept", *(f"{score:.3f}" for score in best[:4]))
        if not (np.diff(best) <= 0).all() or (best <= LEAST_SCORE).any():
            raise SystemExit("boxes are kept that should not be")
    print("\nwhat a call at 500 boxes will do, at most; nothing runs:")
    print(model.plan(n=500))


if __name__ == "__main__":
    main()
