"""Deferred launches of a CUDA device: recurring sequences as captured graphs.

CUDA Driver API, "Stream Management" and "Graph Management".
"""

from __future__ import annotations

from collections.abc import Iterator

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Variable
from anydim.compiler.kernels.ir import select
from anydim.compiler.native.body import parameter
from anydim.compiler.native.device_api.cuda_launch import BEGIN_ALL, CODE, attempt, number
from anydim.compiler.native.device_api.entry_points import CONTEXT, EntryPoint
from anydim.runtime.devices import context as common
from anydim.runtime.devices import cuda_state as state

FLUSH = "anydim_cuda_flush"
_CAPTURE, _ALIKE = "anydim_cuda_capture", "anydim_cuda_alike"
_NO_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE: no restrictions on other threads
_TOO_FEW = 3  # launches, too few for a graph
_ADDRESSES = 4  # graphs per sequence of kernels and sizes, for different addresses
_INFO_WORDS = 8  # at least a CUgraphExecUpdateResultInfo


def graph_functions() -> Iterator[ir.Function]:
    """Yield the functions that start deferred launches."""
    yield _alike()
    yield _capture()
    yield _flush()


def _alike() -> ir.Function:
    """Compare records with the deferred ones: 0 different, 1 other addresses, 2 equal."""
    body = EntryPoint()
    at, alike = body.variable(0), body.variable(2)
    with body.loop(lambda: at() < parameter("words")):
        new = body.let(body.word(state.DEFERRED) + at() * 8)
        old = body.let(parameter("data") + at() * 8)
        operands, count = body.load(new, state.OPERANDS), body.load(new, state.PARAMETERS)
        end = body.let(count + state.HEAD)
        first, behind = state.HEAD, body.let(operands + state.HEAD)
        with body.range(0, end) as word:
            changed = body.load(new, word).differs(body.load(old, word))
            address = (word >= first) & (word < behind)
            with body.when(changed & (address | word.equals(end - state.SCRATCH_FROM_END))):
                alike.set(1)
            with body.otherwise(), body.when(changed):
                body.give(0)
        at += end
    body.give(alike())
    return body.function(_ALIKE, ("context", "data", "words"))


def _flush() -> ir.Function:
    """Start all deferred launches, by a graph if their kernels and sizes occurred before.

    A row of the table has records and their graph. Calls alternate between blocks of memory: some
    graphs are cached per sequence, for different addresses; beyond that, the least recently used
    one is updated. Rows for other sequences replace the least recently used row.
    """
    body = EntryPoint()
    words, count = body.word(state.DEFERRED_WORDS), body.word(state.DEFERRED_COUNT)
    body.put(state.DEFERRED_WORDS, 0)
    body.put(state.DEFERRED_COUNT, 0)
    with body.when(count <= _TOO_FEW):
        body.give(body.ask(BEGIN_ALL, CONTEXT, words))
    time = body.let(body.word(state.TIME) + 1)
    body.put(state.TIME, time)
    oldest, similar, others = body.variable(0), body.variable(0), body.variable(0)
    with body.range(0, body.word(state.GRAPHS)) as index:
        each = body.let(body.word(state.TABLE) + index * (8 * state.TABLE_WORDS))
        _take_older(body, oldest, each)
        with body.when(body.load(each, state.LENGTH).equals(words)):
            alike = body.ask(_ALIKE, CONTEXT, body.load(each, state.DATA), words)
            graph = body.load(each, state.GRAPH)
            with body.when(alike.equals(2) & graph.differs(0)):
                body.store(each, state.USED, time)
                replayed = body.variable(0)
                attempt(body, replayed, state.LAUNCH_GRAPH, graph, body.word(state.STREAM))
                body.give(replayed())
            with body.when(alike.differs(0)):
                others += 1
                _take_older(body, similar, each)
    row, bad = body.variable(oldest()), body.variable(0)
    with body.when(others().differs(0)):
        once = body.load(similar(), state.GRAPH).equals(0)
        row.set(select(once | (others() >= _ADDRESSES), similar(), oldest()))
    with body.when(row().differs(similar())):  # it has other records
        graph = body.load(row(), state.GRAPH)
        body.call(body.word(common.FREE_BYTES), body.load(row(), state.DATA))
        with body.when(graph.differs(0)):
            _destroy(body, graph)
        for word in range(state.TABLE_WORDS):
            body.store(row(), word, 0)
        body.store(row(), state.DATA, body.ask(body.word(common.ALLOCATE_BYTES), words * 8))
        with body.when(body.load(row(), state.DATA).equals(0)):
            bad.set(number(state.LAUNCH, _NO_MEMORY))
    with body.when(bad().equals(0)):
        data = body.load(row(), state.DATA)
        body.call(body.word(common.COPY), data, body.word(state.DEFERRED), words * 8)
        body.store(row(), state.LENGTH, words)
        body.store(row(), state.USED, time)
        with body.when(others().equals(0)):
            bad.set(body.ask(BEGIN_ALL, CONTEXT, words))
        with body.otherwise():
            bad.set(body.ask(_CAPTURE, CONTEXT, row(), words))
    body.give(bad())
    return body.function(FLUSH, ("context",))


def _take_older(body: EntryPoint, held: Variable, row: ir.Value) -> None:
    """Replace a row, or 0, by one that was used less recently."""
    with body.when(held().equals(0)):
        held.set(row)
    with body.otherwise():
        older = body.load(row, state.USED) < body.load(held(), state.USED)
        held.set(select(older, row, held()))


def _destroy(body: EntryPoint, graph: ir.Value) -> None:
    """Destroy an executable graph, which may be running; failures are those of later commands."""
    body.call(body.word(state.SYNCHRONISE), body.word(state.STREAM))
    body.call(body.word(state.DESTROY_EXECUTABLE), graph)


def _capture() -> ir.Function:
    """Capture the deferred launches as the graph of a row, which is updated, and launch it."""
    body, row = EntryPoint(), parameter("row")
    bad, stream = body.variable(0), body.word(state.STREAM)
    held, info = body.array(1), body.array(_INFO_WORDS)
    old, made = body.load(row, state.GRAPH), body.variable(0)
    body.store(held, 0, 0)
    attempt(body, bad, state.BEGIN_CAPTURE, stream, _RELAXED)
    with body.when(bad().equals(0)):
        ended = body.variable(0)
        bad.set(body.ask(BEGIN_ALL, CONTEXT, parameter("words")))
        attempt(body, ended, state.END_CAPTURE, stream, held)
        bad.set(select(bad().equals(0), ended(), bad()))
    graph = body.load(held)
    with body.when(bad().equals(0) & old.differs(0)):
        refused = body.let(body.ask(body.word(state.UPDATE), old, graph, info) & CODE)
        made.set(select(refused.equals(0), old, 0))
    with body.when(made().equals(0) & old.differs(0)):
        _destroy(body, old)
    with body.when(made().equals(0)):
        body.store(held, 0, 0)
        attempt(body, bad, state.INSTANTIATE, held, graph, 0)
        made.set(body.load(held))
    body.store(row, state.GRAPH, made())
    with body.when(graph.differs(0)):
        body.call(body.word(state.DESTROY), graph)
    attempt(body, bad, state.LAUNCH_GRAPH, made(), stream)
    body.give(bad())
    return body.function(_CAPTURE, ("context", "row", "words"))
