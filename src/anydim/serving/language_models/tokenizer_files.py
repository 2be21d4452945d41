"""Tokenizers of language models: tokenizer.json, or the vocabulary of a GGUF file.

The library is `tokenizers`. Splits of texts before byte pairs are those of llama.cpp
(llama-vocab.cpp) for the names in `tokenizer.ggml.pre`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from anydim.base.errors import ModelError
from anydim.base.missing_package import missing_module
from anydim.base.panics import failures
from anydim.base.read_files import open_regular
from anydim.base.text import quote_list
from anydim.base.user_values import short_repr
from anydim.serving.language_models.config_fields import Config

_CONTROL, _USER = 3, 4  # of tokens
_KINDS = "tokenizer.ggml.token_type"
_HINT = "give tokenizer=, the path of a tokenizer.json"
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLITS = {
    "gpt-2": "", "phi-2": "", "olmo": "", "default": "",
    "llama-bpe": _CONTRACTIONS + _WORDS % "{1,3}", "llama3": _CONTRACTIONS + _WORDS % "{1,3}",
    "qwen2": _CONTRACTIONS + _WORDS % "", "smollm": r"\p{N}",
}  # fmt: skip


def library() -> Any:
    """The package tokenizers. Raises MissingError."""
    try:
        return import_module("tokenizers")
    except ModuleNotFoundError as error:
        raise missing_module("a language model's tokenizer", error) from None


def read_tokenizer(path: Path) -> Any:
    """Read a tokenizer.json. Raises ModelError if it is none."""
    try:
        with open_regular(str(path)) as file:
            return parse_tokenizer(file.read(), str(path))
    except OSError as error:
        raise ModelError(f"'{path}' is no tokenizer: {error.strerror or error}") from None


def parse_tokenizer(text: bytes, where: str) -> Any:
    """The tokenizer of the contents of a tokenizer.json. Raises ModelError if it is none."""
    made = library().Tokenizer
    try:
        found = made.from_buffer(text)
        found.no_truncation()  # texts that are too long are refused, none is cut
        found.no_padding()
    except failures() as error:  # of the library
        raise ModelError(f"'{where}' is no tokenizer: {error}") from None
    return found


def encode_text(tokenizer: Any, text: str, special: bool) -> list[int]:
    """The tokens of a text; `special`: with those that the tokenizer adds.

    Raises ModelError if the tokenizer fails, as a damaged one does.
    """
    try:
        return list(tokenizer.encode(text, add_special_tokens=special).ids)
    except failures() as error:  # of the library
        raise ModelError(f"the tokenizer of the model refuses a text: {error}", _HINT) from None


def gguf_tokenizer(fields: Mapping[str, Any]) -> Any:
    """Build the tokenizer of a GGUF file. Raises ModelError for a kind that is not known."""
    kind = fields.get("tokenizer.ggml.model")
    tokens = fields.get("tokenizer.ggml.tokens")
    builders = {"gpt2": _byte_pairs, "llama": _pieces}
    if not isinstance(kind, str) or kind not in builders or not tokens:
        raise ModelError(f"the file has a tokenizer of kind {short_repr(kind)}, known are "
                         f"{quote_list(builders)}", _HINT)  # fmt: skip
    kinds = Config(fields, "the metadata of the file").items(_KINDS, int, "a list of integers")
    if kinds is not None and len(kinds) != len(tokens):
        raise ModelError(f"the file has {len(kinds)} kinds of {len(tokens)} tokens", _HINT)
    try:
        made = builders[kind](tokens, fields)
        _add_special(made, tokens, kinds or ())
    except ModelError:
        raise
    except failures() as error:  # of the library, for vocabularies that are damaged
        raise ModelError(f"the tokenizer of the file is damaged: {error}", _HINT) from None
    return made


def _byte_pairs(tokens: Sequence[str], fields: Mapping[str, Any]) -> Any:
    """Byte pairs over bytes (GPT-2)."""
    lib = library()
    name = fields.get("tokenizer.ggml.pre", "default")
    if not isinstance(name, str) or name not in _SPLITS:
        hint = f"known are {quote_list(_SPLITS)}; or {_HINT}"
        raise ModelError(f"texts are split as {short_repr(name)} before byte pairs", hint)
    merges = [tuple(pair.split(" ", 1)) for pair in fields["tokenizer.ggml.merges"]]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    made = lib.Tokenizer(lib.models.BPE(vocabulary, merges, ignore_merges=name.startswith("llama")))
    parts = lib.pre_tokenizers
    own = _SPLITS[name]
    first = [parts.Split(lib.Regex(own), "isolated")] if own else []
    usual = name in ("smollm",) or not own  # the split of GPT-2 applies as well
    made.pre_tokenizer = parts.Sequence(
        [*first, parts.ByteLevel(add_prefix_space=False, use_regex=usual)]
    )
    made.decoder = lib.decoders.ByteLevel()
    return made


def _pieces(tokens: Sequence[str], fields: Mapping[str, Any]) -> Any:
    """Pieces of SentencePiece with scores, as byte pairs: better scores are merged first."""
    lib = library()
    vocabulary = {token: number for number, token in enumerate(tokens)}
    scores = dict(zip(tokens, fields["tokenizer.ggml.scores"]))
    merges = []
    for piece in tokens:
        cuts = (
            (piece[:at], piece[at:]) for at in range(1, len(piece))
            if piece[:at] in vocabulary and piece[at:] in vocabulary
        )  # fmt: skip
        merges += [
            (-scores[piece], vocabulary[left], vocabulary[right], left, right)
            for left, right in cuts
        ]
    pairs = [(left, right) for *_, left, right in sorted(merges)]
    model = lib.models.BPE(vocabulary, pairs, fuse_unk=True, byte_fallback=True, unk_token=tokens[
        int(fields.get("tokenizer.ggml.unknown_token_id", 0))
    ])  # fmt: skip
    made = lib.Tokenizer(model)
    prefix = bool(fields.get("tokenizer.ggml.add_space_prefix", True))
    normal = lib.normalizers
    steps = [normal.Prepend("▁")] if prefix else []
    made.normalizer = normal.Sequence([*steps, normal.Replace(" ", "▁")])
    back = lib.decoders
    undo = [back.Strip(" ", 1, 0)] if prefix else []
    made.decoder = back.Sequence([back.Replace("▁", " "), back.ByteFallback(), back.Fuse(), *undo])
    return made


def _add_special(made: Any, tokens: Sequence[str], kinds: Sequence[int]) -> None:
    """Tokens that texts are never split within: control tokens, and those that users defined."""
    added = library().AddedToken
    control = [added(t, special=True, normalized=False) for t, kind in zip(tokens, kinds)
               if kind == _CONTROL]  # fmt: skip
    own = [added(t, special=False, normalized=False) for t, kind in zip(tokens, kinds)
           if kind == _USER]  # fmt: skip
    made.add_special_tokens(control)
    made.add_tokens(own)
