"""Files of a language model as its parts: decoder, weights, tokenizer, chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from anydim.base.errors import ModelError, OptionError
from anydim.base.records import dataclass
from anydim.base.user_values import short_repr, whole_within
from anydim.serving.language_models.chat_template import ChatTemplate
from anydim.serving.language_models.decoder_spec import DecoderSpec
from anydim.serving.language_models.gguf_config import gguf_context, gguf_spec
from anydim.serving.language_models.hugging_face import (
    Config,
    architecture_of,
    context_of,
    read_config,
)
from anydim.serving.language_models.opened import LAST, MEAN, OpenedModel
from anydim.serving.language_models.packed_weights import packing_of
from anydim.serving.language_models.tensor_names import FileNames
from anydim.serving.language_models.tokenizer_files import gguf_tokenizer, read_tokenizer
from anydim.serving.language_models.weight_files import (
    DecoderWeights,
    TensorFile,
    open_gguf,
    open_safetensors,
)
from anydim.sizes import LARGEST

_MEAN_MODE = "pooling_mode_mean_tokens"
_GGUF_MEAN = 1  # llama_pooling_type of llama.cpp
CONTEXT = 8192  # most tokens of a sequence by default, where the model allows more
BITS: Mapping[str | None, int] = {None: 0, "q8": 8, "q4": 4}


@dataclass(frozen=True)
class _Files:
    """What the readers of both kinds of files find."""

    spec: DecoderSpec
    names: FileNames
    weights: TensorFile
    tokenizer: Any
    template: str | None
    special: Mapping[str, str]
    stop: frozenset[int]
    begin: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    pooling: str = LAST


def open_files(
    place: Path, context: int | None, quantize: str | None, tokenizer: Path | None, cache: str
) -> OpenedModel:
    """Read a folder or a GGUF file; see `language_model` for arguments and errors."""
    if not (quantize is None or isinstance(quantize, str)) or quantize not in BITS:
        raise OptionError(f"quantize is {short_repr(quantize)}", "give 'q8', 'q4' or None")
    read = _read_folder if place.is_dir() else _read_gguf
    files = read(place, context, tokenizer)
    files = replace(files, spec=replace(files.spec, cache=cache))
    weights = DecoderWeights(files.weights, files.names, files.spec, BITS[quantize])
    name = place.stem if place.is_file() else place.resolve().name
    read_from = [place] if place.is_file() else sorted(place.glob("*.safetensors"))
    template = None if files.template is None else ChatTemplate(files.template, files.special)
    return OpenedModel(
        name, files.spec, weights, tuple(map(str, read_from)), f"{files.spec.text} {quantize}",
        files.tokenizer, template, files.stop, files.begin, files.end, files.pooling,
    )  # fmt: skip


def _chosen_context(context: Any, declared: int) -> int:
    if context is None:
        return min(CONTEXT, declared)
    hint = f"the model declares {declared} tokens"
    return whole_within("context", context, 1, min(declared, LARGEST), hint)


# ---- folders -------------------------------------------------------------------------------------


def _read_folder(folder: Path, context: int | None, tokenizer: Path | None) -> _Files:
    config = read_config(folder)
    row = architecture_of(config)
    packed = config.get("quantization_config")
    packing = None if packed is None else packing_of(packed)
    spec = row.spec(config, _chosen_context(context, context_of(config)))
    path = tokenizer or folder / "tokenizer.json"
    own = read_tokenizer(path) if path.is_file() or tokenizer is not None else None
    settings = _json(folder / "tokenizer_config.json")
    return _Files(
        spec, row.names, open_safetensors(folder, packing), own, _folder_template(folder, settings),
        _special(settings), _folder_stop(folder, config), pooling=_folder_pooling(folder),
    )  # fmt: skip


def _json(path: Path) -> dict[str, Any]:
    """An object of JSON; empty where there is no such file."""
    try:
        found = json.loads(path.read_bytes()) if path.is_file() else {}
    except ValueError as error:
        raise ModelError(f"'{path}' is not JSON: {error}") from None
    return found if isinstance(found, dict) else {}


def _folder_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text("utf-8", "replace")
    found = settings.get("chat_template")
    if isinstance(found, list):  # several, by name
        named = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _special(settings: Mapping[str, Any]) -> dict[str, str]:
    """The texts of special tokens, by their names in templates."""
    made = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        found = settings.get(name)
        found = found.get("content") if isinstance(found, dict) else found
        made[name] = found if isinstance(found, str) else ""
    return made


def _folder_pooling(folder: Path) -> str:
    """The pooling that sentence-transformers states; the last token without one."""
    return MEAN if _json(folder / "1_Pooling" / "config.json").get(_MEAN_MODE) is True else LAST


def _folder_stop(folder: Path, config: Config) -> frozenset[int]:
    found = _json(folder / "generation_config.json").get("eos_token_id")
    found = config.get("eos_token_id") if found is None else found
    many = found if isinstance(found, list) else [found]
    return frozenset(token for token in many if type(token) is int)


# ---- GGUF ----------------------------------------------------------------------------------------


def _read_gguf(path: Path, context: int | None, tokenizer: Path | None) -> _Files:
    fields, file = open_gguf(path)
    chosen = _chosen_context(context, gguf_context(fields))
    spec, names = gguf_spec(fields, file, chosen)
    own = gguf_tokenizer(fields) if tokenizer is None else read_tokenizer(tokenizer)
    stop = {fields.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot")}
    begin = fields.get("tokenizer.ggml.bos_token_id")
    adds = fields.get("tokenizer.ggml.add_bos_token", False)
    tokens = fields.get("tokenizer.ggml.tokens", ())
    special = {}
    for kind in ("bos", "eos"):
        number = fields.get(f"tokenizer.ggml.{kind}_token_id")
        known = type(number) is int and 0 <= number < len(tokens)
        special[f"{kind}_token"] = str(tokens[number]) if known else ""
    template = fields.get("tokenizer.chat_template")
    end = fields.get("tokenizer.ggml.eos_token_id")
    ends = fields.get("tokenizer.ggml.add_eos_token", False)
    pooling = fields.get(f"{fields.get('general.architecture')}.pooling_type")
    return _Files(
        spec, names, file, own, template if isinstance(template, str) else None, special,
        frozenset(int(token) for token in stop if isinstance(token, int)),
        (int(begin),) if adds and isinstance(begin, int) else (),
        (int(end),) if ends and isinstance(end, int) else (),
        MEAN if pooling == _GGUF_MEAN else LAST,
    )  # fmt: skip
