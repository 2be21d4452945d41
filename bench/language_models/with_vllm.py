"""vLLM for CPUs: `with_vllm.py FOLDER THREADS bfloat16|float32`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import psutil

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, psutil.Process().cpu_affinity())),
}
if True:  # the environment comes first
    from vllm import EngineArgs, LLMEngine, SamplingParams
    from worker import serve


class Rows:
    def __init__(self, path: str, precision: str) -> None:
        self.engine = LLMEngine.from_engine_args(EngineArgs(
            path, dtype=precision, max_model_len=2048, max_num_seqs=16, max_num_batched_tokens=2048,
            enable_prefix_caching=False, skip_tokenizer_init=True,
        ))  # fmt: skip
        self.count = 0
        self.running: list[str] = []

    def _begin(self, prompt: list[int], most: int) -> str:
        self.count += 1
        given = SamplingParams(temperature=0, max_tokens=most, ignore_eos=True, detokenize=False)
        self.engine.add_request(str(self.count), {"prompt_token_ids": prompt}, given)
        return str(self.count)

    def read(self, prompt: list[int]) -> None:
        self._begin(prompt, 1)
        while self.engine.has_unfinished_requests():
            self.engine.step()

    def join(self, prompts: Sequence[list[int]]) -> None:
        for prompt in prompts:
            self.running.append(self._begin(prompt, 1024))
            self.engine.step()

    def step(self, count: int) -> None:
        for _ in range(count):
            self.engine.step()

    def leave(self) -> None:
        self.engine.abort_request(self.running)
        self.running = []


if __name__ == "__main__":
    serve(Rows(sys.argv[1], sys.argv[3]))
