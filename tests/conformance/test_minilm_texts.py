"""The texts of the MiniLM example are what the figures say they are: many lengths, natural ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from examples.minilm import model as minilm
from examples.minilm.tokenizer import Tokenizer

FOLDER = Path(minilm.__file__).parent


def lines(name: str) -> list[str]:
    return (FOLDER / name).read_text(encoding="utf-8").splitlines()


def test_lengths_are_log_normal_around_22_tokens():
    tokenizer = Tokenizer()
    lengths = np.array([tokenizer.length(text) for text in lines("sentences.txt")])
    assert 350 <= len(lengths) <= 450
    assert 20 <= np.median(lengths) <= 24
    assert 0.6 <= np.log(lengths).std() <= 0.8
    assert lengths.min() >= 5 and 128 < lengths.max() <= 256
    assert len(set(lengths)) >= 58


def test_texts_differ_and_are_not_blank():
    for name in ("sentences.txt", "queries.txt"):
        texts = lines(name)
        assert all(text == text.strip() != "" for text in texts)
        assert len(set(texts)) == len(texts)
