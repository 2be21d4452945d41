"""What native code of a program asks of its caller: words of a call's memory, names, failures.

Words are counted in the block of 8-byte words that is the memory of a call. `layout.py` says what
stands where in that of a straight program, `context.py` what begins that of regions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anydim.runtime.failures import Failure

Named = tuple[tuple[int, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Interface:
    """Where a call finds things, and what the numbers mean that come back.

    `functions` are the symbols of host code by what they do: 'worker' and 'stop' of the pool, 'run'
    and, where the program is straight, 'bind'; else 'clear', 'trim' and 'leave'. `inputs` is the
    first word of the inputs' addresses, `shapes` that of their sizes; `results` are, for each
    output, the words of its address, its block (0: the caller's memory) and its first size.

    A word of `constants` holds the address of a constant; one of `tables` that of a table of
    addresses of constants, one of `entries` that of a table of code: where the kernel of each site
    begins. Entries may change while calls are in progress; whatever they hold serves. `numbers` are
    words that have a value from the beginning. `failures` are those of `bind` (as many as `bound`
    says), then those of `run`; of a straight program the last one is that there is no memory.
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

    @property
    def held(self) -> tuple[str, ...]:
        """The constants that have an address somewhere, each once."""
        tables = (name for _, names in self.tables for name in names)
        return tuple(dict.fromkeys((*(name for _, name in self.constants), *tables)))

    @property
    def symbols(self) -> tuple[str, ...]:
        """Everything that a call may start at, each once."""
        kernels = (name for _, names in self.entries for name in names)
        return tuple(dict.fromkeys((*self.functions.values(), *kernels)))
