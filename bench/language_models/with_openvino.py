"""OpenVINO GenAI, continuous batching: `with_openvino.py MODEL.gguf THREADS [PRECISION]`.

PRECISION is the hint of inference, f32 or bf16; without it, OpenVINO's own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy
import openvino
import openvino_genai as lib
from worker import serve


class Rows:
    def __init__(self, path: str, threads: int, precision: str) -> None:
        scheduler = lib.SchedulerConfig()
        scheduler.cache_size, scheduler.max_num_seqs = 1, 16
        scheduler.max_num_batched_tokens = 512
        scheduler.enable_prefix_caching = False
        options = {"INFERENCE_NUM_THREADS": threads}
        if precision:
            options["INFERENCE_PRECISION_HINT"] = precision
        self.pipe = lib.ContinuousBatchingPipeline(path, scheduler, "CPU", options, {})
        self.count = 0
        self.running: list[lib.GenerationHandle] = []

    def _begin(self, prompt: list[int], most: int) -> lib.GenerationHandle:
        config = lib.GenerationConfig(max_new_tokens=most, ignore_eos=True, do_sample=False)
        self.count += 1
        ids = openvino.Tensor(numpy.array([prompt], numpy.int64))
        return self.pipe.add_request(self.count, ids, config)

    def read(self, prompt: list[int]) -> None:
        handle = self._begin(prompt, 1)
        while self.pipe.has_non_finished_requests():
            self.pipe.step()
        del handle

    def join(self, prompts: Sequence[list[int]]) -> None:
        for prompt in prompts:
            handle = self._begin(prompt, 4096)
            while not handle.can_read():
                self.pipe.step()
            self.running.append(handle)

    def step(self, count: int) -> None:
        for _ in range(count):
            self.pipe.step()

    def leave(self) -> None:
        for handle in self.running:
            handle.stop()
        self.pipe.step()
        self.running = []


if __name__ == "__main__":
    serve(Rows(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""))
