"""Files of a language model as its parts: decoder, weights, tokenizer, chat template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from anydim.base.errors import ModelError
from anydim.base.records import dataclass
from anydim.base.user_values import whole_within
from anydim.serving.language_models.chat_template import ChatTemplate
from anydim.serving.language_models.config_fields import Config, read_bytes, read_object
from anydim.serving.language_models.decoder_spec import QUANTIZED, DecoderSpec
from anydim.serving.language_models.gguf_config import gguf_context, gguf_spec
from anydim.serving.language_models.hugging_face import (
    architecture_of,
    context_of,
    read_config,
)
from anydim.serving.language_models.opened import LAST, MEAN, OpenedModel
from anydim.serving.language_models.packed_weights import Packing, packing_of
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
_GGML = "tokenizer.ggml."
_GGUF_MEAN = 1  # llama_pooling_type of llama.cpp
CONTEXT = 8192  # most tokens of a sequence by default, where the model allows more


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
    packing: Packing | None = None


def open_files(
    place: Path, context: int | None, quantize: str | None, tokenizer: Path | None, cache: str
) -> OpenedModel:
    """Read a folder or a GGUF file; see `language_model` for arguments and errors."""
    read = _read_folder if place.is_dir() else _read_gguf
    files = read(place, context, tokenizer)
    files = replace(files, spec=replace(files.spec, cache=cache))
    weights = DecoderWeights(
        files.weights, files.names, files.spec, QUANTIZED.get(quantize or "", 0)
    )
    known = range(files.spec.vocabulary)
    stop = files.stop.intersection(known)  # others cannot be chosen
    unknown = [token for token in (*files.begin, *files.end) if token not in known]
    if unknown:
        raise ModelError(f"texts begin or end with token {unknown[0]} of {len(known)}",
                         "the file is damaged")  # fmt: skip
    name = place.stem if place.is_file() else place.resolve().name
    template = None
    if files.template is not None:
        template = ChatTemplate(files.template, files.special)
        template.check()
    return OpenedModel(
        name, files.spec, weights, files.tokenizer, template, stop, files.begin, files.end,
        files.pooling,
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
        packing=packing,
    )  # fmt: skip


def _json(path: Path) -> dict[str, Any]:
    """An object of JSON; empty where there is no such file."""
    return read_object(path) if path.is_file() else {}


def _folder_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return read_bytes(path).decode("utf-8", "replace")
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
    path = folder / "1_Pooling" / "config.json"
    return MEAN if Config(_json(path), str(path)).flag(_MEAN_MODE, default=False) else LAST


def _folder_stop(folder: Path, config: Config) -> frozenset[int]:
    path = folder / "generation_config.json"
    own = Config(_json(path), str(path))
    config = config if own.get("eos_token_id") is None else own
    found = config.get("eos_token_id")
    if found is None or type(found) is int:
        return frozenset() if found is None else frozenset((found,))
    return frozenset(config.items("eos_token_id", int, "an integer or a list of them") or ())


# ---- GGUF ----------------------------------------------------------------------------------------


def _read_gguf(path: Path, context: int | None, tokenizer: Path | None) -> _Files:
    fields, file = open_gguf(path)
    chosen = _chosen_context(context, gguf_context(fields))
    spec, names = gguf_spec(fields, file, chosen)
    own = gguf_tokenizer(fields) if tokenizer is None else read_tokenizer(tokenizer)
    config = Config(fields, str(path))
    tokens = config.items(f"{_GGML}tokens", str, "a list of texts") or []
    ids = {kind: _token(config, kind) for kind in ("bos", "eos", "eot")}
    special = {
        f"{kind}_token": "".join(
            tokens[number] for number in ids[kind] if 0 <= number < len(tokens)
        )
        for kind in ("bos", "eos")
    }
    adds, ends = (config.flag(f"{_GGML}add_{kind}_token", default=False) for kind in ("bos", "eos"))
    kind = config.text("general.architecture")
    pooling = config.index(f"{kind}.pooling_type", default=0)
    return _Files(
        spec, names, file, own, config.text("tokenizer.chat_template", default="") or None,
        special, frozenset((*ids["eos"], *ids["eot"])), ids["bos"] if adds else (),
        ids["eos"] if ends else (), MEAN if pooling == _GGUF_MEAN else LAST,
    )  # fmt: skip


def _token(config: Config, kind: str) -> tuple[int, ...]:
    """A token that has a name; empty where there is none."""
    name = f"{_GGML}{kind}_token_id"
    return () if config.get(name) is None else (config.index(name),)
