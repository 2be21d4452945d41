"""What a program needs to be called beside its code and its constants, as records.

Code is spoken of by the numbers of its entries, constants by their names, so that a record says the
same in every process: `start` puts addresses and arrays in their places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy

from anydim.runtime.checks import Check
from anydim.runtime.executable import Executable, Native
from anydim.runtime.failures import Failure
from anydim.runtime.layout import Layout
from anydim.runtime.positions import Position
from anydim.runtime.region import RegionExecutable, RegionNative, RegionTables
from anydim.runtime.signature import Signature
from anydim.runtime.threads import PoolCode


@dataclass(frozen=True)
class StraightStart:
    """Of a program that runs straight through.

    Entries: bind, run, the pool's worker and stop, then kernels. `launches` has the entry of each
    launch; `constants` are names.
    """

    signature: Signature
    layout: Layout
    checks: tuple[Check, ...]
    positions: tuple[Position, ...]
    constants: tuple[str, ...]
    launches: tuple[int, ...]
    threads: int


@dataclass(frozen=True)
class RegionStart:
    """Of a program of regions; the words are those of `runtime/region.py: RegionTables`.

    Entries: run, clear, trim, leave, the pool's worker and stop, then kernels. `launches` are the
    entries of a segment's launches, `tables` the names of its constants, each with the word that
    wants the address of such a table; `constants` go with the word that wants their address.
    """

    signature: Signature
    words: int
    inputs: int
    shapes: int
    results: tuple[tuple[int, int, int], ...]
    constants: tuple[tuple[int, str], ...]
    tables: tuple[tuple[int, tuple[str, ...]], ...]
    launches: tuple[tuple[int, tuple[int, ...]], ...]
    numbers: tuple[tuple[int, int], ...]
    failures: tuple[Failure, ...]
    threads: int


Start = StraightStart | RegionStart
Address = Callable[[int], int]  # where an entry begins
FIXED_ENTRIES: Mapping[type, int] = {StraightStart: 4, RegionStart: 6}  # those before the kernels


def start(
    record: Start, arrays: Mapping[str, numpy.ndarray], address: Address, keep: object
) -> Executable | RegionExecutable:
    """What can be called; `keep` holds the code in memory."""
    if isinstance(record, StraightStart):
        return _straight(record, arrays, address, keep)
    return _regions(record, arrays, address, keep)


def _straight(
    record: StraightStart, arrays: Mapping[str, numpy.ndarray], address: Address, keep: object
) -> Executable:
    native = Native(
        bind=address(0),
        run=address(1),
        worker=address(2),
        stop=address(3),
        entries=tuple(map(address, record.launches)),
        keep=keep,
    )
    constants = [arrays[name] for name in record.constants]
    return Executable(
        record.signature, native, record.layout, record.checks, constants, record.threads,
        record.positions,
    )  # fmt: skip


def _regions(
    record: RegionStart, arrays: Mapping[str, numpy.ndarray], address: Address, keep: object
) -> RegionExecutable:
    pool = PoolCode(address(4), address(5), keep)
    native = RegionNative(address(0), address(1), address(2), address(3), pool)
    tables = RegionTables(
        words=record.words,
        inputs=record.inputs,
        shapes=record.shapes,
        results=record.results,
        constants=tuple((word, arrays[name]) for word, name in record.constants),
        tables=tuple((word, tuple(arrays[n] for n in names)) for word, names in record.tables),
        entries=tuple((word, tuple(map(address, sites))) for word, sites in record.launches),
        numbers=record.numbers,
    )
    return RegionExecutable(record.signature, native, tables, record.failures, record.threads)
