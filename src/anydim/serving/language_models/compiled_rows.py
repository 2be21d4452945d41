"""The compiled decoder of a language model, kept on disk by the contents of its files.

A start that finds it reads no weight of the files but for their digest, and imports no compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anydim.api.cached_rows import CachedRows
from anydim.api.program_cache import load_or_compile_at, path_of_parts
from anydim.base import settings
from anydim.base.errors import ModelError
from anydim.base.read_files import FileRead
from anydim.serving.language_models.decoder_caches import NEW, OPTIONAL, ROWS
from anydim.serving.language_models.opened import OpenedModel
from anydim.serving.language_models.saved_model import STEP, rows_of

if TYPE_CHECKING:
    from anydim.api.model import Model


def compiled_rows(
    opened: OpenedModel, threads: int | str, precision: str | None = None
) -> CachedRows:
    """Load or compile the decoder, over ragged rows with caches."""
    try:
        digests = [FileRead.of(path).digest for path in opened.files]
    except OSError as error:
        raise ModelError(f"a file of {opened.name} cannot be read: {error}") from None
    path = path_of_parts(["language model", opened.arguments, f"{threads} {precision}", *digests])
    model = load_or_compile_at(
        path, lambda: compile_decoder(opened, threads, precision),
        lambda model: {STEP: str(rows_of(model, opened.spec).step_formula)}, reload=True,
    )  # fmt: skip
    return rows_of(model, opened.spec)


def compile_decoder(opened: OpenedModel, threads: int | str, precision: str | None) -> Model:
    from anydim.api.cached_graph import over_rows
    from anydim.api.entry import compile
    from anydim.compiler.frontends.growing_caches import with_spare_capacity
    from anydim.serving.language_models.decoder_graph import build_decoder

    assert opened.weights is not None  # of a saved model
    graph = build_decoder(opened.spec, opened.weights, "decoder")
    opened.weights.release()
    spare = with_spare_capacity(graph)
    rows, _ = over_rows(spare, dict.fromkeys((NEW, *OPTIONAL.values()), ROWS))
    with settings.override(keep_programs=False):  # it is kept by its files, below
        return compile(rows, threads=threads, precision=precision)
