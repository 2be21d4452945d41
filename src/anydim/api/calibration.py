"""Measures limits between versions on this machine: where one version becomes faster than another.

A probe (`calibration_probes.py`) forces two versions of a kernel with the same bits at growing
sizes, timed alternately. The limit is the value in its range with which all sizes together take
the least time. Others keep their defaults (`kernels/limits.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from anydim.api.calibration_probes import Arrays, Probe, probes
from anydim.base.cache_folder import cache_folder, keep, limits_path
from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.compiler.kernels.limits import DEFAULTS, RANGES, Limits
from anydim.compiler.targets.targets import target
from anydim.runtime.program.callable_program import CallableProgram

_ROUNDS = 12  # timings of each version at each size, of which the least counts
_WORTH = 0.05  # share of time that a limit other than the default must save
_CALL_SECONDS = 2e-4  # of repeated calls, for each timing
_SHORT = 16  # values of a range that are all tried


@dataclass(frozen=True)
class Measured:
    """A limit, its default, and the share of time over the probe's sizes that it saves."""

    name: str
    usual: int
    found: int
    saved: float


def calibrate_machine(
    tell: Callable[[int, int, str], object] | None = None,
) -> tuple[Measured, ...]:
    """Measure the limits of this machine, and keep them in the cache folder.

    Later compilations use them. Raises OptionError if the cache is off.
    """
    path, folder = limits_path(), cache_folder()
    if path is None or folder is None:
        raise OptionError("calibrate keeps limits in the cache folder, and the cache is off")
    every, found = probes(target().machine), list[Measured]()
    for number, probe in enumerate(every):
        if tell is not None:
            tell(number, len(every), probe.limit)
        found.append(choose_limit(probe, times_of(probe)))
    limits = Limits(**{each.name: each.found for each in found})
    keep(folder, path, lambda name: _write(name, limits))
    return tuple(found)


def _write(path: str, limits: Limits) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(str(limits))


def choose_limit(probe: Probe, times: Sequence[tuple[float, ...]]) -> Measured:
    """The limit of a probe with the least time, if it saves enough, else the default."""
    usual = int(getattr(DEFAULTS, probe.limit))
    found = min(values_of(probe.limit), key=lambda value: probe.cost(times, value))
    saved = 1 - probe.cost(times, found) / probe.cost(times, usual)
    if saved < _WORTH:
        return Measured(probe.limit, usual, usual, 0.0)
    return Measured(probe.limit, usual, found, saved)


def values_of(limit: str) -> list[int]:
    """The values of a limit that are tried: all of a short range, powers of two of a long one."""
    low, high = RANGES[limit]
    if high - low <= _SHORT:
        return [*range(low, high + 1)]
    return [1 << bits for bits in range(low.bit_length() - 1, high.bit_length())]


def times_of(probe: Probe) -> list[tuple[float, ...]]:
    """The least seconds of a call in each way at each size of a probe, timed alternately."""
    models, found = tuple(probe.models()), list[tuple[float, ...]]()
    for size in probe.sizes:
        given = probe.arrays(size)
        once = min(_seconds(models[0], given, 1) for _ in range(3))
        often = max(1, min(200, round(_CALL_SECONDS / max(once, 1e-7))))
        rounds = [[_seconds(model, given, often) for model in models] for _ in range(_ROUNDS)]
        found.append(tuple(map(min, zip(*rounds))))
    return found


def _seconds(model: CallableProgram, given: Arrays, often: int) -> float:
    begin = time.perf_counter()
    for _ in range(often):
        model(**given)
    return (time.perf_counter() - begin) / often
