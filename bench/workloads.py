"""The work that every engine does: MiniLM on request streams of natural lengths."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy

from examples.minilm.tokenizer import Tokenizer

Feeds = dict[str, numpy.ndarray]
SENTENCES = Path(__file__).parents[1] / "examples" / "minilm" / "sentences.txt"
BATCHES = (0, 1, 2, 7)
LENGTHS = (1, 2, 15, 16, 17, 128, 511, 512)
VOCABULARY = 30522


@dataclass(frozen=True)
class Stream:
    """Requests in the order in which they come."""

    name: str
    requests: tuple[Feeds, ...]

    @property
    def real_tokens(self) -> int:
        return sum(int(feeds["attention_mask"].sum()) for feeds in self.requests)

    @property
    def tokens(self) -> int:
        return sum(feeds["attention_mask"].size for feeds in self.requests)


def streams(sentences: int = 200) -> tuple[Stream, ...]:
    """Single sentences, and ragged batches of 8 and 32 padded to their longest."""
    texts = [line for line in SENTENCES.read_text("utf-8").splitlines() if line.strip()]
    order = numpy.random.default_rng(0).permutation(len(texts))
    tokenizer = Tokenizer()
    singles = tuple(tokenizer.one(texts[i]) for i in order[:sentences])
    made = [Stream("singles", singles)]
    for size in (8, 32):
        parts = [order[at : at + size] for at in range(0, len(order) - size + 1, size)]
        batches = tuple(tokenizer.batch([texts[i] for i in part]) for part in parts)
        made.append(Stream(f"batches of {size}", batches))
    return tuple(made)


def table_sizes(largest: int = 64 * 128) -> list[tuple[int, int]]:
    """The sizes (batch, seq) of the table, up to a number of tokens."""
    sizes = [(batch, seq) for batch in BATCHES for seq in LENGTHS]
    return [(b, s) for b, s in [*sizes, (8, 128), (64, 128)] if b * s <= largest]


def draw(batch: int, seq: int, seed: int = 0) -> Feeds:
    """Random tokens with ragged masks."""
    random = numpy.random.default_rng((seed, batch, seq))
    lengths = random.integers(1, seq + 1, batch)
    return {
        "input_ids": random.integers(0, VOCABULARY, (batch, seq)),
        "attention_mask": (numpy.arange(seq) < lengths[:, None]).astype(numpy.int64),
    }
