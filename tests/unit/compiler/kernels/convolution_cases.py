"""Convolutions written as operators, run through the template, and their meaning in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy

import anydim.compiler.ops  # noqa: F401  fills the registry of operators
from anydim.base.dtypes import DType, float32
from anydim.compiler.graph.operator import operator
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.convolution import convolution_template as convolution
from anydim.compiler.targets.llvm.host import machine as host_machine
from anydim.lang.tree import Group, TensorType
from anydim.sizes import Box, Dim, parse
from tests.unit.compiler.kernels.launching import Prepared

BOX = Box.of(Dim("n", 0, 64), Dim("h", 0, 512), Dim("v", 0, 512), Dim("d", 0, 64), Dim("c", 0, 64))


@dataclass(frozen=True)
class Case:
    """A convolution: x, w and maybe a bias, shapes as texts of sizes over BOX."""

    x: str
    w: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    bias: bool = False
    constant: bool = True
    dtype: DType = float32

    def group(self) -> Group:
        shapes = [self.x, self.w] + ([self.w.split()[0]] if self.bias else [])
        types = [
            TensorType(self.dtype, tuple(parse(part) for part in shape.split())) for shape in shapes
        ]
        return operator("conv").instantiate(types, self.attributes, BOX)

    def prepared(self, machine: Machine | None = None) -> Prepared:
        """The launch by the convolution template; AssertionError where it takes no such group."""
        constants = frozenset({"w", "b"}) if self.constant else frozenset()
        return Prepared(
            self.group(), [convolution.TEMPLATE], BOX, machine or host_machine(), constants
        )

    def arrays(self, sizes: Mapping[str, int], seed: int = 0) -> list[numpy.ndarray]:
        """Random x, w and bias at some sizes."""
        random = numpy.random.default_rng(seed)
        shapes = [[parse(p).evaluate(sizes) for p in text.split()] for text in (self.x, self.w)]
        shapes += [[shapes[1][0]]] if self.bias else []
        if self.dtype.is_float:
            return [random.standard_normal(s).astype(self.dtype.numpy) for s in shapes]
        return [random.integers(-9, 9, s).astype(self.dtype.numpy) for s in shapes]


def convolved(
    x: numpy.ndarray, w: numpy.ndarray, bias: numpy.ndarray | None = None, *,
    strides: Sequence[int] | None = None, dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, groups: int = 1,
) -> numpy.ndarray:  # fmt: skip
    """The convolution in float64, tap by tap."""
    rank = x.ndim - 2
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    pads = pads or (0,) * (2 * rank)
    wide = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:])]
    padded = numpy.pad(x.astype(numpy.float64), wide)
    counts = [
        max(0, (padded.shape[2 + a] - (w.shape[2 + a] - 1) * dilations[a] - 1) // strides[a] + 1)
        for a in range(rank)
    ]
    share, inner = w.shape[0] // groups, w.shape[1]
    result = numpy.zeros((x.shape[0], w.shape[0], *counts))
    for taps in product(*map(range, w.shape[2:])):
        cuts = tuple(
            slice(t * d, t * d + s * (count - 1) + 1, s) if count else slice(0, 0)
            for t, d, s, count in zip(taps, dilations, strides, counts)
        )
        part = padded[(slice(None), slice(None), *cuts)]
        for group in range(groups):
            rows = slice(group * share, (group + 1) * share)
            channels = part[:, group * inner : (group + 1) * inner]
            weights = w[(rows, slice(None), *taps)].astype(numpy.float64)
            result[:, rows] += numpy.einsum("mc,nc...->nm...", weights, channels)
    return result if bias is None else result + bias.reshape(-1, *(1,) * rank)


def check(
    case: Case, prepared: Prepared, sizes: Mapping[str, int], parts: int = 1, compiled: bool = True
) -> None:
    """Float32 sums of k products differ from exact ones by at most k roundings of their terms."""
    arrays = case.arrays(sizes)
    (found,) = prepared.outputs(arrays, sizes, parts, compiled)
    exact = convolved(*arrays, **case.attributes)
    assert found.shape == exact.shape
    magnitude = convolved(*map(numpy.abs, arrays), **case.attributes)
    epsilon = {"float32": 6e-8, "float64": 1.2e-16}.get(case.dtype.name, 0)
    k = max(1, numpy.prod(arrays[1].shape[1:], dtype=int))
    assert (numpy.abs(found - exact) <= 2 * epsilon * (k + 2) ** 0.5 * 4 * magnitude + 1e-30).all()
