"""Slots of a CUDA device for native entry points (`native/device_api/cuda.py`).

functions   of the driver library, in the order of FUNCTIONS, then that of matrix products
stream      the stream of all commands; the context
workers     maximum workers of a range kernel with scratch
stage       page-locked memory of copies to the device; bytes in use since the last wait
recorded    number of events so far; event n uses row n of a ring of CUDA events. A reused row is
            recorded later on the same stream, so waiting for it is sufficient
graphs      number of rows of the table of captured graphs, 0: launches are not deferred
deferred    the address of records of deferred launches, their number, and their words
table       the address of the rows: words of the records, 0: free; the address of a copy of them;
            the executable graph, 0: the sequence occurred once; the time of the last use
time        number of sequences so far
"""

from __future__ import annotations

from anydim.runtime.devices.context import OWN

FUNCTIONS = (
    "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuLaunchKernel", "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemsetD8Async", "cuStreamSynchronize",
    "cuEventRecord", "cuEventSynchronize", "cuStreamBeginCapture_v2", "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags", "cuGraphExecUpdate_v2", "cuGraphLaunch", "cuGraphDestroy",
    "cuGraphExecDestroy",
)  # fmt: skip
(
    PUSH, POP, LAUNCH, COPY_IN, COPY_OUT, COPY_WITHIN, FILL, SYNCHRONISE, RECORD, WAIT,
    BEGIN_CAPTURE, END_CAPTURE, INSTANTIATE, UPDATE, LAUNCH_GRAPH, DESTROY, DESTROY_EXECUTABLE,
    MULTIPLY,
) = range(OWN, OWN + len(FUNCTIONS) + 1)  # fmt: skip
STREAM, CONTEXT, WORKERS, STAGE, STAGED, RECORDED = range(MULTIPLY + 1, MULTIPLY + 7)
GRAPHS, DEFERRED, DEFERRED_COUNT, DEFERRED_WORDS, TABLE, TIME = range(RECORDED + 1, RECORDED + 7)
RING = TIME + 1
RING_ROWS = 64
WORDS = RING + RING_ROWS - OWN

STAGE_BYTES = 1 << 20  # larger copies are not staged
MAX_WORDS = 512  # parameters of a launch: 4 KiB
BUFFER_WORDS = 1 << 16  # of deferred launches
TABLE_WORDS = 4
LENGTH, DATA, GRAPH, USED = range(TABLE_WORDS)

# slots of a kernel; MATRIX numbers the products that a library may compute, from 1 on
ENTRY_WORDS = 5
FUNCTION, THREADS, SHARED, MAX_THREADS, MATRIX = range(ENTRY_WORDS)
DECLINED = -1  # result of MULTIPLY for a product that its kernel has to compute

# slots of a launch record, then its parameters: operands, sizes, end, part, scratch, stride
ENTRY, BLOCKS, BLOCK_THREADS, OPERANDS, PARAMETERS, HEAD = range(6)
SCRATCH_FROM_END = 2
