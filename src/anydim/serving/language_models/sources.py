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
from anydim.base.user_values import path_of, short_repr
from anydim.deploy.container import is_saved
from anydim.serving.language_models.decoder_spec import CACHE_TYPES
from anydim.serving.language_models.opened import OpenedModel
from anydim.serving.language_models.paths import is_saved_language
from anydim.serving.language_models.saved_model import load_rows, open_saved

_HINT = "give the path of a folder, a .gguf file or a saved language model"
_FOLDER = "anydim.serving.language_models"


def open_model(
    path: Any, context: int | None, quantize: str | None, tokenizer: Any = None,
    cache: str | None = None,
) -> OpenedModel:  # fmt: skip
    """Read a language model; see `language_model` for arguments and errors."""
    place = Path(path_of("path", path, _HINT))
    if tokenizer is not None:
        tokenizer = Path(path_of("tokenizer", tokenizer, "the path of a tokenizer.json, or None"))
    if not (cache is None or isinstance(cache, str)) or cache not in (None, *CACHE_TYPES):
        raise OptionError(f"cache is {short_repr(cache)}", quote_list(CACHE_TYPES))
    if not os.path.exists(place):  # a path that is too long does not exist
        raise ModelError(f"there is no '{place}'", _HINT)
    if is_saved_language(place):
        saved = open_saved(str(place), context, quantize, tokenizer)
        if cache not in (None, saved.spec.cache):
            raise OptionError(f"caches of '{place}' are {saved.spec.cache}, not {cache}",
                              "save the model again")  # fmt: skip
        return saved
    if is_saved(place):
        raise ModelError(f"'{place}' is a saved model, and no language model",
                         "open it with ad.load")  # fmt: skip
    made: OpenedModel = compiler_module("opening").open_files(
        place, context, quantize, tokenizer, cache or CACHE_TYPES[0]
    )
    return made


def decoder_rows(opened: OpenedModel, threads: int | str, precision: str | None) -> CachedRows:
    """The decoder, loaded or compiled."""
    if opened.weights is None:
        return load_rows(opened, threads, precision)
    made: CachedRows = compiler_module("compiled_rows").compiled_rows(opened, threads, precision)
    return made


def compiler_module(name: str) -> Any:
    """A module that anydim-runtime lacks."""
    try:
        return import_module(f"{_FOLDER}.{name}")
    except ModuleNotFoundError as error:
        raise missing_module("a language model that is not saved", error) from error
