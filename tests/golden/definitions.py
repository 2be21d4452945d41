"""Programs of the corpus that are written in the language, in `definitions.tc`."""

from __future__ import annotations

from pathlib import Path

from tests.golden.case import LANES, Case, Sizes, along

FILE = Path(__file__).with_name("definitions.tc")


def case(name: str, sizes: tuple[Sizes, ...]) -> Case:
    return Case(f"{name} (text)", lambda: f"{FILE}:{name}", sizes)


CASES = [
    case("running_sum", along(T=LANES)),
    case("gated_pooling", along(T=(0, 1, 5), B=(2, 1, 3), C=(3, 8, 17))),
    case("levenshtein", along(N=(0, 1, 13), M=(3, 1, 17))),
    case("heat", along(N=(0, 1, 9, 31), T=(2, 1, 3, 5))),
    case("lstm", along(
        T=(0, 1, 5), B=(2, 1, 3), I=(3, 4, 7), H=(4, 1, 9),
        **{"w.0": (16, 4, 36), "r.0": (16, 4, 36)},  # what the text calls 4*H
    )),
    case("softmax", along(N=(0, 1, 5), C=(3, 8, 37))),
    case("strided", along(N=(0, 1, 2), C=(1, 3, 2), H=(5, 3, 9), W=(5, 7, 12), M=(2, 1, 9))),
    case("matmul", along(M=(0, 1, 9), K=(2, 8, 33), N=(3, 1, 17))),
]  # fmt: skip
