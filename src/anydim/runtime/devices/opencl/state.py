"""Slots of an OpenCL device that works in host memory (`shared.py`).

functions   of libOpenCL, in the order of FUNCTIONS
queue       the in-order queue of all commands
launched    number of commands enqueued so far, and of those known to be done
last        the event of the last of them
recorded    number of events so far; each has a row of the ring: number, command, event to wait for
settled     number of events when pending copies were last enqueued
pending     copies to the host that are not enqueued: a waiting thread does them; rows of target,
            source, bytes, and the command that they follow
at_once     whether copies to the host are never pending: used while queues are profiled
staged      a list of memory that commands copy from: next, command
blocks      the address of a table of all blocks, sorted by address, and their number: begin, end,
            and the last command that touches it
"""

from __future__ import annotations

from anydim.runtime.devices.context import OWN

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

# slots of a kernel: its handle, the group size, 0: any, and the maximum work-items of a range
HANDLE, GROUP, MAX_WORK_ITEMS = range(3)
MAX_ARGUMENTS = 256  # maximum slots of a launch

STAGE_HEAD = 64  # bytes of the head of staged memory: slots NEXT and COMMAND
NEXT, COMMAND = range(2)
