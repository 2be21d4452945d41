"""A trace: what calls did, and when, on each thread of the host and each queue of a device."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

from anydim.base.amounts import bytes_text
from anydim.base.errors import OptionError
from anydim.base.files import write_text
from anydim.base.records import dataclass
from anydim.base.sheet import Sheet, Shown, Table
from anydim.base.text import count_of, quote_list, time_text

CALL, LAUNCH, COPY, WAIT, MEMORY = KINDS = ("call", "launch", "copy", "wait", "memory")
HOST = "host"


@dataclass(frozen=True)
class Span:
    """An activity from `begin` to `end`, in ns since the first call began.

    `device` is the program's name of a device, '' the host; `lane` is a thread, or a queue of the
    device. `about` has the sizes, as texts, numbers, and mappings of them.
    """

    name: str
    kind: str  # one of KINDS
    device: str
    lane: str
    begin: int
    end: int
    about: Mapping[str, Any]

    @property
    def seconds(self) -> float:
        """Its duration."""
        return (self.end - self.begin) * 1e-9


@dataclass(frozen=True)
class Trace(Shown):
    """The activities of `calls` calls at these sizes.

    `devices` are the devices by the program's names. Devices in `told` report begin and end of
    launches and copies by their own clock. For others, unless all requests are `waited` for, a span
    ends when the device has accepted the request. If variants are `chosen`, other calls use them,
    and launches here are of the generic kernels.
    """

    name: str
    sizes: Mapping[str, int]
    threads: int
    calls: int
    devices: Mapping[str, str]
    spans: tuple[Span, ...]
    waited: bool = False
    chosen: bool = False
    told: tuple[str, ...] = ()

    def launches(self, device: str | None = None) -> int:
        """Return the number of launches, on one device or on all; threads of the host share a
        launch."""
        return sum(span.about.get("part", 1) == 1 for span in self.of(LAUNCH, device))

    def of(self, kind: str, device: str | None = None) -> tuple[Span, ...]:
        """Return the spans of a kind, on one device or on all."""
        return tuple(
            span for span in self.spans if span.kind == kind and device in (None, span.device)
        )

    # ---- for people ----------------------------------------------------------------------------

    def _sheet(self) -> Sheet:
        """Counts of activities on the host and on each device."""
        at = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        threads, calls = count_of(self.threads, "thread"), count_of(self.calls, "call")
        return Sheet(
            f"{self.name} at {at or 'its only size'}, {threads}: {calls}",
            tuple(("", each) for each in self._sentences()),
            (Table(_HEADERS, [self._row(device) for device in ("", *self.devices)]),),
        )

    __str__ = Shown.__str__
    __repr__ = Shown.__repr__

    def _sentences(self) -> Iterator[str]:
        spent = sum(span.seconds for span in self.of(CALL))
        yield f"{time_text(spent)}, with the clock of the trace"
        if self.told:
            yield f"times of {quote_list(self.told)} are those of its own clock"
        if self.devices.keys() - {*self.told} and not self.waited:
            yield "spans of a device end when it has accepted the request"
        if self.chosen:
            yield "a strategy chooses bodies for calls; launches are of the generic ones"

    def _row(self, device: str) -> tuple[str, ...]:
        where = f"{device}: {self.devices[device]}" if device else HOST
        launches, waits = self.of(LAUNCH, device), self.of(WAIT, device)
        copies = self.of(COPY, device)
        moved = sum(span.about["bytes"] for span in copies)
        return (
            where, str(self.launches(device)), _time(launches), str(len(copies)), bytes_text(moved),
            _time(copies), str(len(waits)), _time(waits),
        )  # fmt: skip

    # ---- for programs --------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """The trace as trace events, which Perfetto and chrome://tracing open.

        The host and each device are processes, their threads and queues are threads; times are
        microseconds. https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
        """
        about = {
            "model": self.name, "sizes": dict(self.sizes), "threads": self.threads,
            "calls": self.calls, "devices": dict(self.devices), "waited": self.waited,
        }  # fmt: skip
        return {
            "traceEvents": list(self._events()), "displayTimeUnit": "ns", "otherData": about
        }  # fmt: skip

    def json(self, indent: int | None = None) -> str:
        """Return the document as text."""
        return json.dumps(self.document(), indent=indent)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the document; raises OptionError for a path that cannot be written."""
        write(path, self.json())

    @property
    def lanes(self) -> tuple[tuple[str, str], ...]:
        """The devices with their threads and queues, in the order of devices and first use."""
        order = {device: number for number, device in enumerate(("", *self.devices))}
        found = dict.fromkeys((span.device, span.lane) for span in self.spans)
        return tuple(sorted(found, key=lambda lane: order[lane[0]]))

    def _events(self) -> Iterator[dict[str, Any]]:
        processes = {device: number for number, device in enumerate(("", *self.devices), 1)}
        for device, process in processes.items():
            name = f"{device}: {self.devices[device]}" if device else HOST
            yield _metadata("process_name", process, 0, {"name": name})
            yield _metadata("process_sort_index", process, 0, {"sort_index": process})
        threads: dict[tuple[str, str], int] = {}
        for device, lane in self.lanes:
            threads[device, lane] = thread = sum(known == device for known, _ in threads)
            yield _metadata("thread_name", processes[device], thread, {"name": lane})
            yield _metadata("thread_sort_index", processes[device], thread, {"sort_index": thread})
        for span in self.spans:
            yield {
                "name": span.name, "cat": span.kind, "ph": "X", "pid": processes[span.device],
                "tid": threads[span.device, span.lane], "ts": span.begin / 1000,
                "dur": (span.end - span.begin) / 1000, "args": dict(span.about),
            }  # fmt: skip


_HEADERS = ("", "launches", "time", "copies", "bytes", "time", "waits", "time")


def _time(spans: Sequence[Span]) -> str:
    return time_text(sum(span.seconds for span in spans)) if spans else "-"


def _metadata(name: str, process: int, thread: int, about: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": process, "tid": thread, "args": dict(about)}


def write(path: str | PathLike[str], text: str) -> None:
    """Write a text to a file; raises OptionError for an unwritable path."""
    try:
        write_text(path, text)
    except OSError as error:
        raise OptionError(f"{path}: cannot be written: {error.strerror}") from None
