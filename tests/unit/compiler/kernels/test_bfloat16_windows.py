"""Promise: convolutions of bfloat16 have the bits of the documents, by vectors and by tiles.

Terms are added tap by tap; the channels of a tap are padded with a zero to whole pairs.
"""

from __future__ import annotations

import numpy
import pytest

from anydim.base.dtypes import bfloat16, convert_array
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.int8.int8_template import BFLOAT16
from tests.unit.compiler.kernels.launching import Prepared
from tests.unit.compiler.kernels.test_bfloat16 import (
    BOX,
    MACHINES,
    NARROW,
    _vectors_of_words,
    group_of,
    product,
    runs,
)

__all__ = ["_vectors_of_words"]
OUTER, TAPS = 21, 3
TEXTS = {
    "first": f"""
def product(bfloat16(M,C,R) w, float(K,C,N) x) -> (y) {{
  y(b,o,i) +=! cast<float>(w(o,c,r)) * {NARROW("(x(b,c,2*i+r-1) else 0)")} where
    i in 0:(N+1)//2, b in 0:K }}""",
    "last": f"""
def product(bfloat16(M,C,R) w, float(K,N,C) x) -> (y) {{
  y(b,i,o) +=! {NARROW("(x(b,2*i+r-1,c) else 0)")} * cast<float>(w(o,c,r)) where
    i in 0:(N+1)//2, b in 0:K }}""",
}


def convolution(w: numpy.ndarray, x: numpy.ndarray, tiles: bool) -> numpy.ndarray:
    """[o, c, r] by [b, c, n], with stride 2 and a zero at both ends -> [b, o, i]."""
    pad, count = w.shape[1] % 2, (x.shape[2] + 1) // 2
    w = numpy.pad(w, ((0, 0), (0, pad), (0, 0))).transpose(0, 2, 1).reshape(len(w), -1)
    x = numpy.pad(x, ((0, 0), (0, pad), (1, 2)))
    found = numpy.zeros((len(x), len(w), count), numpy.float32)
    for image, result in zip(x, found):
        windows = [image[:, r : r + 2 * count : 2] for r in range(TAPS)]
        result[:] = product(w, numpy.concatenate(windows), tiles)
    return found


@pytest.mark.sampled
@MACHINES
@pytest.mark.parametrize("layout", TEXTS)
@pytest.mark.parametrize("channels", [16, 19])
def test_bits_of_windows(layout: str, channels: int, machine: Machine) -> None:
    random = numpy.random.default_rng(7)
    group = group_of(TEXTS[layout], {"m": OUTER, "c": channels, "r": TAPS})
    prepared = Prepared(group, [BFLOAT16], BOX, machine, frozenset("w"))
    w = random.standard_normal((OUTER, channels, TAPS)).astype(numpy.float32)
    for batch, size, parts in ((1, 1, 1), (2, 2, 1), (3, 9, 2), (1, 37, 3), (0, 5, 1)):
        x = random.standard_normal((batch, channels, size)).astype(numpy.float32)
        if batch and size > 2:
            x[0, 3, 1], x[0, 4, size - 1] = numpy.nan, numpy.inf
        want = convolution(w, x, machine.pair_tiles)
        given = [convert_array(w, bfloat16.numpy), x]
        if layout == "last":
            want, given[1] = want.transpose(0, 2, 1), numpy.ascontiguousarray(x.transpose(0, 2, 1))
        for compiled in {False, runs(machine)}:
            env = {"k": batch, "n": size}
            (found,) = prepared.outputs(given, env, parts, compiled)
            numpy.testing.assert_array_equal(found, want)
