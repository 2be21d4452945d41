"""Text to the encoder's inputs: int64 arrays, one sentence or a batch padded to its longest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as WordPieces

from examples.minilm.model import package_folder

LONGEST = 512
"""Tokens of a text past this many are cut off: the model has no more positions."""

Feeds = dict[str, np.ndarray]


class Tokenizer:
    """The WordPiece tokenizer of MiniLM."""

    def __init__(self, path: Path | None = None, longest: int = LONGEST) -> None:
        self._pieces = WordPieces.from_file(str(path or package_folder() / "tokenizer.json"))
        self._pieces.no_padding()
        self._pieces.enable_truncation(max_length=longest)

    def one(self, text: str) -> Feeds:
        """The inputs of one text: `input_ids` and `attention_mask`, int64 [1, seq]."""
        return self.batch([text])

    def batch(self, texts: Sequence[str]) -> Feeds:
        """The inputs of several texts, padded with zeros to the longest: int64 [batch, seq]."""
        rows = [encoding.ids for encoding in self._pieces.encode_batch(list(texts))]
        shape = (len(rows), max(map(len, rows), default=1))
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
            mask[index, : len(row)] = 1
        return {"input_ids": ids, "attention_mask": mask}

    def length(self, text: str) -> int:
        """How many tokens a text becomes, the two special ones included."""
        return len(self._pieces.encode(text).ids)
