"""Layout of the block of 8-byte slots that a straight call passes to native code.

    result      arena bytes, whether a launch may use several threads      written by bind
    stopping    slots that `native/stopping.py` reads, 0: none             set by the caller
    call        arena, pool (0: one thread), tables of constants and code  read by run
    pointers    of the inputs, then of the outputs                         read by run
    shapes      of the inputs (read by bind), then of the outputs (written by bind)
    dims        in the order of the box                                    written by bind
    slots       size expressions of the program                            written by bind, for run
    arguments   of each launch: addresses of its operands,                 written by run
                its sizes, a slot for its parallel range                   written by bind
    statuses    indices that are out of range, or FINE                     written by run
    setups      bytes of all shared blocks                                 written by bind
                of each: its bytes, 0 if its block is in the arena,        written by bind
                its arena offset, else -1, whether it is empty,            written by bind
                and its address                                            set by the caller

The table of code has one slot per launch, in order: the address of its kernel. Slots may change
during calls; every value that they ever hold is valid.
"""

from __future__ import annotations

from functools import cached_property

from anydim.base.records import dataclass
from anydim.runtime.signature import Signature

ARENA_BYTES, PARALLEL, STOPPING, ARENA, POOL, CONSTANTS, CODE, POINTERS = range(8)
WORTH_WAKING = 32  # grains in a call, some 100 us: a worker wakes up in 50 us
BYTES, BEHIND, EMPTY, ADDRESS = SETUP = range(4)  # slots of a setup


@dataclass(frozen=True)
class Layout:
    """Slot offsets of a block; `slots`, `statuses` and `setups` are counts.

    `slots` counts size expressions and arguments of launches.
    """

    input_ranks: tuple[int, ...]
    output_ranks: tuple[int, ...]
    dims: int
    slots: int
    statuses: int = 0
    setups: int = 0

    @staticmethod
    def of(signature: Signature, slots: int, statuses: int = 0, setups: int = 0) -> Layout:
        """Return the layout for a signature and numbers of slots, statuses and setups."""
        return Layout(
            tuple(spec.rank for spec in signature.inputs),
            tuple(spec.rank for spec in signature.outputs),
            len(signature.box.dims),
            slots,
            statuses,
            setups,
        )

    def pointer(self, position: int) -> int:
        """The slot of an input's pointer, or, after all inputs, of an output's."""
        return POINTERS + position

    @cached_property
    def input_shapes(self) -> int:
        """The first slot of the inputs' shapes."""
        return POINTERS + len(self.input_ranks) + len(self.output_ranks)

    @cached_property
    def output_shapes(self) -> int:
        """The first slot of the outputs' shapes."""
        return self.input_shapes + sum(self.input_ranks)

    @cached_property
    def first_dim(self) -> int:
        """The slot of the first dim."""
        return self.output_shapes + sum(self.output_ranks)

    @cached_property
    def first_slot(self) -> int:
        """The slot of the first size expression."""
        return self.first_dim + self.dims

    @cached_property
    def first_status(self) -> int:
        """The first status slot."""
        return self.first_slot + self.slots

    def setup(self, number: int) -> int:
        """The first slot of a setup; the slot before setup 0 has the bytes of all blocks."""
        return self.first_status + self.statuses + 1 + len(SETUP) * number

    @property
    def words(self) -> int:
        """The number of slots of the block."""
        return self.setup(self.setups) if self.setups else self.first_status + self.statuses

    def input_axis(self, input: int, axis: int) -> int:
        """The slot with the size of an input's axis."""
        return self.input_shapes + sum(self.input_ranks[:input]) + axis

    def output_axis(self, output: int, axis: int) -> int:
        """The slot with the size of an output's axis."""
        return self.output_shapes + sum(self.output_ranks[:output]) + axis
