"""Language models in saved files: a decoder as `Model.save` writes it, with two more members.

language.json    the decoder's form, tokens that begin and end texts, the chat template
tokenizer.json   the tokenizer, as the library `tokenizers` writes it

Loading needs numpy, `tokenizers` for texts and `jinja2` for chats: no compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy

from anydim.api.cached_rows import CachedRows
from anydim.base.errors import ArtefactError, OptionError, UserError
from anydim.base.records import dataclass
from anydim.base.user_values import whole_within
from anydim.deploy.container import Container
from anydim.deploy.load import load
from anydim.deploy.records import parse_record
from anydim.runtime.frames import trim_system
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


def open_saved(
    path: str, context: Any, quantize: Any, tokenizer: Any, threads: int | str, precision: Any
) -> tuple[OpenedModel, CachedRows]:
    """Open a saved model and its decoder; see `language_model` for arguments and errors."""
    for name, given in (("quantize", quantize), ("precision", precision)):
        if given is not None:
            raise OptionError(f"{name} has no effect on the saved model {path}",
                              f"save the original with {name}=")  # fmt: skip
    place = None if tokenizer is None else Path(tokenizer)
    return read_language(
        Container(path), lambda: load(path, threads=threads), Path(path).stem, context, place
    )


def read_language(
    container: Container, load_decoder: Callable[[], CallableProgram], name: str,
    context: int | None = None, tokenizer: Path | None = None,
) -> tuple[OpenedModel, CachedRows]:  # fmt: skip
    """The language model of a file and its decoder; the tokenizer is read while the decoder is
    loaded. Raises UserError kinds."""
    saved = parse_record(SavedLanguage, bytes(container.verify_member(LANGUAGE)))
    _check(container, saved)
    most = saved.spec.context
    chosen = most if context is None else whole_within(
        "context", context, 1, most, f"the model was saved for {most} tokens"
    )  # fmt: skip
    own, model = _at_once(lambda: _tokenizer(container, tokenizer), load_decoder)
    trim_system()  # parsing a tokenizer takes twice its memory
    template = None if saved.template is None else ChatTemplate(saved.template, saved.special)
    opened = OpenedModel(
        name, replace(saved.spec, context=chosen), None, own, template, saved.stop, saved.begin,
        saved.end, saved.pooling,
    )  # fmt: skip
    outputs = {each.name: each for each in model.executable.signature.outputs}
    try:
        if outputs[LOGITS].shape[-1] != saved.spec.vocabulary:
            raise LookupError(LOGITS)
        return opened, rows_of(model, opened.spec)
    except (LookupError, AssertionError, StopIteration) as error:
        text = f"{container.path}: its decoder is not that of its {LANGUAGE}: {error}"
        raise ArtefactError(text) from None


def _tokenizer(container: Container, path: Path | None) -> Any:
    if path is not None:
        return read_tokenizer(path)
    if TOKENIZER not in container.parts:
        return None
    return parse_tokenizer(bytes(container.verify_member(TOKENIZER)), container.path)


def _at_once(first: Callable[[], Any], second: Callable[[], Any]) -> tuple[Any, Any]:
    """The results of two functions, the first one in a thread; raises the error of either."""
    found: list[tuple[Any, BaseException | None]] = []

    def work() -> None:
        try:
            found.append((first(), None))
        except BaseException as error:
            found.append((None, error))

    thread = Thread(target=work, name="anydim tokenizer")
    thread.start()
    try:
        other = second()
    finally:
        thread.join()
    result, error = found[0]
    if error is not None:
        raise error
    return result, other


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
