"""Language models in saved files: a decoder as `Model.save` writes it, with two more members.

language.json    the decoder's form, tokens that begin and end texts, the chat template
tokenizer.json   the tokenizer, as the library `tokenizers` writes it

Loading needs numpy, `tokenizers` for texts and `jinja2` for chats: no compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy

from anydim.api.cached_rows import CachedRows
from anydim.base.errors import ArtefactError, OptionError, UserError
from anydim.base.records import dataclass
from anydim.base.user_values import whole_within
from anydim.deploy.container import Container
from anydim.deploy.load import load
from anydim.deploy.records import parse_record
from anydim.runtime.program.callable_program import CallableProgram
from anydim.serving.language_models.chat_template import ChatTemplate
from anydim.serving.language_models.decoder_caches import PICKS, ROWS, STATES, decoder_caches
from anydim.serving.language_models.decoder_spec import DecoderSpec
from anydim.serving.language_models.opened import LAST, MEAN, OpenedModel
from anydim.serving.language_models.paths import LANGUAGE
from anydim.serving.language_models.tokenizer_files import parse_tokenizer, read_tokenizer
from anydim.sizes import parse

TOKENIZER = "tokenizer.json"
STEP = "step"  # the bytes of a step as a formula, in the manifest
ROOM = 64  # elements of a new cache
_USUAL = {PICKS: numpy.array([-1]), STATES: numpy.empty(0, numpy.int64)}  # of optional inputs
LOGITS = "logits"


@dataclass(frozen=True)
class SavedLanguage:
    """What a file holds of an `OpenedModel` beside its decoder and its tokenizer."""

    spec: DecoderSpec
    stop: frozenset[int]
    begin: tuple[int, ...]
    end: tuple[int, ...] = ()
    pooling: str = LAST
    template: str | None = None
    special: Mapping[str, str] = field(default_factory=dict)


def open_saved(path: str, context: Any, quantize: Any, tokenizer: Any) -> OpenedModel:
    """Read a language model from a saved file; see `language_model` for arguments and errors."""
    if quantize is not None:
        raise OptionError(f"quantize has no effect on the saved model {path}",
                          "save the original with quantize=")  # fmt: skip
    container = Container(path)
    saved = parse_record(SavedLanguage, bytes(container.verify_member(LANGUAGE)))
    _check(container, saved)
    most = saved.spec.context
    chosen = most if context is None else whole_within(
        "context", context, 1, most, f"the model was saved for {most} tokens"
    )  # fmt: skip
    if tokenizer is not None:
        own = read_tokenizer(Path(tokenizer))
    elif TOKENIZER in container.parts:
        own = parse_tokenizer(bytes(container.verify_member(TOKENIZER)), path)
    else:
        own = None
    template = None if saved.template is None else ChatTemplate(saved.template, saved.special)
    return OpenedModel(
        Path(path).stem, replace(saved.spec, context=chosen), None, (path,), "", own, template,
        saved.stop, saved.begin, saved.end, saved.pooling,
    )  # fmt: skip


def load_rows(opened: OpenedModel, threads: int | str, precision: Any) -> CachedRows:
    """Load the decoder of a saved language model."""
    (path,) = opened.files
    if precision is not None:
        raise OptionError(f"precision has no effect on the saved model {path}",
                          "save the original with precision=")  # fmt: skip
    model = load(path, threads=threads)
    outputs = {each.name: each for each in model.executable.signature.outputs}
    try:
        if outputs[LOGITS].shape[-1] != opened.spec.vocabulary:
            raise LookupError(LOGITS)
        return rows_of(model, opened.spec)
    except (LookupError, AssertionError, StopIteration) as error:
        raise ArtefactError(f"{path}: its decoder is not that of its {LANGUAGE}: {error}") from None


def rows_of(model: CallableProgram, spec: DecoderSpec) -> CachedRows:
    """The rows of a decoder with caches. The formula of a step comes from the manifest of a file,
    whose records need not be read for it."""
    caches: Any = decoder_caches(spec)
    whole: Any = model
    made = CachedRows(whole, caches, ROWS, ROOM, None, _USUAL)
    text = getattr(model, "about", {}).get(STEP)
    if isinstance(text, str):
        try:
            vars(made)["step_formula"] = parse(text)
        except UserError as error:
            raise ArtefactError(f"the formula of a step is damaged: {error}") from None
    return made


def _check(container: Container, saved: SavedLanguage) -> None:
    """Raise ArtefactError for values that no writer writes."""
    spec = saved.spec
    tokens = (*saved.stop, *saved.begin, *saved.end)
    sizes = (spec.vocabulary, spec.width, spec.heads, spec.kept, spec.depth, spec.context)
    if min(sizes) < 1 or not spec.layers or saved.pooling not in (LAST, MEAN):
        raise container.fail(f"its {LANGUAGE} describes no decoder")
    if any(not 0 <= token < spec.vocabulary for token in tokens):
        raise container.fail(f"its {LANGUAGE} names tokens beyond the vocabulary")
