"""anydim: `with_anydim.py MODEL.gguf THREADS PRECISION`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy
from worker import serve

import anydim as ad

CHUNK = 128  # tokens of a prompt that a step has, as in a decoder


class Rows:
    def __init__(self, path: str, threads: int, precision: str | None) -> None:
        lm = ad.language_model(path, threads=threads, precision=precision, memory="2 GiB")
        self.model = lm.model
        self.last: dict[int, numpy.ndarray] = {}

    def _read(self, prompt: list[int]) -> tuple[int, numpy.ndarray]:
        row, tokens = self.model.join(), numpy.array(prompt, numpy.int64)
        for start in range(0, len(tokens), CHUNK):
            logits = self.model.step({row: tokens[start : start + CHUNK]})["logits"]
        return row, logits[0].argmax(-1)

    def read(self, prompt: list[int]) -> None:
        self.model.leave(self._read(prompt)[0])

    def join(self, prompts: Sequence[list[int]]) -> None:
        self.last = dict(map(self._read, prompts))

    def step(self, count: int) -> None:
        for _ in range(count):
            logits = self.model.step(self.last)["logits"]
            self.last = {row: each.argmax(-1) for row, each in zip(self.last, logits)}

    def leave(self) -> None:
        for row in self.last:
            self.model.leave(row)


if __name__ == "__main__":
    precision = sys.argv[3] if sys.argv[3] != "exact" else None
    serve(Rows(sys.argv[1], int(sys.argv[2]), precision))
