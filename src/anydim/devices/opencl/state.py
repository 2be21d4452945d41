"""The words of a device of OpenCL that works in the memory of the host (`shared.py`).

functions   of libOpenCL, in the order of FUNCTIONS
queue       the one that all work goes to, in order
launched    commands that were given to it so far, and those that are known to be done
last        the event of the last of them
recorded    events so far; each has a row of the ring: its number, its command, what to wait for
settled     events that there were when pending copies were last given to the queue
pending     copies to the host that are not given to the queue: whoever waits for them makes them;
            rows of target, source, bytes, and the command that they come after
at_once     whether copies to the host are never pending: then queues tell when they were made
staged      a list of memory that commands copy from: the next one, and the command
blocks      the address of a table, by addresses, of all blocks, and their number: where each
            begins and ends, and the last command that touches it
"""

from __future__ import annotations

from anydim.devices.context import OWN

FUNCTIONS = (
    "clSetKernelArg", "clEnqueueNDRangeKernel", "clWaitForEvents", "clRetainEvent",
    "clReleaseEvent", "clFlush", "clEnqueueSVMMemcpy", "clEnqueueSVMMemFill",
    "clEnqueueBarrierWithWaitList",
)  # fmt: skip
SET_ARGUMENT, ENQUEUE, WAIT_FOR, RETAIN, RELEASE, FLUSH, COPY_MEMORY, FILL_MEMORY, BARRIER = range(
    OWN, OWN + len(FUNCTIONS)
)
QUEUE, LAUNCHED, DONE, LAST, RECORDED, SETTLED, PENDING, AT_ONCE, STAGED = range(
    BARRIER + 1, BARRIER + 10
)
BLOCKS, BLOCK_COUNT = STAGED + 1, STAGED + 2
RING = BLOCK_COUNT + 1
RING_ROWS, RING_WORDS = 1024, 3
NUMBER, AFTER, EVENT = range(RING_WORDS)
PENDINGS = RING + RING_ROWS * RING_WORDS
PENDING_ROWS, PENDING_WORDS = 64, 4
WORDS = PENDINGS + PENDING_ROWS * PENDING_WORDS - OWN

BLOCK_WORDS = 3
FIRST, BEHIND, WORKED = range(BLOCK_WORDS)

# of a kernel: its handle, the items of a group, 0: any number, and how many items share a range
HANDLE, GROUP, MOST_ITEMS = range(3)
MOST_ARGUMENTS = 256  # words that a launch takes

STAGE_HEAD = 64  # bytes of what is staged, before its bytes: words NEXT and COMMAND
NEXT, COMMAND = range(2)
