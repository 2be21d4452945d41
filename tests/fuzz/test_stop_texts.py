"""Promise: the text of a stream is the whole text up to the first stop text that is complete in it,
however tokens divide characters and stop texts; only what may still change is held back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

import pytest

pytest.importorskip("tokenizers")

from anydim.serving.pieces import Pieces
from tests.unit.serving.language_models.tiny_models import tokenizer

LETTERS = "aab é€𝄞👍🏽\u0301\ufffdß"
WORDS = ("a€", "€b", "ab é", "👍🏽", "the", " quick", "éé", "\u0301")
DRAWS = 1500


@cache
def tokens_of_words() -> Any:
    """Bytes, pairs of bytes, and whole words that begin and end within characters' bytes."""
    return tokenizer(WORDS)


def cut(text: str, stops: Sequence[str]) -> str:
    """The text before the stop text that is complete first when it is read letter by letter."""
    for end in range(len(text) + 1):
        begins = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if begins:
            return text[: min(begins)]
    return text


def drawn(seed: int) -> tuple[list[int], list[str]]:
    """Tokens, of a text or any, and stop texts, many of them parts of the text."""
    chance, own = Random(seed), tokens_of_words()
    if seed % 3:
        text = "".join(chance.choice((*LETTERS, *WORDS)) for _ in range(chance.randrange(14)))
        ids = own.encode(text).ids
    else:  # bytes that are no characters among them
        ids = [chance.randrange(4, own.get_vocab_size()) for _ in range(chance.randrange(20))]
    text, stops = own.decode(ids), []
    for _ in range(chance.randrange(4)):
        begin = chance.randrange(len(text) + 1)
        part = text[begin : begin + chance.randrange(1, 6)]
        other = "".join(chance.choice(LETTERS) for _ in range(chance.randrange(1, 4)))
        stops.append(chance.choice((part or other, other, part[:1] + other)))
    return ids, stops


def test_streams_are_the_whole_text_up_to_a_stop() -> None:
    for seed in range(DRAWS):
        ids, stops = drawn(seed)
        made, parts = Pieces(tokens_of_words(), stops), []
        for token in ids:
            parts.append(made.add(token))
            if made.is_stopped:
                break
        parts.append(made.end())
        whole = tokens_of_words().decode(ids)
        expected = cut(whole, stops)
        assert "".join(parts) == expected, f"seed {seed}: {whole!r} to {stops}"
        assert made.is_stopped == (expected != whole), f"seed {seed}: {whole!r} to {stops}"


def test_what_cannot_change_is_not_held_back() -> None:
    own = tokens_of_words()
    made = Pieces(own, ["é€x"])
    assert [made.add(token) for token in own.encode("aé").ids] == ["a", "", ""]
    assert "".join(map(made.add, own.encode("b").ids)) == "éb"
    (first, *rest) = own.encode("𝄞").ids
    assert rest and made.add(first) == "" and made.end() == "\ufffd"
