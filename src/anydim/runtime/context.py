"""The first words of the memory of a call that runs regions; `native/blocks.py` works on them.

functions   malloc, free, memcpy, memset of the system
pool        of worker threads, 0: the caller works alone
live        list of the blocks in use, their number and bytes
cached      bytes of free blocks that are kept
peak        the most bytes in use at a time, in this call
limit       the most bytes, in use and kept together
found       what a check that failed has found: a value, and where; bytes that there were not
arena       the block of intermediate values
allowed     one more than the bytes that may be taken yet, on the host and on devices, 0: any
            number; whether more were asked for
clock       of the system, and what Python has for signals; `native/stopping.py` calls them. The
            numbers of an exact clock and of a quick one, and where the main thread's number is
countdown   iterations until a loop looks at the clock, how many it counts, when it last did
deadline    when a call has to end, in nanoseconds, 0: never
listened    when signals were last looked at
raised      the exception that a handler of a signal raised: three words of Python's
bins        free blocks by their size: powers of two
"""

from __future__ import annotations

MALLOC, FREE, COPY, FILL, POOL, LIVE, COUNT, LIVE_BYTES = range(8)
CACHED_BYTES, PEAK, LIMIT, FOUND, PLACE, ARENA_BLOCK, ALLOWED, REFUSED = range(8, 16)
CLOCK, TAKE_LOCK, CHECK_SIGNALS, HAS_RAISED, FETCH, GIVE_LOCK, THREAD = range(16, 23)
CLOCK_NUMBER, QUICK_NUMBER, MAIN, COUNTDOWN, STEP, LAST_LOOK = range(23, 29)
DEADLINE, LISTENED, RAISED = range(29, 32)
BINS = RAISED + 3
WORDS = BINS + 64

MEMORY, NEXT, PREVIOUS, REFERENCES, BYTES = range(5)  # words at the head of a block
HEAD = 64  # bytes; what a block holds lies behind
