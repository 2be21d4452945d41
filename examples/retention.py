"""An operator of your own: retention, a recurrent layer, in the comprehension language.

    .venv/bin/python -m examples.retention

Retention (Sun et al., "Retentive Network", 2023) keeps a matrix that fades from step to step; the
text below says so in four lines. It is compiled once, at its first call, for every length and
width. The output is compared with plain numpy in float64 at lengths that were never declared.
"""

from __future__ import annotations

import numpy as np

import anydim as ad

TEXT = """
def retention(float(T,D) q, float(T,D) k, float(T,C) v, float(D) decay) -> (out, state) {
  for t in 0:T {
    memory(t,d,c) = k(t,d) * v(t,c) + (decay(d) * memory(t-1,d,c) else 0)
    out(t,c) +=! q(t,d) * memory(t,d,c)
  }
  state(d,c) = memory(T-1,d,c)
}
"""
LENGTHS = (1, 2, 7, 16, 17, 100, 1)
WIDTHS = (8, 16)  # of keys, of values
TOLERANCE = 2e-5  # of the largest output: float32 sums of 8 products, faded 100 times


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, decay: np.ndarray) -> np.ndarray:
    """What retention means: a loop in numpy, float64."""
    q, k, v, decay = (array.astype(np.float64) for array in (q, k, v, decay))
    memory = np.zeros((q.shape[1], v.shape[1]))
    rows = []
    for step in range(len(q)):
        memory = decay[:, None] * memory + np.outer(k[step], v[step])
        rows.append(q[step] @ memory)
    return np.array(rows)


def main() -> None:
    retention = ad.define(TEXT).retention
    random = np.random.default_rng(0)
    keys, values = WIDTHS
    decay = random.uniform(0.8, 1.0, keys).astype(np.float32)
    print("one compile, every length:")
    for length in LENGTHS:
        q, k = random.standard_normal((2, length, keys), np.float32)
        v = random.standard_normal((length, values), np.float32)
        out = retention(q, k, v, decay).out
        wanted = reference(q, k, v, decay)
        apart = np.abs(out - wanted).max() / np.abs(wanted).max()
        print(f"  length {length:4}: {apart:.1e} from float64")
        if apart > TOLERANCE:
            raise SystemExit(f"length {length} is {apart:.1e} from the reference")
    print("\nits kernels, and why:")
    print(retention.options)
    print("\nmemory of a call, as a formula:")
    print(retention.model(q, k, v, decay).memory)
    try:
        retention(q, k[:, :-1], v, decay)
    except ad.UserError as error:
        print(f"\na wrong call is told why:\n{error}")


if __name__ == "__main__":
    main()
