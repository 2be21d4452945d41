"""Where a language model comes from: files of others, which are compiled, or a saved model."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from anydim.api.cached_rows import CachedRows
from anydim.base.errors import ModelError, OptionError
from anydim.base.missing_package import missing_module
from anydim.base.text import quote_list
from anydim.base.user_values import is_auto, path_of, short_repr, text_of
from anydim.deploy.container import is_saved
from anydim.serving.language_models.decoder_spec import CACHE_TYPES, QUANTIZED
from anydim.serving.language_models.opened import OpenedModel
from anydim.serving.language_models.paths import is_saved_language
from anydim.serving.language_models.saved_model import open_saved

_HINT = "give the path of a folder, a .gguf file or a saved language model"
_FOLDER = "anydim.serving.language_models"


def open_decoder(
    path: Any, context: int | None, quantize: str | None, tokenizer: Any, cache: str | None,
    threads: int | str, precision: str | None,
) -> tuple[OpenedModel, CachedRows]:  # fmt: skip
    """A language model and its decoder; see `language_model` for arguments and errors."""
    place, tokenizer = _known_place(path, quantize, tokenizer, cache)
    if is_saved_language(place):
        opened, rows = open_saved(str(place), context, quantize, tokenizer, threads, precision)
        if cache not in (None, opened.spec.cache):
            raise OptionError(f"caches of '{place}' are {opened.spec.cache}, not {cache}",
                              "save the model again")  # fmt: skip
        return opened, rows
    if precision is not None:
        text_of("precision", precision, "give a name, or leave it out")
    if is_auto(precision):
        hint = "name one, as 'bfloat16' or 'int8', or leave it out"
        raise OptionError(
            "precision is 'auto', but a language model has no inputs to measure", hint
        )
    module = compiler_module("compiled_rows")
    source = module.Source(
        place, context, quantize, tokenizer, cache or CACHE_TYPES[0], threads, precision
    )
    made: tuple[OpenedModel, CachedRows] = module.open_compiled(source)
    return made


def open_model(path: Any, context: int | None, quantize: str | None) -> OpenedModel:
    """A language model without a decoder; see `language_model` for arguments and errors."""
    place, _ = _known_place(path, quantize, None, None)
    if is_saved_language(place):
        return open_saved(str(place), context, quantize, None, 1, None)[0]
    source = compiler_module("compiled_rows").Source(
        place, context, quantize, None, CACHE_TYPES[0], 1, None
    )
    opened: OpenedModel = source.open_files()
    return opened


def _known_place(
    path: Any, quantize: Any, tokenizer: Any, cache: Any
) -> tuple[Path, Path | None]:  # fmt: skip
    """The path of a language model and that of its tokenizer, if there is one."""
    place = Path(path_of("path", path, _HINT))
    if tokenizer is not None:
        tokenizer = Path(path_of("tokenizer", tokenizer, "the path of a tokenizer.json, or None"))
    if not (cache is None or isinstance(cache, str)) or cache not in (None, *CACHE_TYPES):
        raise OptionError(f"cache is {short_repr(cache)}", quote_list(CACHE_TYPES))
    if not (quantize is None or isinstance(quantize, str)) or quantize not in (None, *QUANTIZED):
        raise OptionError(f"quantize is {short_repr(quantize)}", "give 'q8', 'q4' or None")
    if not os.path.exists(place):  # a path that is too long does not exist
        raise ModelError(f"there is no '{place}'", _HINT)
    if is_saved(place) and not is_saved_language(place):
        raise ModelError(f"'{place}' is a saved model, and no language model",
                         "open it with ad.load")  # fmt: skip
    return place, tokenizer


def compiler_module(name: str) -> Any:
    """A module that anydim-runtime lacks."""
    try:
        return import_module(f"{_FOLDER}.{name}")
    except ModuleNotFoundError as error:
        raise missing_module("a language model that is not saved", error) from error
