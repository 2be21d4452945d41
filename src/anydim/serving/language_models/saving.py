"""Writes saved language models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anydim.api.cached_rows import CachedRows
from anydim.base.errors import OptionError
from anydim.deploy.archive import Member, copy
from anydim.deploy.load import LoadedModel
from anydim.deploy.records import print_record
from anydim.serving.language_models.decoder_compile import compile_decoder
from anydim.serving.language_models.opened import OpenedModel
from anydim.serving.language_models.paths import LANGUAGE
from anydim.serving.language_models.saved_model import STEP, TOKENIZER, SavedLanguage

_OMITTED = ("facts", "key", "source", LANGUAGE, TOKENIZER)  # of a file that is copied


def save(
    opened: OpenedModel, rows: CachedRows, path: str, targets: Sequence[str], progress: Any,
    threads: int | str, precision: str | None,
) -> None:  # fmt: skip
    """Write a saved language model; see `LanguageModel.save`."""
    model: Any = rows.model
    facts, members = {STEP: str(rows.step_formula)}, language_members(opened)
    if isinstance(model, LoadedModel):
        if list(targets) == ["native"]:
            copy(model.container, path, _OMITTED, facts, members)
            return
        opened = opened.with_weights()
        if opened.weights is None:
            raise OptionError("a saved model has code for its own processors alone",
                              "save the file that it was made of")  # fmt: skip
        model = compile_decoder(opened, threads, precision)
    model._write(path, targets, progress, facts, members)


def language_members(opened: OpenedModel) -> list[Member]:
    """The members of a file that a language model adds to those of its decoder."""
    template = opened.template
    saved = SavedLanguage(
        opened.spec, opened.stop, opened.begin, opened.end, opened.pooling,
        None if template is None else template.text, {} if template is None else template.special,
    )  # fmt: skip
    made = [Member(LANGUAGE, print_record(saved))]
    if opened.tokenizer is not None:
        made.append(Member(TOKENIZER, opened.tokenizer.to_str().encode()))
    return made
