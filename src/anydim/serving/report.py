"""What an engine measured, as plain values and as a text for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anydim.serving.engine import Engine


def report(engine: Engine) -> dict[str, Any]:
    """Memory, queue and models of an engine."""
    with engine._lock:
        budget = engine.budget
        waiting = sum(lane.lines.count for lane in engine.lanes)
        kept = sum(served.form.idle_bytes() for served in engine.models.values())
        return {
            "memory": {
                "limit": budget.limit, "requests": budget.held, "calls": budget.running,
                "kept": kept, "most": budget.most,
            },
            "queue": {"waiting": waiting, "limit": engine.queue,
                      "long": engine.lanes[1].lines.count},
            "running_calls": engine.groups,
            "models": {
                name: {
                    "waiting": served.waiting, "running": served.running,
                    "time_ratio": served.form.costs.ratio, **served.measures.document(),
                }
                for name, served in engine.models.items()
            },
        }  # fmt: skip


_COUNTERS = (
    ("done", "done"), ("failed", "failed"), ("late", "late"), ("refused", "refused"),
    ("rejected", "rejected"), ("cancelled", "cancelled"),
)  # fmt: skip


def prometheus(found: Mapping[str, Any], decoders: Mapping[str, Any] | None = None) -> str:
    """A report in the text format 0.0.4 of Prometheus; `decoders` are `metrics()` of these."""
    lines = [*_engine_lines(found), *_model_lines(found["models"])]
    return "\n".join((*lines, *_decoder_lines(decoders or {}))) + "\n"


def _decoder_lines(decoders: Mapping[str, Any]) -> Iterator[str]:
    for key, kind, what in (
        ("steps", "counter", "Steps."), ("tokens", "counter", "Tokens that were generated."),
        ("prompt_tokens", "counter", "Tokens of prompts that steps read."),
        ("reused_tokens", "counter", "Tokens of prompts that caches had already."),
        ("drafted_tokens", "counter", "Tokens of drafts that steps checked."),
        ("accepted_tokens", "counter", "Those of them that were chosen."),
        ("sequences", "counter", "Sequences that began."), ("seconds", "counter", "In steps."),
        ("paused", "counter", "Times that a sequence gave its row to others for a while."),
        ("rows", "gauge", "Sequences that run."), ("waiting", "gauge", "Sequences that wait."),
    ):  # fmt: skip
        named = f"decoder_{key}{'_total' if kind == 'counter' else ''}"
        if decoders:
            yield from _head(named, kind, what)
        for name, each in decoders.items():
            yield f'anydim_{named}{{model="{_text(name)}"}} {each[key]}'
    for key, what in (("first_token", "Seconds from a sequence's arrival to its first token."),
                      ("between_tokens", "Seconds between tokens of a sequence.")):  # fmt: skip
        if decoders:
            yield from _head(f"decoder_{key}_seconds", "histogram", what)
        for name, each in decoders.items():
            yield from _histogram(f"decoder_{key}_seconds", name, each[key])
    if decoders:
        yield from _head("decoder_bytes", "gauge", "Bytes of caches and of a step, and the limit.")
    for name, each in decoders.items():
        for use, bytes in each["bytes"].items():
            yield f'anydim_decoder_bytes{{model="{_text(name)}",use="{use}"}} {bytes}'


def _engine_lines(found: Mapping[str, Any]) -> Iterator[str]:
    memory = found["memory"]
    yield from _head("memory_bytes", "gauge", "Bytes by use.")
    for use in ("requests", "calls", "kept"):
        yield f'anydim_memory_bytes{{use="{use}"}} {memory[use]}'
    yield from _head("memory_limit_bytes", "gauge", "What all uses may take.")
    yield f"anydim_memory_limit_bytes {memory['limit']}"
    yield from _head("memory_peak_bytes", "gauge", "Most bytes of requests and calls so far.")
    yield f"anydim_memory_peak_bytes {memory['most']}"
    yield from _head("queue_requests", "gauge", "Requests that wait.")
    yield f"anydim_queue_requests {found['queue']['waiting']}"
    yield from _head("running_calls", "gauge", "Calls that run.")
    yield f"anydim_running_calls {found['running_calls']}"


def _model_lines(models: Mapping[str, Any]) -> Iterator[str]:
    yield from _head("requests_total", "counter", "Requests by outcome.")
    for name, each in models.items():
        for key, outcome in _COUNTERS:
            yield f'anydim_requests_total{{model="{_text(name)}",outcome="{outcome}"}} {each[key]}'
    for key, kind, what, value in (
        ("rows_total", "counter", "Rows that ran.", lambda each: each["rows"]),
        ("call_seconds_total", "counter", "Seconds in calls.", lambda e: e["seconds"]["calls"]),
        ("predicted_seconds_total", "counter", "Seconds predicted for calls.",
         lambda each: each["seconds"]["predicted"]),
        ("waiting_seconds_total", "counter", "Seconds that requests waited.",
         lambda each: each["seconds"]["waiting"]),
        ("call_peak_bytes", "gauge", "Most bytes of a call, by formula.",
         lambda each: each["bytes_of_a_call"]["most"]),
    ):  # fmt: skip
        yield from _head(key, kind, what)
        for name, each in models.items():
            yield f'anydim_{key}{{model="{_text(name)}"}} {value(each)}'
    for key, part, what in (
        ("request_seconds", "latency", "Seconds from arrival to result."),
        ("call_requests", "requests_of_a_call", "Requests of a call."),
    ):
        yield from _head(key, "histogram", what)
        for name, each in models.items():
            yield from _histogram(key, name, each[part])


def _histogram(key: str, model: str, found: Mapping[str, Any]) -> Iterator[str]:
    total, label = 0, f'model="{_text(model)}"'
    for bound, count in zip((*found["bounds"], "+Inf"), found["counts"]):
        total += count
        yield f'anydim_{key}_bucket{{{label},le="{bound}"}} {total}'
    yield f"anydim_{key}_sum{{{label}}} {found['sum']}"
    yield f"anydim_{key}_count{{{label}}} {total}"


def _head(key: str, kind: str, what: str) -> tuple[str, str]:
    return f"# HELP anydim_{key} {what}", f"# TYPE anydim_{key} {kind}"


def _text(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
