"""Slots of a device for native entry points (`native/device_api/`), at its context address.

First come the counters of the entry points with native functions, then a Python function that
reports failures: it takes the number of an entry point (its index in `runtime/slots.py`), the
number of the failed function and its error code, and stores an exception for the thread. The slots
after that depend on the kind of device; they begin with functions of the system.
"""

from __future__ import annotations

LAUNCHES, COPIES_IN, COPIES_OUT, COPIES_WITHIN, BYTES_IN, BYTES_OUT, BYTES_WITHIN, WAITS = range(8)
COUNTED = 8
FAILED, COPY, FILL_BYTES, ALLOCATE_BYTES, FREE_BYTES = range(COUNTED, COUNTED + 5)
LOCK, UNLOCK, MUTEX = range(FREE_BYTES + 1, FREE_BYTES + 4)
# equal families, except 0, can copy from each other's memory; AT_ONCE: synchronous, and its
# memory is the host's
FAMILY, AT_ONCE = MUTEX + 1, 1
OWN = 20
