"""llama.cpp by llama-cpp-python: `with_llama_cpp.py MODEL.gguf THREADS [CACHE]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import llama_cpp as lib
import numpy
from worker import serve

TOKENS = 8192  # of all caches together
CHUNK = 512


class Rows:
    def __init__(self, path: str, threads: int) -> None:
        lib.llama_log_set(_silent, None)
        lib.llama_backend_init()
        own = lib.llama_model_default_params()
        self.model = lib.llama_model_load_from_file(path.encode(), own)
        given = lib.llama_context_default_params()
        given.n_ctx, given.n_batch, given.n_ubatch, given.n_seq_max = TOKENS, CHUNK, CHUNK, 16
        given.n_threads = given.n_threads_batch = threads
        given.kv_unified = True
        self.context = lib.llama_init_from_model(self.model, given)
        self.memory = lib.llama_get_memory(self.context)
        self.words = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.lengths: list[int] = []
        self.last: list[int] = []
        self.batch = lib.llama_batch_init(CHUNK, 0, 1)

    def _decode(self, tokens: Sequence[tuple[int, int, int, bool]]) -> list[int]:
        """Run (token, position, row, has logits); the likeliest tokens of those that have logits"""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for at, (token, position, row, has_logits) in enumerate(tokens):
            batch.token[at], batch.pos[at] = token, position
            batch.n_seq_id[at], batch.seq_id[at][0] = 1, row
            batch.logits[at] = has_logits
        if lib.llama_decode(self.context, batch):
            raise MemoryError("llama_decode failed")
        return [int(numpy.ctypeslib.as_array(lib.llama_get_logits_ith(self.context, at),
                                             (self.words,)).argmax())
                for at, each in enumerate(tokens) if each[3]]  # fmt: skip

    def _read(self, row: int, prompt: list[int]) -> int:
        end = len(prompt)
        for start in range(0, end, CHUNK):
            part = enumerate(prompt[start : start + CHUNK], start)
            found = self._decode([(token, at, row, at == end - 1) for at, token in part])
        return found[0]

    def read(self, prompt: list[int]) -> None:
        self._read(len(self.lengths), prompt)
        lib.llama_memory_seq_rm(self.memory, len(self.lengths), -1, -1)

    def join(self, prompts: Sequence[list[int]]) -> None:
        self.last = [self._read(row, prompt) for row, prompt in enumerate(prompts)]
        self.lengths = [len(prompt) for prompt in prompts]

    def step(self, count: int) -> None:
        for _ in range(count):
            rows = range(len(self.lengths))
            self.last = self._decode([(self.last[r], self.lengths[r], r, True) for r in rows])
            self.lengths = [length + 1 for length in self.lengths]

    def leave(self) -> None:
        for row in range(len(self.lengths)):
            lib.llama_memory_seq_rm(self.memory, row, -1, -1)
        self.lengths = []


@lib.llama_log_callback
def _silent(level: int, text: bytes, data: object) -> None:
    pass


if __name__ == "__main__":
    serve(Rows(sys.argv[1], int(sys.argv[2])))
