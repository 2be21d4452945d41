"""Layout of the header of a region call's memory, in 8-byte words; used by `native/blocks.py`.

functions   malloc, free, memcpy, memset of the system
pool        of worker threads, 0: single-threaded
live        list of the blocks in use, their number and bytes
cached      bytes of cached free blocks
peak        maximum bytes in use during this call
limit       maximum bytes, in use and cached
found       operands of a failed check: a value and its position; bytes of a failed allocation
arena       the block of intermediate values
allowed     remaining byte budget on host and devices, plus 1; 0: unlimited; whether it was exceeded
clock       the system clock and Python's signal functions, for `native/stopping.py`; the ids of an
            exact and of a fast clock, and the address of the main thread's id
countdown   iterations until a loop reads the clock, their reset value, time of the last reading
deadline    end of the time limit in nanoseconds, 0: none
listened    time of the last signal check
raised      the exception that a signal handler raised: three words of Python
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
HEAD = 64  # bytes in front of the content of a block
