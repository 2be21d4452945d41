"""The words of a device, which native verbs count and work with (`native/device_api/`).

A device has them at an address, its context. First come the counters of the verbs that have native
functions, then what tells Python of a failure: a function of the number of a verb (its place in
`runtime/slots.py`), of the function that failed and of the code that it gave, which keeps an error
for the thread. What follows is that of the kind of device; it begins with functions of the system.
"""

from __future__ import annotations

LAUNCHES, COPIES_IN, COPIES_OUT, COPIES_WITHIN, BYTES_IN, BYTES_OUT, BYTES_WITHIN, WAITS = range(8)
COUNTED = 8
FAILED, COPY, FILL_BYTES, ALLOCATE_BYTES, FREE_BYTES = range(COUNTED, COUNTED + 5)
LOCK, UNLOCK, MUTEX = range(FREE_BYTES + 1, FREE_BYTES + 4)
# 0, or devices that have the same one copy from each other's memory; AT_ONCE: nothing is ever in
# progress there, and its memory is the host's
FAMILY, AT_ONCE = MUTEX + 1, 1
OWN = 20
