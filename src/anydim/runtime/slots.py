"""Slots of a device in the memory of a call; `native/blocks.py` manages its blocks there.

    entry points  of the device: functions of int64s that take its context first and return 0, or
                as `devices/c_entry_points.py` specifies; copies take last the number of the
                program's copy, from 1 on, or 0; malloc and free of the system, for block heads
    context     the first argument of the entry points: the address of the device's own slots
    copy from   an entry point: target, context of the source device, source, bytes; it returns
                BY_HOST if the copy has to go through host memory
    empty       an address on the device, for values without bytes
    on host     whether the device works in host memory, so that addresses are interchangeable
    live, ...   used and cached blocks, their bytes and bins, the arena: as in `context.py`
    allowed     the address of the call's memory, which holds the memory budget, 0: unlimited

The head of a block is in host memory; its slot DATA has the address of the block itself.
"""

from __future__ import annotations

from anydim.runtime import context

ALLOCATE, FREE, COPY_WITHIN, FILL, CONTEXT = range(5)
LAUNCH, COPY_IN, COPY_OUT, RECORD, WAIT, MALLOC, FREE_HEAD = range(context.CLOCK, context.CLOCK + 7)
VERBS = (ALLOCATE, FREE, COPY_WITHIN, FILL, LAUNCH, COPY_IN, COPY_OUT, RECORD, WAIT)
ON_HOST, COPY_FROM, EMPTY = range(FREE_HEAD + 1, FREE_HEAD + 4)
BY_HOST = 2
WORDS = context.WORDS
DATA = 5  # slot at the head of a block

# entry points that a kind of device may implement natively (`native/device_api/`), in order
NAMES = {
    "launch": LAUNCH, "copy_in": COPY_IN, "copy_out": COPY_OUT, "copy_within": COPY_WITHIN,
    "fill": FILL, "record": RECORD, "wait": WAIT, "copy_from": COPY_FROM,
}  # fmt: skip


def role(kind: str, verb: str) -> str:
    """Return the name of an entry point in an interface."""
    return f"{verb} of {kind}"


def is_role(name: str) -> bool:
    """Whether a function of an interface is an entry point of a device."""
    return name.partition(" of ")[0] in NAMES and " of " in name
