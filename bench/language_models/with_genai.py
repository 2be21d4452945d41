"""onnxruntime-genai: `with_genai.py FOLDER THREADS`; rows that join have the length of their mean.

A generator of onnxruntime-genai steps rows of one length. The folder comes from
`python -m onnxruntime_genai.models.builder -i FOLDER -o OUT -p int4 -e cpu`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import numpy
import onnxruntime_genai as lib
from worker import serve

LIMIT = 2048


class Rows:
    def __init__(self, path: str, threads: int) -> None:
        config = lib.Config(path)
        options = {"session_options": {"intra_op_num_threads": threads}}
        config.overlay(json.dumps({"model": {"decoder": options}}))
        self.model = lib.Model(config)
        self.running: lib.Generator | None = None

    def _begin(self, tokens: numpy.ndarray) -> lib.Generator:
        """Read rows of equal length. Tokens: (rows, length), int32."""
        given = lib.GeneratorParams(self.model)
        given.set_search_options(
            max_length=min(LIMIT, tokens.shape[1] + 256), min_length=LIMIT,
            batch_size=len(tokens), do_sample=False,
        )  # fmt: skip
        generator = lib.Generator(self.model, given)
        generator.append_tokens(tokens)
        generator.generate_next_token()
        return generator

    def read(self, prompt: list[int]) -> None:
        self._begin(numpy.array([prompt], numpy.int32))

    def join(self, prompts: Sequence[list[int]]) -> None:
        length = round(sum(map(len, prompts)) / len(prompts))
        every = numpy.concatenate([numpy.array(prompt, numpy.int32) for prompt in prompts])
        self.running = self._begin(numpy.resize(every, (len(prompts), length)))

    def step(self, count: int) -> None:
        assert self.running is not None
        for _ in range(count):
            self.running.generate_next_token()

    def leave(self) -> None:
        self.running = None


if __name__ == "__main__":
    serve(Rows(sys.argv[1], int(sys.argv[2])))
