"""Serving: requests of any sizes are grouped into calls of models, within a known memory.

Input: compiled or loaded models, and requests from threads or an event loop; output: results with
the bits of a call alone. Needs numpy and the standard library. Requests of models with ragged dims,
and the costs of calls, are in `anydim.runtime.program.batches`, which `map` uses too.

    language_models/    decoders from files of Hugging Face and GGUF
    server/    models over REST and gRPC
    ray/       replicas and jobs on a Ray cluster

    batcher.py       Batcher for threads, AsyncBatcher for asyncio
    engine.py        queue, groups and threads of all models
    grouping.py      which requests share a call
    budget.py        bytes against the limit
    lanes.py         records of models, threads and calls
    requests.py      requests and the lines they wait in
    order.py         which requests are long beside others
    equal_form.py    requests of other models: equal shapes, or one by one
    string_form.py   requests of models with strings: one by one
    decoder.py       Decoder: streamed tokens; decoding.py runs their steps
    async_decoder.py  AsyncDecoder
    decoded.py       a sequence; drafts.py: drafts of its next tokens
    prefixes.py      caches of sequences that ended, for prompts that begin as these did
    sampling.py      functions that choose tokens; log_shares.py has their log-probabilities
    pieces.py        texts of tokens, one by one; tool_calls.py finds calls in them
    process_memory.py  what a process leaves of a limit
    measures.py      counters of a model; report.py makes metrics of them
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anydim.serving.async_decoder import AsyncDecoder
    from anydim.serving.batcher import AsyncBatcher, Batcher
    from anydim.serving.decoder import Decoder
    from anydim.serving.sampling import sampled

__all__ = ["AsyncBatcher", "AsyncDecoder", "Batcher", "Decoder", "sampled"]

_MODULES = {
    "AsyncBatcher": "anydim.serving.batcher", "AsyncDecoder": "anydim.serving.async_decoder",
    "Batcher": "anydim.serving.batcher", "Decoder": "anydim.serving.decoder",
    "sampled": "anydim.serving.sampling",
}  # fmt: skip
"""Modules are imported on first use of a name: a start of a language model needs no batcher."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value
