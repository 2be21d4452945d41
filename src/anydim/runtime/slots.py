"""The words of a device in the memory of a call; `native/blocks.py` keeps its blocks there.

verbs       of the device: functions of int64s that take its context first and return 0, or what
            `devices/c_entry_points.py` says; those that copy are told last which of the program's
            copies that is, by its number from 1 on, 0: none of them; malloc and free of the system,
            for the heads of blocks
context     what the verbs are called with: the address of the words of the device
copy from   a verb: target, the context of another device, source there, bytes; it returns BY_HOST
            where the copy has to go by way of the host
on host     whether its memory is the host's, so that addresses of either are the other's
live, ...   blocks in use and kept, their bytes and bins, the arena: as in `context.py`
allowed     the address of the memory of the call, whose word says what may be taken, 0: any number

The head of a block lies in the memory of the host; its word DATA says where the block itself is.
"""

from __future__ import annotations

from anydim.runtime import context

ALLOCATE, FREE, COPY_WITHIN, FILL, CONTEXT = range(5)
LAUNCH, COPY_IN, COPY_OUT, RECORD, WAIT, MALLOC, FREE_HEAD = range(context.CLOCK, context.CLOCK + 7)
VERBS = (ALLOCATE, FREE, COPY_WITHIN, FILL, LAUNCH, COPY_IN, COPY_OUT, RECORD, WAIT)
ON_HOST, COPY_FROM = FREE_HEAD + 1, FREE_HEAD + 2
BY_HOST = 2
WORDS = context.WORDS
DATA = 5  # word at the head of a block

# verbs that a kind of device may have native functions for (`native/device_api/`), in that order
NAMES = {
    "launch": LAUNCH, "copy_in": COPY_IN, "copy_out": COPY_OUT, "copy_within": COPY_WITHIN,
    "fill": FILL, "record": RECORD, "wait": WAIT, "copy_from": COPY_FROM,
}  # fmt: skip


def role(kind: str, verb: str) -> str:
    """What the function of a verb is called in an interface."""
    return f"{verb} of {kind}"


def is_role(name: str) -> bool:
    """Whether a function of an interface is that of a verb."""
    return name.partition(" of ")[0] in NAMES and " of " in name
