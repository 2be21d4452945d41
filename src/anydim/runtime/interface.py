"""The interface between a program's native code and its caller: slots, symbols, failures.

Slots are counted in the block of 8-byte words that is the memory of a call. `layout.py` defines the
slots of a straight program, `context.py` the header of a region program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from anydim.base.errors import ArtefactError
from anydim.base.records import dataclass
from anydim.runtime import slots
from anydim.runtime.delegated import DelegatedPart
from anydim.runtime.failures import Failure
from anydim.runtime.layout import POINTERS, SETUP
from anydim.runtime.signature import Signature

_MOST_WORDS = 1 << 24
_STRAIGHT = {"bind", "run", "invoke", "worker", "stop"}
_REGIONS = {"run", "invoke", "clear", "trim", "leave", "worker", "stop"}
_DEVICES = _REGIONS | {"device_clear", "device_trim", "device_leave"}
Named = tuple[tuple[int, tuple[str, ...]], ...]


@dataclass(frozen=True)
class OnDevice:
    """The resources of a program on the device named `name`; `home` is its first slot.

    `constants`, `tables` and `entries` are slots of the call's memory, as in `Interface`: addresses
    of constants on the device, and of tables in host memory.
    """

    name: str
    home: int
    constants: tuple[tuple[int, str], ...]
    tables: Named
    entries: Named

    @property
    def held(self) -> tuple[str, ...]:
        """The constants with an address on the device, each once."""
        tables = (name for _, names in self.tables for name in names)
        return tuple(dict.fromkeys((*(name for _, name in self.constants), *tables)))

    @property
    def symbols(self) -> tuple[str, ...]:
        """The kernels, each once."""
        return tuple(dict.fromkeys(name for _, names in self.entries for name in names))


@dataclass(frozen=True)
class SetupSlots:
    """Slots of values that depend on the sizes of some dims.

    `block` is the first slot of a setup (`layout.py`); `dims` are the slots of the dims' sizes.
    """

    block: int
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Interface:
    """The slots of a call, the symbols of its code, and the meaning of failure numbers.

    `functions` are the symbols of host code by role: 'worker' and 'stop' of the pool, 'run',
    'invoke', and 'bind' for straight programs, otherwise 'clear', 'trim' and 'leave'. `inputs` is
    the first slot of the inputs' addresses, `shapes` that of their sizes; `results` are, per
    output, the slots of its address, its block (0: the caller's memory) and its first size.

    A slot in `constants` holds the address of a constant, one in `tables` the address of a table of
    constants' addresses, one in `entries` the address of a table of code: the kernel of each site.
    Entries may change during calls; every value that they ever hold is valid. `numbers` are slots
    with initial values. `failures` are those of `bind` (`bound` many), then those of `run`; the
    last one of a straight program is a failed allocation. `requested_dims` are dims that no input
    determines, with the slots for their sizes. `updates` are pairs of an output and an input that
    may share memory. `devices` are the devices besides the host; with them there are functions
    'device_clear', 'device_trim' and 'device_leave', and possibly native entry points per kind of
    device ('launch of cpu'). `handed` are the parts that engines run. `setups` are the values that
    a straight program caches by size; a setup may read earlier ones. `resident` are inputs and
    results that may stay in the memory of a device, with the device and the slot that says so.
    """

    functions: Mapping[str, str]
    words: int
    inputs: int
    shapes: int
    results: tuple[tuple[int, int, int], ...]
    constants: tuple[tuple[int, str], ...]
    tables: Named
    entries: Named
    numbers: tuple[tuple[int, int], ...]
    failures: tuple[Failure, ...]
    bound: int = 0
    requested_dims: tuple[tuple[str, int], ...] = ()
    updates: tuple[tuple[str, str], ...] = ()
    devices: tuple[OnDevice, ...] = ()
    handed: tuple[DelegatedPart, ...] = ()
    setups: tuple[SetupSlots, ...] = ()
    resident: tuple[tuple[str, str, int], ...] = ()

    def verify(self, signature: Signature) -> None:
        """Raise ArtefactError if this cannot be the interface of a program with this signature.

        Whether the code conforms to it is not verifiable here.
        """
        ranks = [spec.rank for spec in signature.inputs]
        straight = set(self.functions) == _STRAIGHT
        expected = _DEVICES if self.devices else _REGIONS
        known = {name for name in self.functions if not (self.devices and slots.is_role(name))}
        problems = {
            "functions": not straight and known != expected,
            "devices": not all(
                self._inside(device.home, slots.WORDS)
                and all(map(self._inside, _address_slots(device)))
                for device in self.devices
            ) or (straight and bool(self.devices)),
            "handed": not all(
                self._inside(part.function) and self._inside(part.first, part.words)
                and all(count >= 0 for _, count in part.vectors)
                and all(port.rank >= 0 for port in (*part.inputs, *part.outputs))
                for part in self.handed
            ) or (straight and bool(self.handed)),
            "setups": not all(
                self._inside(each.block - 1, 1 + len(SETUP)) and all(map(self._inside, each.dims))
                for each in self.setups
            ) or (not straight and bool(self.setups)),
            "words": not POINTERS <= self.words <= _MOST_WORDS,
            "inputs": not self._inside(self.inputs, len(ranks)),
            "shapes": not self._inside(self.shapes, sum(ranks)),
            "results": len(self.results) != len(signature.outputs) or not all(
                self._inside(data) and self._inside(owner) and self._inside(first, spec.rank)
                for (data, owner, first), spec in zip(self.results, signature.outputs)
            ),
            "tables": not all(self._inside(word) for word in self._filled()),
            "failures": not all(failure.fits(self.words) for failure in self.failures),
            "requested_dims": not all(
                self._inside(word) and name in signature.box.names
                for name, word in self.requested_dims
            ),
            "updates": not all(
                {made} <= {spec.name for spec in signature.outputs}
                and {read} <= {spec.name for spec in signature.inputs}
                for made, read in self.updates
            ),
            "resident": not all(
                self._inside(word) and device in {each.name for each in self.devices}
                for _, device, word in self.resident
            ),
            "bound": not 0 <= self.bound <= len(self.failures) - straight,
        }  # fmt: skip
        wrong = [name for name, found in problems.items() if found]
        if wrong:
            raise ArtefactError(f"the interface of {signature.name} has wrong {wrong[0]}")

    def _inside(self, first: int, count: int = 1) -> bool:
        return first >= 0 and first + count <= self.words

    def _filled(self) -> Iterator[int]:
        yield from _address_slots(self)
        yield from (row[0] for row in self.numbers)

    @property
    def held(self) -> tuple[str, ...]:
        """The constants with an address in host memory, each once."""
        tables = (name for _, names in self.tables for name in names)
        return tuple(dict.fromkeys((*(name for _, name in self.constants), *tables)))

    def verbs(self, address: Callable[[str], int]) -> dict[str, int]:
        """Return the native entry points of devices by role; `address` resolves symbols."""
        return {name: address(s) for name, s in self.functions.items() if slots.is_role(name)}

    @property
    def symbols(self) -> tuple[str, ...]:
        """All symbols that a call may start at, each once."""
        kernels = (name for _, names in self.entries for name in names)
        return tuple(dict.fromkeys((*self.functions.values(), *kernels)))


def _address_slots(words: Interface | OnDevice) -> Iterator[int]:
    """Yield the slots that hold addresses of constants and tables."""
    for rows in (words.constants, words.tables, words.entries):
        yield from (row[0] for row in rows)
