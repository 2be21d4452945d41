"""What Triton's extensions of the protocol tell of a model: its configuration and statistics."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from anydim.serving.engine import Engine
from anydim.serving.server.repository import Loaded
from anydim.serving.server.state import tensors_of

_STRINGS = "BYTES"  # the datatype that a configuration calls STRING
_TYPES = (
    "INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP32", "FP64", "STRING", "BF16",
)  # fmt: skip
"""The types of a configuration, by their numbers over gRPC."""
_NS = 1_000_000_000  # in a second
_PARTS = ("compute_input", "compute_output", "cache_hit", "cache_miss")  # that are not measured


def tensor_config(row: Mapping[str, Any]) -> dict[str, Any]:
    """A tensor as a configuration describes it."""
    kind = "STRING" if row["datatype"] == _STRINGS else row["datatype"]
    return {"name": row["name"], "data_type": f"TYPE_{kind}", "dims": row["shape"]}


def configuration_of(loaded: Loaded) -> dict[str, Any]:
    """The configuration of a model; the first axis of tensors is one of the model."""
    inputs, outputs = tensors_of(loaded)
    return {
        "name": loaded.name, "platform": "anydim", "backend": "anydim", "max_batch_size": 0,
        "version_policy": {"specific": {"versions": [loaded.version]}},
        "input": list(map(tensor_config, inputs)), "output": list(map(tensor_config, outputs)),
    }  # fmt: skip


def tensor_messages(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tensors of a configuration, as messages have them: types are numbers."""
    return [
        {**row, "data_type": _TYPES.index(str(row["data_type"]).removeprefix("TYPE_"))}
        for row in rows
    ]


def statistics_of(loaded: Loaded, engine: Engine) -> dict[str, Any]:
    """Counts and times of a model since it is served. A call of several requests counts once in
    `execution_count`, and its seconds once in `compute_infer`."""
    with engine._lock:
        measures = engine.models[loaded.name].measures
        found = measures.document()
        ago = time.perf_counter() - measures.recent[-1][0] if measures.recent else None
    bad = found["failed"] + found["late"] + found["refused"] + found["rejected"]
    return {
        "name": loaded.name, "version": str(loaded.version),
        "last_inference": 0 if ago is None else int(1000 * (time.time() - ago)),
        "inference_count": found["rows"], "execution_count": found["calls"],
        "inference_stats": {
            "success": _duration(found["done"], found["latency"]["sum"]),
            "fail": _duration(bad, 0.0),
            "queue": _duration(found["done"], found["seconds"]["waiting"]),
            "compute_infer": _duration(found["done"], found["seconds"]["calls"]),
            **{part: _duration(0, 0.0) for part in _PARTS},
        },
        "batch_stats": [],
    }  # fmt: skip


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": int(seconds * _NS)}
