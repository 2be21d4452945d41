"""One family after the other: both engines in turns at every size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy
import onnxruntime

import anydim as ad
from anydim.cli.report.measure import time_call, time_interleaved
from bench.cliffs.family import Family, Sizes
from bench.cliffs.machine import Limits

ROUNDS = 5
LONGEST = 0.2  # seconds of one call: longer ones are measured once


@dataclass(frozen=True)
class Found:
    """Medians in microseconds; `ratio` is ours for one of the peer's; `limit` is the least time."""

    area: str
    family: str
    sizes: Sizes
    threads: int
    peer: str
    ours: float
    theirs: float
    ratio: float
    limit: float
    flops: int
    bytes: int

    @property
    def label(self) -> str:
        """The sizes as text."""
        return as_label(self.sizes)

    @property
    def share(self) -> float:
        """How much of the machine's limit the call reaches, with what a call costs."""
        return self.limit / self.ours


def as_label(sizes: Sizes) -> str:
    """Sizes as text."""
    return " ".join(f"{name}={size}" for name, size in sizes.items())


def touched(feeds: Mapping[str, Any], results: Mapping[str, Any]) -> int:
    """Bytes of all inputs and results."""
    return sum(numpy.asarray(array).nbytes for array in (*feeds.values(), *results.values()))


class NoPeer(Exception):
    """No engine to compare with has this operator for these types."""


def measured(family: Family, threads: int, limits: Limits, seconds: float) -> Iterator[Found]:
    """The family at each of its sizes, `seconds` for each."""
    source = family.model()
    name, theirs = peer(family, source, threads)
    model = ad.compile(source, threads=threads)
    for sizes in family.sizes:
        feeds = family.feeds(sizes)
        yield _found(family, model, name, theirs, sizes, feeds, threads, limits, seconds)


def peer(
    family: Family, source: bytes, threads: int
) -> tuple[str, Callable[[Mapping[str, numpy.ndarray]], Any]]:
    """onnxruntime where it takes the model, else numpy; raises NoPeer."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(source, options, ["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common class but this one
        if family.numpy is None:
            raise NoPeer(str(error)[:200]) from None
        function = family.numpy
        return "numpy", lambda feeds: function(*feeds.values())
    return "onnxruntime", lambda feeds: session.run(None, feeds)


def _found(
    family: Family, model: ad.Model, name: str, theirs: Callable[[Any], Any], sizes: Sizes,
    feeds: dict[str, numpy.ndarray], threads: int, limits: Limits, seconds: float,
) -> Found:  # fmt: skip
    calls = {"ours": lambda: model(**feeds), "theirs": lambda: theirs(feeds)}
    results = model(**feeds)
    slowest = max(time_call(call) for call in calls.values())
    rounds = 1 if slowest > LONGEST else 3 if slowest > seconds else ROUNDS
    timings = time_interleaved(calls, rounds=rounds, seconds=seconds)
    bytes = touched(feeds, results) + family.kept
    flops = _flops(model, sizes)
    steps = family.steps(sizes) if family.steps else 0.0
    least = limits.seconds(flops // threads, bytes, steps)
    return Found(
        area=family.area, family=family.name, sizes=dict(sizes), threads=threads, peer=name,
        ours=1e6 * timings.median("ours"), theirs=1e6 * timings.median("theirs"),
        ratio=timings.ratio("ours", "theirs"), limit=1e6 * least,
        flops=flops, bytes=bytes,
    )  # fmt: skip


def _flops(model: ad.Model, sizes: Sizes) -> int:
    """As the plan counts them; 0 where data decides what runs."""
    try:
        named = {name: size for name, size in sizes.items() if name in model.dims.names}
        return model.plan(**named).flops
    except ad.UserError:
        return 0
