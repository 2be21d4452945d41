"""Compiles the decoder of a language model over ragged rows with caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anydim.base import settings
from anydim.serving.language_models.decoder_caches import NEW, OPTIONAL, ROWS
from anydim.serving.language_models.opened import OpenedModel

if TYPE_CHECKING:  # a start that finds its program imports no compiler
    from anydim.api.model import Model


def compile_decoder(opened: OpenedModel, threads: int | str, precision: str | None) -> Model:
    """The compiled decoder; forgets what it read of the weights."""
    from anydim.api.cached_graph import over_rows
    from anydim.api.entry import compile
    from anydim.compiler.frontends.growing_caches import with_spare_capacity
    from anydim.serving.language_models.decoder_graph import build_decoder

    assert opened.weights is not None  # of a saved model
    graph = build_decoder(opened.spec, opened.weights, "decoder")
    spare = with_spare_capacity(graph)
    rows, _ = over_rows(spare, dict.fromkeys((NEW, *OPTIONAL.values()), ROWS))
    with settings.override(keep_programs=False):  # it is kept by the files of the model
        model = compile(rows, threads=threads, precision=precision)
    opened.weights.release()
    return model
