"""Promise: rows that are read at places of a table hold what stands there, near each other or not.

The evaluator watches every access: nothing outside of a tensor is read.
"""

from __future__ import annotations

import numpy
import pytest

from anydim.base import settings
from anydim.base.dtypes import DTYPES, int64
from anydim.compiler.kernels.ir_text import print_kernel
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.templates import TEMPLATES
from anydim.compiler.targets.llvm.host import this_machine
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.launching import Prepared

BOX = Box.of(*(Dim(name, 0, 5000) for name in "RVC"))
ROWS = """def rows(T(R,V) x, int64(C) at) -> (y) {
  y(r,c) = x(r,at(c)) else 7 where r in 0:R, c in 0:C
}"""
PLACES = {
    "wider": lambda c, v: c * 2 // 3,
    "narrower": lambda c, v: c * 2 + 1,
    "beyond two vectors": lambda c, v: c * 5,
    "backwards": lambda c, v: v - 1 - c,
    "outside": lambda c, v: c - 3,
    "anywhere": lambda c, v: (c * 7919) % (v + 2) - 1,
    "far away": lambda c, v: numpy.where(c % 11 == 5, 2**62, c),
}


def prepared(kind: str) -> Prepared:
    x, at = (TensorType(DTYPES[dtype], tuple(map(as_size, axes)))
             for dtype, axes in ((kind, "RV"), ("int64", "C")))  # fmt: skip
    group = instantiate(parse_definition(ROWS), [x, at], {}, BOX)
    return Prepared(group, TEMPLATES, BOX, Machine(64, 32, permutes=True))


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("kind", ["uint8", "float16", "float32", "int64", "bool"])
def test_places_in_a_table(kind: str) -> None:
    if settings.target != "llvm":
        pytest.skip("others are never told that a machine permutes")
    made = prepared(kind)
    assert ("permute" in print_kernel(made.launch.kernel)) == (kind != "bool")
    ways = [False] + [True] * this_machine().machine.permutes
    for rows, width, count in ((1, 0, 3), (2, 1, 17), (3, 31, 33), (2, 33, 70), (4, 400, 131)):
        random = numpy.random.default_rng(width)
        x = random.integers(0, 200, (rows, width)).astype(DTYPES[kind].numpy)
        for place in PLACES.values():
            at = numpy.asarray(place(numpy.arange(count), width), int64.numpy)
            inside = (at >= 0) & (at < width)
            read = (
                x[:, numpy.where(inside, at, 0)] if width else numpy.zeros((rows, count), x.dtype)
            )
            expected = numpy.where(inside, read, numpy.asarray(7, x.dtype))
            for compiled in ways:
                env = {"R": rows, "V": width, "C": count}
                (found,) = made.outputs([x, at], env, parts=2, compiled=compiled)
                numpy.testing.assert_array_equal(found, expected)
