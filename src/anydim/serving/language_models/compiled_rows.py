"""The compiled decoder of a language model, kept on disk by the contents of its files.

A start that finds it reads no weight of the files but for their digest, and imports no compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy

from anydim.api.cached_rows import CachedRows
from anydim.api.program_cache import load_or_compile_at, path_of_parts
from anydim.base import settings
from anydim.base.errors import ArtefactError, ModelError, UserError
from anydim.base.read_files import FileRead
from anydim.serving.language_models.decoder_caches import (
    NEW,
    OPTIONAL,
    PICKS,
    ROWS,
    STATES,
    decoder_caches,
)
from anydim.serving.language_models.opening import OpenedModel
from anydim.sizes import parse

if TYPE_CHECKING:
    from anydim.api.model import Model

ROOM = 64  # elements of a new cache
_USUAL = {PICKS: numpy.array([-1]), STATES: numpy.empty(0, numpy.int64)}  # of optional inputs
_STEP = "step"  # the bytes of a step as a formula, among the facts of a stored program


def compiled_rows(
    opened: OpenedModel, threads: int | str, precision: str | None = None
) -> CachedRows:
    """Load or compile the decoder, over ragged rows with caches."""
    try:
        digests = [FileRead.of(path).digest for path in opened.files]
    except OSError as error:
        raise ModelError(f"a file of {opened.name} cannot be read: {error}") from None
    path = path_of_parts(["language model", opened.arguments, f"{threads} {precision}", *digests])
    caches: Any = decoder_caches(opened.spec)

    def rows(model: Any) -> CachedRows:
        return CachedRows(model, caches, ROWS, ROOM, None, _USUAL)

    model: Any = load_or_compile_at(
        path, lambda: _compile(opened, threads, precision),
        lambda model: {_STEP: str(rows(model).step_formula)},
    )  # fmt: skip
    made = rows(model)
    _know_step(made, getattr(model, "about", {}))
    return made


def _know_step(rows: CachedRows, about: Mapping[str, Any]) -> None:
    """Take the formula of a step from a stored program, whose records need not be read for it."""
    text = about.get(_STEP)
    if isinstance(text, str):
        try:
            vars(rows)["step_formula"] = parse(text)
        except UserError as error:
            raise ArtefactError(f"the formula of a step is damaged: {error}") from None


def _compile(opened: OpenedModel, threads: int | str, precision: str | None) -> Model:
    from anydim.api.cached_graph import over_rows
    from anydim.api.entry import compile
    from anydim.compiler.frontends.growing_caches import with_spare_capacity
    from anydim.serving.language_models.decoder_graph import build_decoder

    graph = build_decoder(opened.spec, opened.weights, "decoder")
    opened.weights.release()
    spare = with_spare_capacity(graph)
    rows, _ = over_rows(spare, dict.fromkeys((NEW, *OPTIONAL.values()), ROWS))
    with settings.override(keep_programs=False):  # it is kept by its files, below
        return compile(rows, threads=threads, precision=precision)
