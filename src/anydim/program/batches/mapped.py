"""`map` of a model: checks its arguments and runs its items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from anydim.base.amounts import bytes_of
from anydim.base.errors import InputError
from anydim.base.user_values import whole_within
from anydim.program.batches.mapping import Job, Windows, teller
from anydim.sizes import LARGEST


def mapped(
    mapper: Windows, inputs: Iterable[Any], memory: int | str, batch: str | None,
    pad: Mapping[str, Any] | None, outputs: Sequence[str] | None, window: int, check: bool,
    progress: Any,
) -> list[dict[str, Any]] | Iterator[dict[str, Any]]:  # fmt: skip
    """Return the results of items in order: a list for a list or array, otherwise an iterator."""
    if isinstance(inputs, (Mapping, str, bytes)) or not isinstance(inputs, Iterable):
        raise InputError(
            f"map expects a list or an iterator of items, got {type(inputs).__name__}",
            "for a single item, call the model",
        )
    window = whole_within("window", window, 1, LARGEST, "give a number of items, 1 or more")
    layout = mapper.layout(batch, pad, outputs, check)
    job = Job(layout, min(bytes_of(memory), LARGEST), window, check, teller(progress))
    if hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__"):
        return list(mapper.results(list(inputs), job))
    return mapper.results(inputs, job)
