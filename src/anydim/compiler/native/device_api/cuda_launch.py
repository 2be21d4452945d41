"""Launches of a CUDA device by records: kernels, or a library for matrix products.

Functions return 0, or a code of the driver with the number of its function, from `state.PUSH` on,
in the upper half.
"""

from __future__ import annotations

from collections.abc import Iterator

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Variable
from anydim.compiler.kernels.ir import Like, select
from anydim.compiler.native.body import parameter
from anydim.compiler.native.device_api.entry_points import CONTEXT, EntryPoint
from anydim.runtime.devices import cuda_state as state

BEGIN, BEGIN_ALL = "anydim_cuda_begin", "anydim_cuda_begin_all"
CODE = 0xFFFFFFFF  # mask of a 32-bit code
LARGEST = (1 << 31) - 1  # maximum of an int, and of the blocks of a launch
_PARAMETERS, _PARAMETERS_SIZE = 1, 2  # CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE


def launch_functions() -> Iterator[ir.Function]:
    """Yield the functions that start launches."""
    yield _begin()
    yield _begin_all()


def number(function: int, code: Like) -> ir.Value:
    """Return a code with the number of its function in the upper half."""
    return ir.constant((function - state.PUSH) << 32) | code


def attempt(body: EntryPoint, bad: Variable, function: int, *given: Like) -> None:
    """Call a function of the driver unless an earlier one failed."""
    with body.when(bad().equals(0)):
        code = body.let(body.ask(body.word(function), *given) & CODE)
        bad.set(select(code.equals(0), 0, number(function, code)))


def _begin() -> ir.Function:
    """Start the launch of a record, by the library of products if it can compute it."""
    body, record = EntryPoint(), parameter("record")
    entry = body.load(record, state.ENTRY)
    with body.when(body.load(entry, state.MATRIX).differs(0)):
        done = body.let(body.ask(body.word(state.MULTIPLY), record))
        with body.when(done.differs(state.DECLINED)):
            body.give(select(done.equals(0), 0, number(state.MULTIPLY, done)))
    size, extra, bad = body.array(1), body.array(5), body.variable(0)
    body.store(size, 0, body.load(record, state.PARAMETERS) * 8)
    given: tuple[Like, ...] = (
        _PARAMETERS,
        body.let(record + 8 * state.HEAD),
        _PARAMETERS_SIZE,
        size,
        0,
    )
    for word, value in enumerate(given):
        body.store(extra, word, value)
    blocks, threads = (body.load(record, word) for word in (state.BLOCKS, state.BLOCK_THREADS))
    attempt(
        body, bad, state.LAUNCH, body.load(entry, state.FUNCTION), blocks, 1, 1, threads, 1, 1, 0,
        body.word(state.STREAM), 0, extra,
    )  # fmt: skip
    body.give(bad())
    return body.function(BEGIN, ("context", "record"))


def _begin_all() -> ir.Function:
    """Start the launches of the first `words` of the deferred records."""
    body = EntryPoint()
    at, bad = body.variable(0), body.variable(0)
    with body.loop(lambda: (at() < parameter("words")) & bad().equals(0)):
        record = body.let(body.word(state.DEFERRED) + at() * 8)
        bad.set(body.ask(BEGIN, CONTEXT, record))
        at += body.load(record, state.PARAMETERS) + state.HEAD
    body.give(bad())
    return body.function(BEGIN_ALL, ("context", "words"))
