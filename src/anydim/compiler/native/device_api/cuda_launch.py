"""Launches of a CUDA device by records: kernels, or cuBLAS for plain matrix products.

Functions return 0, or a code of the driver with the number of its function, from `state.PUSH` on,
in the upper half.
"""

from __future__ import annotations

from collections.abc import Iterator

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Variable
from anydim.compiler.kernels.ir import Like, greatest, least, select
from anydim.compiler.native.body import parameter
from anydim.compiler.native.device_api.entry_points import CONTEXT, EntryPoint
from anydim.runtime.devices import cuda_state as state

BEGIN, BEGIN_ALL = "anydim_cuda_begin", "anydim_cuda_begin_all"
_MULTIPLY, _LAYOUT = "anydim_cuda_multiply", "anydim_cuda_layout"
CODE = 0xFFFFFFFF  # mask of a 32-bit code
LARGEST = (1 << 31) - 1  # maximum of an int, and of the blocks of a launch
_PARAMETERS, _PARAMETERS_SIZE = 1, 2  # CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE
_TRANSPOSED = 1 << 32  # of a matrix layout; the lower half is the leading dimension
_DECLINED = -1  # layouts that cuBLAS does not have


def launch_functions() -> Iterator[ir.Function]:
    """Yield the functions that start launches."""
    yield _layout()
    yield _multiply()
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
    """Start the launch of a record, by cuBLAS if it can compute it."""
    body, record = EntryPoint(), parameter("record")
    entry = body.load(record, state.ENTRY)
    with body.when(body.load(entry, state.MATRIX).differs(0)):
        done = body.ask(_MULTIPLY, CONTEXT, entry, body.let(record + 8 * state.HEAD))
        with body.when(done.differs(_DECLINED)):
            body.give(done)
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


# ---- matrix products of cuBLAS -------------------------------------------------------------------


def _layout() -> ir.Function:
    """Return the leading dimension of a matrix with unit stride along one axis, or DECLINED."""
    body = EntryPoint()
    rows, columns, row, column = map(parameter, ("rows", "columns", "row", "column"))
    for along, across, unit, stride, flag in (
        (columns, rows, column, row, 0), (rows, columns, row, column, _TRANSPOSED),
    ):  # fmt: skip
        with body.when(unit.equals(1) | (along <= 1)):
            free = (across <= 1) | along.equals(0)
            leading = body.let(select(free, greatest(greatest(stride, along), 1), stride))
            with body.when((leading >= greatest(along, 1)) & (leading <= LARGEST)):
                body.give(leading | flag)
    body.give(_DECLINED)
    return body.function(_LAYOUT, ("rows", "columns", "row", "column"))


def _multiply() -> ir.Function:
    """Start the product of a record with the parameters `cublas.WORDS`."""
    body, entry, words = EntryPoint(), parameter("entry"), parameter("words")
    a, b, c, m, n, k, batch, *layouts = (body.load(words, word) for word in range(17))
    a_start, a_m, a_k, a_batch, b_start, b_k, b_n, b_batch, c_m, c_batch = layouts
    left, right = body.ask(_LAYOUT, m, k, a_m, a_k), body.ask(_LAYOUT, k, n, b_k, b_n)
    width = body.let(select(m <= 1, greatest(c_m, n), c_m))
    most = greatest(greatest(m, n), greatest(greatest(k, batch), width))
    with body.when((least(left, right) < 0) | (width < n) | (most > LARGEST)):
        body.give(_DECLINED)
    types = (state.FACTOR, state.FACTOR_BYTES, state.RESULT, state.COMPUTE, state.ONE)
    factor, bytes, result, compute, one = (body.load(entry, word) for word in types)
    scales, bad = body.array(2), body.variable(0)
    body.store(scales, 0, one)
    body.store(scales, 1, 0)
    attempt(
        body, bad, state.MULTIPLY, body.word(state.HANDLE), right >> 32, left >> 32, n, m, k,
        scales, b + bytes * b_start, factor, right & CODE, b_batch, a + bytes * a_start, factor,
        left & CODE, a_batch, scales + 8, c, result, width, c_batch, batch, compute, -1,
    )  # fmt: skip
    body.give(bad())
    return body.function(_MULTIPLY, ("context", "entry", "words"))
