"""Class probabilities from pairwise class probabilities.

The second method of Wu, Lin and Weng, "Probability estimates for multi-class classification by
pairwise coupling" (2004), as in libsvm: updates one class after the other until the error is small.
"""

from __future__ import annotations

from itertools import combinations

import numpy

from anydim.base.dtypes import float64
from anydim.base.errors import GraphError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer
from anydim.compiler.kernels.ir import constant, greatest, least, select
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.routine import (
    Arrays,
    Attributes,
    Dims,
    Results,
    Routine,
    Steps,
    Types,
)
from anydim.lang.tree import TensorType
from anydim.sizes import Box, as_size

NAME = "pairwise_coupling"
_ROUNDS, _ERROR, _LEAST = 100, 0.005, 1e-7


def infer(types: Types, attributes: Attributes, box: Box) -> tuple[TensorType, ...]:
    """Types: float64 [n, pairs], the probability of the first of classes (0, 1), (0, 2), ..."""
    (x,), count = types, attributes["count"]
    if x.rank != 2 or x.dtype != float64 or x.shape[1].constant != count * (count - 1) // 2:
        raise GraphError(
            f"operator '{NAME}': {x} is not a float64 matrix of pairs of {count} classes"
        )
    return (TensorType(float64, (x.shape[0], as_size(count))),)


def evaluate(arrays: Arrays, attributes: Attributes, sizes: Dims) -> Results:
    (x,), count = arrays, attributes["count"]
    return (numpy.array([_couple(row, count) for row in x]).reshape(len(x), count),)


def _couple(row: numpy.ndarray, count: int) -> numpy.ndarray:
    q = numpy.zeros((count, count))
    for share, (i, j) in zip(numpy.clip(row, _LEAST, 1 - _LEAST), combinations(range(count), 2)):
        q[i, i] += (1 - share) ** 2
        q[j, j] += share**2
        q[i, j] = q[j, i] = -share * (1 - share)
    p = numpy.full(count, 1 / count)
    for _ in range(_ROUNDS):
        qp = q @ p
        total = p @ qp
        if not abs(qp - total).max() >= _ERROR / count:
            break
        for i in range(count):
            step = (total - qp[i]) / q[i, i]
            p[i] += step
            total = (total + step * (step * q[i, i] + 2 * qp[i])) / (1 + step) ** 2
            qp = (qp + step * q[i]) / (1 + step)
            p /= 1 + step
    return p


def lower(types: Types, attributes: Attributes, box: Box, machine: Machine) -> Steps:
    code, count = Code(NAME, machine, box), attributes["count"]
    pairs = count * (count - 1) // 2
    x, y = code.input("x0", float64), code.output("y0", float64)
    q, qp = code.scratch(float64, count * count), code.scratch(float64, count)
    with code.range(code.start, code.stop) as row:
        p = y.part(code.let(row * count))
        _matrix(code, x.part(code.let(row * pairs)), q, count)
        with code.range(0, count) as i:
            p[i] = 1 / count
        rounds = code.variable(_ROUNDS)
        with code.loop(lambda: rounds() > 0):
            total, error = _error(code, q, qp, p, count)
            going = code.let(error >= _ERROR / count)
            rounds.set(select(going, rounds() - 1, 0))
            with code.when(going):
                _round(code, q, qp, p, count, total)
    rows = types[0].shape[0]
    work = rows * (count * count * 4)
    return Steps((code.launch(rows, work, reason="class probabilities from pairwise ones"),))


def _matrix(code: Code, shares: Buffer, q: Buffer, count: int) -> None:
    """The matrix Q of the quadratic form that the probabilities minimize."""
    with code.range(0, count * count) as i:
        q[i] = 0.0
    pair = code.variable(0)
    with code.range(0, count) as i, code.range(code.let(i + 1), constant(count)) as j:
        share = code.let(least(greatest(shares[pair()], _LEAST), 1 - _LEAST))
        rest = code.let(share * -1.0 + 1.0)
        q[i * (count + 1)] = q[i * (count + 1)] + rest * rest
        q[j * (count + 1)] = q[j * (count + 1)] + share * share
        q[i * count + j] = share * rest * -1.0
        q[j * count + i] = share * rest * -1.0
        pair += 1


def _error(code: Code, q: Buffer, qp: Buffer, p: Buffer, count: int) -> tuple[ir.Value, ir.Value]:
    """p Q p, and the maximum distance of Q p from it; fills `qp`."""
    total = code.variable(0.0, float64)
    with code.range(0, count) as i:
        own = code.variable(0.0, float64)
        with code.range(0, count) as j:
            own += q[i * count + j] * p[j]
        qp[i] = own()
        total += p[i] * own()
    error = code.variable(0.0, float64)
    with code.range(0, count) as i:
        error.set(greatest(error(), abs(qp[i] - total())))
    return total(), error()


def _round(code: Code, q: Buffer, qp: Buffer, p: Buffer, count: int, start: ir.Value) -> None:
    """Update every class once."""
    total = code.variable(start)
    with code.range(0, count) as i:
        own = q[i * (count + 1)]
        step = code.let((total() - qp[i]) / own)
        p[i] = p[i] + step
        scale = code.let(step + 1.0)
        total.set((total() + step * (step * own + qp[i] * 2.0)) / scale / scale)
        with code.range(0, count) as j:
            qp[j] = (qp[j] + step * q[i * count + j]) / scale
            p[j] = p[j] / scale


PAIRWISE_COUPLING = Routine((1, 1), infer, evaluate, lower)
