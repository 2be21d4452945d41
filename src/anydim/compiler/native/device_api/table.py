"""All kinds of devices with native entry points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anydim.compiler.kernels import ir
from anydim.compiler.native.device_api import cpu, cuda, opencl
from anydim.compiler.native.device_api.entry_points import Written, function, symbol
from anydim.runtime import slots

_KINDS: Mapping[str, Mapping[str, Written]] = {
    cpu.KIND: cpu.ENTRY_POINTS,
    opencl.KIND: opencl.ENTRY_POINTS,
    cuda.KIND: cuda.ENTRY_POINTS,
}
ENTRY_POINTS: Mapping[str, str] = {  # symbols by their roles
    slots.role(kind, verb): symbol(kind, verb) for kind, verbs in _KINDS.items() for verb in verbs
}


def entry_points_code() -> ir.Library:
    """Return the module."""
    made = lambda: tuple(_functions())  # noqa: E731
    return ir.Library("device verbs", made, identity="of every program with devices")


def _functions() -> Iterator[ir.Function]:
    yield from opencl.helpers()
    yield from cuda.helpers()
    for kind, verbs in _KINDS.items():
        for verb, write in verbs.items():
            yield function(kind, verb, write)
