"""Promise: tokens and texts of the exported tokenizer are those of the library `tokenizers`, for
1,000 texts and for each split of texts; a part of tokenizer.json that it does not know is an error.
"""

from __future__ import annotations

import json
import random
import subprocess
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from anydim.serving.language_models.tokenizer_files import _SPLITS, gguf_tokenizer
from tests.unit.deploy.web.node import NODE
from tests.unit.serving.language_models.tiny_models import tokenizer as tiny

pytestmark = pytest.mark.skipif(NODE is None, reason="there is no node")
WORDS = [
    "the", "quick", "Don't", "WE'LL", "i'M", "they'ſ", "straße", "naïve", "Ελληνικά", "русский",
    "中文字符", "日本語の", "한국어", "العربية", "हिन्दी", "ไทย", "def f(x):", "    return x+1",
    "1234567", "3.14", "½²", "\t", "\n", "\r\n", "  ", "   \n\n  ", "\x85", "\u00a0", "\u3000",
    "\ufeff", "\u200b", "👍🏽", "👩‍👩‍👧", "e\u0301", "_x_", "--", "...", "?!",
    "<|end|>", "<|user|>", "<|end", "{\"a\": [1, 2]}", "http://a.b/c?d=e", "\x00\x7f", "K", "ﬁ",
]  # fmt: skip


@cache
def texts(count: int = 1000) -> list[str]:
    """Texts of words of many scripts, and of any characters."""
    draw = random.Random(0)
    made = ["", " ", "a", "\n", "x" * 3000]
    while len(made) < count:
        parts = [draw.choice(WORDS) for _ in range(draw.randrange(1, 12))]
        if len(made) % 5 == 0:  # characters that were assigned before Unicode 12
            codes = (draw.choice((0x20, 0x3FF, 0x2FFF, 0xD7FF)) for _ in range(8))
            parts += [chr(draw.randrange(1, most)) for most in codes]
        made.append(draw.choice(("", " ", "  ")).join(parts))
    return made


def answers(file: dict[str, Any], folder: Path, given: list[str], ids: Any) -> dict[str, Any]:
    script = folder / "tokenizer.mjs"
    source = files("anydim.deploy.web").joinpath("templates/language/tokenizer.js.in")
    script.write_text(source.read_text("utf-8"), "utf-8")
    assert NODE is not None
    done = subprocess.run(
        [NODE, Path(__file__).with_name("tokenizer.mjs")], capture_output=True, encoding="utf-8",
        input=json.dumps({"script": str(script), "file": file, "texts": given, "ids": ids}),
        check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def assert_equal(tokenizer: Tokenizer, folder: Path, given: list[str] | None = None) -> None:
    given = texts() if given is None else given
    whole = [tokenizer.encode(text).ids for text in given]
    plain = [tokenizer.encode(text, add_special_tokens=False).ids for text in given]
    draw, count = random.Random(1), tokenizer.get_vocab_size()
    ids = [*plain, *([draw.randrange(count + 1) for _ in range(9)] for _ in range(200))]
    found = answers(json.loads(tokenizer.to_str()), folder, given, ids)
    assert found == {
        "whole": whole, "plain": plain, "texts": [tokenizer.decode(each) for each in ids],
        "all": [tokenizer.decode(each, skip_special_tokens=False) for each in ids],
    }  # fmt: skip


def trained(pattern: str | None = None, digits: bool = False) -> Tokenizer:
    """Byte pairs of the texts, which are split by a pattern first."""
    parts = pre_tokenizers
    made = Tokenizer(models.BPE())
    first: list[Any] = [parts.Digits(individual_digits=True)] if digits else []
    if pattern:
        first.append(parts.Split(pattern, "isolated"))
    last = parts.ByteLevel(add_prefix_space=digits, use_regex=not pattern)
    made.pre_tokenizer = parts.Sequence([*first, last])
    made.decoder = decoders.ByteLevel()
    special = ["<|end|>", "<|user|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=special, show_progress=False,
        initial_alphabet=parts.ByteLevel.alphabet(),
    )  # fmt: skip
    made.train_from_iterator(texts(300), trainer)
    return made


@pytest.mark.parametrize("name", [n for n in _SPLITS if n not in ("phi-2", "olmo", "default")])
def test_splits_of_gguf_files(name: str, tmp_path: Path) -> None:
    made = trained(_SPLITS[name] and Regex(_SPLITS[name]))
    assert_equal(made, tmp_path)


def test_the_tokenizer_of_the_tiny_model(tmp_path: Path) -> None:
    assert_equal(tiny(["two words"]), tmp_path)


def test_templates_spaces_and_digits(tmp_path: Path) -> None:
    made = trained(digits=True)
    made.normalizer = normalizers.NFC()
    made.add_tokens([AddedToken("quick", lstrip=True, rstrip=True, normalized=True)])
    made.post_processor = processors.TemplateProcessing(
        "<|user|> $A <|end|>", None, [("<|end|>", 0), ("<|user|>", 1)]
    )  # fmt: skip
    assert_equal(made, tmp_path)


def test_pieces_of_sentencepiece(tmp_path: Path) -> None:
    """As a GGUF file has them: scores, bytes of other characters, and a space in front."""
    pieces = ["▁", "t", "h", "e", "q", "u", "i", "c", "k", "▁t", "he", "▁the", "ui", "qui", "ck",
              "▁qui", "▁quick", "▁▁", "re", "r", "n", "a", "x", "xx"]  # fmt: skip
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    fields = {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(n) for n in range(len(tokens))],
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * len(pieces)],
    }  # fmt: skip
    assert_equal(gguf_tokenizer(fields), tmp_path, texts()[:400])


@pytest.mark.parametrize("change, text", [
    ({"model": {"type": "Unigram"}}, "of the kind 'Unigram', known is BPE"),
    ({"pre_tokenizer": {"type": "Metaspace"}}, "the pre-tokenizer 'Metaspace', known are"),
    ({"normalizer": {"type": "Precompiled"}}, "the normalizer 'Precompiled'"),
    ({"decoder": {"type": "CTC"}}, "the decoder 'CTC'"),
    ({"truncation": {"max_length": 3}}, "has 'truncation'"),
    ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a++"}, "behavior": "Isolated",
                        "invert": False}}, "a part that is not JavaScript's"),
    ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[a&&[b]]"}, "behavior": "Isolated",
                        "invert": False}}, "a pattern with &&"),
    ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Contiguous",
                        "invert": False}}, "splits by 'Contiguous', known are"),
])  # fmt: skip
def test_unknown_parts_are_errors(change: dict[str, Any], text: str, tmp_path: Path) -> None:
    file = {**json.loads(tiny().to_str()), **change}
    assert text in answers(file, tmp_path, [], [])["error"]
