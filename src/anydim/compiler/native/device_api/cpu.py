"""Entry points of the processor as a device: calls kernels and copies bytes synchronously.

Threads call the same device concurrently: no memory that they write is shared.
"""

from __future__ import annotations

from collections.abc import Mapping

from anydim.compiler.native.body import parameter
from anydim.compiler.native.device_api.entry_points import EntryPoint, Written, count_across
from anydim.runtime import slots
from anydim.runtime.devices import context
from anydim.runtime.devices.cpu import KIND

__all__ = ["ENTRY_POINTS", "KIND"]


def _launch(body: EntryPoint) -> None:
    parallel = parameter("parallel")
    with body.when(parallel > 0):
        body.call(parameter("entry"), parameter("arguments"), 0, parallel, parameter("scratch"))
    body.give(0)


def _copy(body: EntryPoint) -> None:
    given = map(parameter, ("target", "source", "bytes"))
    body.call(body.word(context.COPY), *given)
    body.give(0)


def _fill(body: EntryPoint) -> None:
    given = map(parameter, ("target", "value", "bytes"))
    body.call(body.word(context.FILL_BYTES), *given)
    body.give(0)


def _record(body: EntryPoint) -> None:
    body.give(1)


def _wait(body: EntryPoint) -> None:
    body.give(0)


def _copy_from(body: EntryPoint) -> None:
    with body.when(body.load(parameter("origin"), context.FAMILY).differs(context.AT_ONCE)):
        body.give(slots.BY_HOST)
    count_across(body)
    _copy(body)


ENTRY_POINTS: Mapping[str, Written] = {
    "launch": _launch, "copy_in": _copy, "copy_out": _copy, "copy_within": _copy, "fill": _fill,
    "record": _record, "wait": _wait, "copy_from": _copy_from,
}  # fmt: skip
