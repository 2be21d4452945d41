"""What `anydim load` does: draws requests by a model's metadata, sends them, sums up."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

import numpy

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.base.text import quote_list
from anydim.serving.measures import percentiles
from anydim.serving.server.arrivals import (
    SentRequest,
    Target,
    draw,
    fetch,
    lengths_with,
    request_bytes,
    send_all,
    target_of,
)
from anydim.serving.server.latency_chart import chart
from anydim.serving.server.tensors import dtype_of

HEADERS = ["length", "requests", "p50", "p90", "p99", "longest"]


@dataclass(frozen=True)
class LoadPlan:
    """The arguments of a load; `lengths` are those of all requests, in order."""

    url: str
    model: str | None
    rate: float
    seconds: float
    lengths: list[int]
    outliers: tuple[float, int] | None
    integers: Mapping[str, tuple[int, int]]
    outputs: tuple[str, ...]
    seed: int
    timeout: float


def send_plan(plan: LoadPlan) -> list[SentRequest]:
    """Send the requests of a plan; raises OptionError without a server or a model."""
    return asyncio.run(_send_plan(plan))


async def _send_plan(plan: LoadPlan) -> list[SentRequest]:
    target = target_of(plan.url, plan.model or "")
    if plan.model is None:
        names = [each["id"] for each in (await fetch(target, "/v1/models"))["data"]]
        if len(names) != 1:
            raise OptionError(f"the server has {quote_list(names) or 'no model'}", "give --model")
        target = Target(target.host, target.port, names[0])
    about = await fetch(target, f"/v2/models/{quote(target.model)}")
    lengths = plan.lengths
    if plan.outliers is not None:
        lengths = lengths_with(lengths, *plan.outliers, plan.seed)
    requests = _requests(plan, target, about["inputs"], lengths)
    return await send_all(target, requests, plan.rate, plan.seed, timeout=plan.timeout)


def _requests(
    plan: LoadPlan, target: Target, inputs: Sequence[Mapping[str, object]], lengths: Sequence[int]
) -> list[tuple[int, bytes]]:
    chance = numpy.random.default_rng(plan.seed)
    datatypes = {str(row["name"]): str(row["datatype"]) for row in inputs}
    dtypes = {name: dtype_of(f"input '{name}'", kind) for name, kind in datatypes.items()}
    return [
        (length, request_bytes(target, draw(inputs, length, chance, plan.integers, dtypes),
                               datatypes, plan.outputs))
        for length in lengths
    ]  # fmt: skip


def summary(plan: LoadPlan, found: Sequence[SentRequest]) -> Iterator[str]:
    """Lines about all requests, with the first error of each status."""
    done = [each for each in found if each.status == 200]
    last = max((each.at + each.latency for each in found), default=0.0)
    yield f"{len(done)} of {len(found)} answered, {len(done) / max(last, 1e-9):.1f} per second"
    others = Counter(each.status for each in found if each.status != 200)
    for status, count in others.items():
        first = next(each for each in found if each.status == status)
        said = f", such as of length {first.length}: {_error(first.body)}" if first.body else ""
        yield f"{count} with " + (f"status {status}" if status else "no answer") + said


def _error(body: bytes) -> str:
    """Return the error message of a response, or its text if it is not JSON of the protocol."""
    text = body.decode(errors="replace")
    try:
        found = json.loads(text)
    except ValueError:
        return text
    error = found.get("error") if isinstance(found, dict) else None
    return error if isinstance(error, str) else text


def rows(found: Sequence[SentRequest]) -> list[tuple[str, ...]]:
    """Percentiles in milliseconds by length, and of all."""
    done = [each for each in found if each.status == 200]
    made, low = [], 0
    for high in (8, 16, 32, 64, 128, 256, 512, 1 << 60):
        part = [each.latency for each in done if low < each.length <= high]
        if part:
            made.append(_row(f"{low + 1} to {high}" if high < 1 << 60 else f"from {low + 1}", part))
        low = high
    return [*made, _row("all", [each.latency for each in done])]


def _row(name: str, seconds: Sequence[float]) -> tuple[str, ...]:
    found = percentiles(seconds)
    return (name, str(len(seconds)), *(f"{1e3 * value:.1f} ms" for value in found.values()))


def picture(plan: LoadPlan, found: Sequence[SentRequest]) -> str:
    """The picture of the answered requests; raises OptionError without any."""
    done = [each for each in found if each.status == 200]
    if not done:
        raise OptionError("no request was answered: there is nothing to draw")
    return chart(done, f"{len(done)} requests, {plan.rate:g} per second, {plan.url}")
