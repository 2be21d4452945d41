"""What native code of a program asks of its caller: words of a call's memory, names, failures.

Words are counted in the block of 8-byte words that is the memory of a call. `layout.py` says what
stands where in that of a straight program, `context.py` what begins that of regions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from anydim.base.errors import ArtefactError
from anydim.base.records import dataclass
from anydim.runtime import slots
from anydim.runtime.delegated import HandedPart
from anydim.runtime.failures import Failure
from anydim.runtime.layout import POINTERS, SETUP
from anydim.runtime.signature import Signature

_MOST_WORDS = 1 << 24
_STRAIGHT = {"bind", "run", "invoke", "worker", "stop"}
_REGIONS = {"run", "invoke", "clear", "trim", "leave", "worker", "stop"}
_DEVICES = _REGIONS | {"device_clear", "device_trim"}
Named = tuple[tuple[int, tuple[str, ...]], ...]


@dataclass(frozen=True)
class OnDevice:
    """What a program has on the device that it calls `name`; `home` is the first of its words.

    `constants`, `tables` and `entries` are words of the call's memory, as in `Interface`: addresses
    of constants on the device, and of tables, which lie on the host.
    """

    name: str
    home: int
    constants: tuple[tuple[int, str], ...]
    tables: Named
    entries: Named

    @property
    def held(self) -> tuple[str, ...]:
        """The constants that have an address on the device, each once."""
        tables = (name for _, names in self.tables for name in names)
        return tuple(dict.fromkeys((*(name for _, name in self.constants), *tables)))

    @property
    def symbols(self) -> tuple[str, ...]:
        """The kernels, each once."""
        return tuple(dict.fromkeys(name for _, names in self.entries for name in names))


@dataclass(frozen=True)
class SetupPlace:
    """Words of a call about what is kept for the sizes of some dims.

    `block` is the first of those that `layout.py` has for a setup; `dims` have the sizes.
    """

    block: int
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Interface:
    """Where a call finds things, and what the numbers mean that come back.

    `functions` are the symbols of host code by what they do: 'worker' and 'stop' of the pool,
    'run', 'invoke' and, where the program is straight, 'bind'; else 'clear', 'trim' and 'leave'.
    `inputs` is the first word of the inputs' addresses, `shapes` that of their sizes; `results`
    are, for each output, the words of its address, its block (0: the caller's memory) and its first
    size.

    A word of `constants` holds the address of a constant; one of `tables` that of a table of
    addresses of constants, one of `entries` that of a table of code: where the kernel of each site
    begins. Entries may change while calls are in progress; whatever they hold serves. `numbers` are
    words that have a value from the beginning. `failures` are those of `bind` (as many as `bound`
    says), then those of `run`; of a straight program the last one is that there is no memory.
    `asked` are dims that no input tells, and the words that wait for their sizes. `updates` are
    pairs of an output and an input that may be the same memory. `devices` are those that it uses
    beside the host; then it also has functions 'device_clear' and 'device_trim', and may have
    native verbs for kinds of devices ('launch of cpu'). `handed` are the parts that engines run.
    `setups` are what a straight program keeps for sizes; one may read those before it.
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
    asked: tuple[tuple[str, int], ...] = ()
    updates: tuple[tuple[str, str], ...] = ()
    devices: tuple[OnDevice, ...] = ()
    handed: tuple[HandedPart, ...] = ()
    setups: tuple[SetupPlace, ...] = ()

    def verify(self, signature: Signature) -> None:
        """Raise ArtefactError unless all of it can be of a program with this signature.

        Whether the code keeps to it, only whoever wrote both can say.
        """
        ranks = [spec.rank for spec in signature.inputs]
        straight = set(self.functions) == _STRAIGHT
        expected = _DEVICES if self.devices else _REGIONS
        known = {name for name in self.functions if not (self.devices and slots.is_role(name))}
        problems = {
            "functions": not straight and known != expected,
            "devices": not all(
                self._inside(device.home, slots.WORDS) and all(map(self._inside, _filled(device)))
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
            "asked": not all(
                self._inside(word) and name in signature.box.names for name, word in self.asked
            ),
            "updates": not all(
                {made} <= {spec.name for spec in signature.outputs}
                and {read} <= {spec.name for spec in signature.inputs}
                for made, read in self.updates
            ),
            "bound": not 0 <= self.bound <= len(self.failures) - straight,
        }  # fmt: skip
        wrong = [name for name, found in problems.items() if found]
        if wrong:
            raise ArtefactError(f"the interface of {signature.name} has wrong {wrong[0]}")

    def _inside(self, first: int, count: int = 1) -> bool:
        return first >= 0 and first + count <= self.words

    def _filled(self) -> Iterator[int]:
        yield from _filled(self)
        yield from (row[0] for row in self.numbers)

    @property
    def held(self) -> tuple[str, ...]:
        """The constants that have an address in the memory of the host, each once."""
        tables = (name for _, names in self.tables for name in names)
        return tuple(dict.fromkeys((*(name for _, name in self.constants), *tables)))

    def verbs(self, address: Callable[[str], int]) -> dict[str, int]:
        """The native verbs of devices, by their roles; `address` is where a symbol is."""
        return {name: address(s) for name, s in self.functions.items() if slots.is_role(name)}

    @property
    def symbols(self) -> tuple[str, ...]:
        """Everything that a call may start at, each once."""
        kernels = (name for _, names in self.entries for name in names)
        return tuple(dict.fromkeys((*self.functions.values(), *kernels)))


def _filled(words: Interface | OnDevice) -> Iterator[int]:
    """The words that hold addresses of constants and tables."""
    for rows in (words.constants, words.tables, words.entries):
        yield from (row[0] for row in rows)
