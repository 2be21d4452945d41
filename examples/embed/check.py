"""What `encode` says beside the compiled model: `python -m examples.embed.check ENCODE WEIGHTS`.

Words before ENCODE run it, such as `qemu-aarch64`. Raises AssertionError where a number differs by
more than 1e-5.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import anydim as ad
from examples.embed.export import DIMS
from examples.minilm.model import model_path
from examples.minilm.tokenizer import Tokenizer

SENTENCES = Path(__file__).parent.parent / "minilm" / "sentences.txt"
TOLERANCE = 1e-5


def check(command: Sequence[str], texts: Sequence[str], batch: int) -> float:
    """The largest difference between embeddings of the program and of the model."""
    tokenizer, model = Tokenizer(), ad.compile(model_path(), DIMS)
    rows = [tokenizer.one(text)["input_ids"][0] for text in texts]
    lines = "".join(f"{' '.join(map(str, row))}\n" for row in rows)
    done = subprocess.run(
        [*command, str(batch)], input=lines, capture_output=True, text=True, check=True, env={}
    )  # fmt: skip
    got = np.array([line.split() for line in done.stdout.splitlines()], np.float32)
    expected = [model(**tokenizer.one(text))["sentence_embedding"][0] for text in texts]
    assert got.shape == (len(texts), 384)
    return float(np.abs(got - np.array(expected)).max())


def main() -> None:
    """Sentences one by one, seven together, and one of the longest that there may be."""
    texts = SENTENCES.read_text("utf-8").splitlines()[:20]
    for chosen, batch in ((texts, 1), (texts, 7), (["word " * 600, "short"], 2)):
        difference = check(sys.argv[1:], chosen, batch)
        print(f"{len(chosen)} sentences, {batch} at a time: differ by {difference:.1e}")
        assert difference <= TOLERANCE


if __name__ == "__main__":
    main()
