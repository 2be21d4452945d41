"""transformers, rows padded on the left: `with_transformers.py FOLDER THREADS float32|bfloat16`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch
import transformers
from worker import serve


class Rows:
    def __init__(self, path: str, threads: int, precision: str) -> None:
        torch.set_num_threads(threads)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype=getattr(torch, precision)
        )

    @torch.inference_mode()
    def join(self, prompts: Sequence[list[int]]) -> None:
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(each)) + each for each in prompts])
        self.mask = torch.tensor([[0] * (longest - len(each)) + [1] * len(each)
                                  for each in prompts])  # fmt: skip
        made = self.model(input_ids=ids, attention_mask=self.mask, logits_to_keep=1)
        self.caches, self.last = made.past_key_values, made.logits[:, -1].argmax(-1, keepdim=True)

    def read(self, prompt: list[int]) -> None:
        self.join([prompt])

    @torch.inference_mode()
    def step(self, count: int) -> None:
        for _ in range(count):
            self.mask = torch.cat([self.mask, self.mask[:, -1:]], 1)
            made = self.model(input_ids=self.last, attention_mask=self.mask,
                              past_key_values=self.caches)  # fmt: skip
            self.last = made.logits[:, -1].argmax(-1, keepdim=True)

    def leave(self) -> None:
        del self.caches


if __name__ == "__main__":
    serve(Rows(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
