"""Exports language models: decoders with what programs without Python need to generate text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from anydim.api.cached_rows import CachedRows
from anydim.base.errors import OptionError
from anydim.base.user_values import path_of, text_of
from anydim.deploy.export.language import Language, step_of_one
from anydim.deploy.exporting import export_program
from anydim.serving.language_models.chat_form import as_json, chat_form
from anydim.serving.language_models.decoder_caches import (
    CAPACITY,
    NEW,
    OPTIONAL,
    PAST,
    PICKS,
    ROWS,
    STATES,
)
from anydim.serving.language_models.decoder_compile import compile_decoder
from anydim.serving.language_models.decoder_spec import CODES
from anydim.serving.language_models.opened import OpenedModel
from anydim.serving.language_models.saved_model import LOGITS, ROOM, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_IDS = "ids"


def export(
    opened: OpenedModel, folder: str | os.PathLike[str], name: str, target: str, code: str,
    threads: int | str | None, precision: str | None,
) -> Language:  # fmt: skip
    """Write the folder of a language model; see `LanguageModel.export` for arguments and errors."""
    opened = opened.with_weights()
    if opened.weights is None:
        raise OptionError("a saved language model cannot be exported",
                          "export the file that it was made of")  # fmt: skip
    if opened.spec.cache == CODES:
        raise OptionError("caches of int8 cannot be exported", "give cache='float16'")
    path, called = path_of("folder", folder), text_of("name", name)
    model = compile_decoder(opened, 1, precision)
    language = language_of(opened, rows_of(model, opened.spec))
    made, wanted = model._for_export(target, code, threads)
    export_program(path, called, made, wanted, language)
    return language


def language_of(opened: OpenedModel, rows: CachedRows) -> Language:
    """The record of a decoder for programs without Python."""
    spec, table = opened.spec, rows._packing.table
    tokenizer = opened.tokenizer
    chat, problem = _chat(opened)
    return Language(
        opened.name, spec.vocabulary, spec.context, ROOM, spec.kept, spec.depth,
        rows._slabs.kinds[0].dtype.itemsize, rows.caches,
        (_IDS, PICKS, STATES), LOGITS, (NEW, OPTIONAL[PICKS], OPTIONAL[STATES], PAST, CAPACITY),
        table, step_of_one(rows.step_formula, table, ROWS), tuple(sorted(opened.stop)),
        opened.begin,
        None if tokenizer is None else tokenizer.to_str().encode(), chat, problem,
    )  # fmt: skip


def _chat(opened: OpenedModel) -> tuple[Mapping[str, Any] | None, str]:
    """The chat template as a table, or why there is none."""
    if opened.template is None:
        return None, "the model has no chat template"
    form = chat_form(opened.template)
    if form is None:
        return None, "the chat template writes more than fixed texts between messages"
    return as_json(form), ""
