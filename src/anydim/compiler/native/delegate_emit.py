"""Emits a delegated step: passes inputs and destinations of results to an engine in slots.

A result with known sizes is allocated before the run, and the engine writes there. A result whose
sizes the engine determines is allocated after the run and copied once.
"""

from __future__ import annotations

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import constant
from anydim.compiler.native.body import ONE, ZERO
from anydim.compiler.native.region_code import Code, tensor_bytes
from anydim.runtime.delegated import FETCH, RUN
from anydim.runtime.program.region import EngineStep


def emit_engine_call(code: Code, number: int, step: EngineStep) -> None:
    """Emit the code of a step."""
    value = code.slots.handed[number]
    word = _inputs(code, step, value.first)
    arithmetic = code.arithmetic()
    for _, sizes in step.vectors:
        for size in sizes:
            code.store(word, arithmetic.size(size))
            word += 1
    known = [name for name in step.makes if _has_known_sizes(code, name)]
    bytes = {name: arithmetic.size(tensor_bytes(code.spec(name))) for name in known}
    for name in known:
        for axis, size in enumerate(code.spec(name).shape):
            code.store(code.value(name).shape + axis, arithmetic.size(size))
    code.fits(arithmetic, step.source)
    for name in known:
        code.store_block(code.value(name), *code.allocate(bytes[name], step.source))
    first = word
    _outputs(code, step, first, known)
    elements = ZERO if len(known) == len(step.makes) else ONE  # nonzero if any result has elements
    for name in known:
        elements = code.body.let(elements | bytes[name])
    with code.body.when(elements.differs(0)):
        sizes_needed = [arithmetic.size(size) for size in step.needed]
        empty = code.failure("empty", step.source)
        code.leave_first([(code.body.let(size.differs(0)), empty) for size in sizes_needed])
        _call_part(code, step, value.function, value.first, RUN)
    found = [name for name in step.makes if name not in known]
    if found:
        _allocate_determined(code, step, first, found)
        _call_part(code, step, value.function, value.first, FETCH)
    code.check_results(step.makes, step.source)


def _has_known_sizes(code: Code, name: str) -> bool:
    """Whether the sizes of a result are known before the engine runs."""
    symbols = frozenset().union(*(size.symbols for size in code.spec(name).shape))
    return symbols <= code.known


def _inputs(code: Code, step: EngineStep, word: int) -> int:
    """Store addresses and sizes of inputs; returns the slot after them."""
    for name in step.reads:
        value, rank = code.value(name), code.spec(name).rank
        code.copy(value.data, word)
        code.copy(value.shape, word + 1, rank)
        word += 1 + rank
    return word


def _outputs(code: Code, step: EngineStep, word: int, known: list[str]) -> None:
    """Store destinations and sizes of results; 0 and -1 if the engine determines them."""
    for name in step.makes:
        value, rank = code.value(name), code.spec(name).rank
        if name in known:
            code.copy(value.data, word)
            code.copy(value.shape, word + 1, rank)
        else:
            code.store(word, 0)
            for axis in range(rank):
                code.store(word + 1 + axis, -1)
        word += 1 + rank


def _allocate_determined(code: Code, step: EngineStep, word: int, found: list[str]) -> None:
    """Allocate results whose sizes the engine determined."""
    for name in step.makes:
        value, spec = code.value(name), code.spec(name)
        if name in found:
            code.copy(word + 1, value.shape, spec.rank)
            bytes: ir.Value = constant(spec.dtype.bytes)
            for axis in range(spec.rank):
                bytes = code.body.let(bytes * code.load(value.shape + axis))
            code.store_block(value, *code.allocate(bytes, step.source))
            code.copy(value.data, word)
        word += 1 + spec.rank


def _call_part(code: Code, step: EngineStep, function: int, first: int, request: int) -> None:
    failed = code.body.ask(code.load(function), code.address(first), request)
    code.leave_unless(failed.equals(0), code.failure("engine", step.source))
