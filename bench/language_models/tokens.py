"""Greedy tokens beside transformers and llama.cpp: how many of 200 answers are equal.

    python -m bench.language_models.tokens MODEL.gguf --folder FOLDER --peer llama_cpp=PYTHON

transformers reads the same weights in float32 from `--folder`. Of answers that differ, the least
difference of the two largest logits at the first other token says how close the choice was.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy

import anydim as ad

THINGS = [
    "rain",
    "a cat",
    "the moon",
    "bread",
    "iron",
    "a bridge",
    "music",
    "sleep",
    "a river",
    "glass",
    "salt",
    "the sun",
    "a clock",
    "paper",
    "snow",
    "a bee",
    "gold",
    "wind",
    "a map",
    "tea",
]
FORMS = [
    "What is {}?",
    "Write a sentence about {}.",
    "Why do people need {}?",
    "Describe {} to a child.",
    "Is {} older than writing?",
    "Name three words that rhyme with {}.",
    "Translate '{}' to French.",
    "How would you draw {}?",
    "Tell a joke about {}.",
    "Who invented {}?",
]
PROMPTS = [form.format(thing) for thing in THINGS for form in FORMS]


def of_anydim(lm: Any, prompts: list[list[int]], count: int) -> list[list[int]]:
    """Tokens of all prompts, in company."""
    streams = [lm.generate(prompt, count) for prompt in prompts]
    for stream in streams:
        stream.read()
    return [stream.tokens for stream in streams]


def of_transformers(folder: str, prompts: list[list[int]], answers: list[list[int]]) -> list[Any]:
    """For each answer None where transformers chooses the same, else its margin."""
    import torch
    import transformers

    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    found: list[Any] = []
    with torch.inference_mode():
        for prompt, answer in zip(prompts, answers):  # greedy answers are equal if each choice is
            ids = torch.tensor([prompt + answer[:-1]])
            logits = model(ids).logits[0, len(prompt) - 1 :].numpy()
            others = numpy.flatnonzero(logits.argmax(-1) != answer)
            first = logits[others[0]] if others.size else None
            found.append(None if first is None else float(first.max() - first[answer[others[0]]]))
    return found


def of_peer(peer: str, model: str, prompts: list[list[int]], count: int) -> list[list[int]]:
    """Tokens of a peer, prompt by prompt."""
    name, python = peer.split("=", 1)
    script = Path(__file__).parent / f"with_{name}.py"
    process = subprocess.Popen([python, script, model, "1"], stdin=-1, stdout=-1, text=True)
    assert process.stdin is not None and process.stdout is not None
    made = []
    process.stdout.readline()

    def ask(**command: Any) -> dict[str, Any]:
        print(json.dumps(command), file=process.stdin, flush=True)
        return dict(json.loads(process.stdout.readline()))  # type: ignore[union-attr]

    for prompt in prompts:
        tokens = ask(join=[prompt])["last"]
        for _ in range(count - 1):
            tokens += ask(steps=1)["last"]
        ask(leave=True)
        made.append(tokens)
    process.communicate()
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--folder", default="")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--precisions", default="exact,int8")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    given = parser.parse_args()
    made, prompts = {}, []
    for precision in given.precisions.split(","):
        own = None if precision == "exact" else precision
        with ad.language_model(given.model, threads=1, precision=own) as lm:
            prompts = [lm.chat_tokens([{"role": "user", "content": text}])
                       for text in PROMPTS[: given.prompts]]  # fmt: skip
            made[f"anydim:{precision}"] = of_anydim(lm, prompts, given.tokens)
    first = next(iter(made.values()))
    for peer in given.peer:
        made[peer.split("=")[0]] = of_peer(peer, given.model, prompts, given.tokens)
    for name, answers in made.items():
        equal = sum(own[: len(other)] == other for own, other in zip(answers, first))
        print(f"{name}: {equal} of {len(first)} as {next(iter(made))}", flush=True)
    if given.folder:
        margins = [m for m in of_transformers(given.folder, prompts, first) if m is not None]
        print(f"transformers: {len(first) - len(margins)} of {len(first)}, margins {margins}")


if __name__ == "__main__":
    sys.exit(main())
