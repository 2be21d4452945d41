"""Operators that are no comprehension: sorting, selecting, marking; what the record of one holds.

A routine is written in loop IR by hand (`kernels/routines/`). Its results have sizes that are
known before it runs; where data decides how much there is, it fills a result of the largest size
and a count, and a `sizes` node after it makes a dim of the count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.records import dataclass
from anydim.kernels.launch import Launch, Machine
from anydim.lang.tree import Tensor, TensorType
from anydim.sizes import Box, Guard

Types = Sequence[TensorType]
Attributes = Mapping[str, Any]
Arrays = Sequence[numpy.ndarray]
Dims = Mapping[str, int]
Results = tuple[numpy.ndarray, ...]


@dataclass(frozen=True)
class Steps:
    """Launches that run in order, and the tensors that live only between them.

    Arguments of the launches are named "x0", "x1", ... for the inputs, which are only read, "y0",
    "y1", ... for the results, or by the name of one of `temporaries`. A launch may read and change
    what an earlier one wrote; results and temporaries hold anything before.
    """

    launches: tuple[Launch, ...]
    temporaries: tuple[Tensor, ...] = ()


def no_guards(types: Types, attributes: Attributes, box: Box) -> tuple[Guard, ...]:
    """Of a routine that is right at every size."""
    return ()


@dataclass(frozen=True, eq=False)
class Routine:
    """What an operator gives, means and does; attributes are complete.

    It takes so many `inputs`, at least and at most. `infer` gives the types of the results, whose
    sizes are expressions over the dims of the box; it raises GraphError for inputs or attributes
    that do not fit. `guards` must hold of the sizes.
    `evaluate` is the meaning in numpy: the results for input arrays, where `sizes` holds the dims.
    `lower` gives the steps in native code, right at every size in the box where the guards hold.
    """

    inputs: tuple[int, int]
    infer: Callable[[Types, Attributes, Box], tuple[TensorType, ...]]
    evaluate: Callable[[Arrays, Attributes, Dims], Results]
    lower: Callable[[Types, Attributes, Box, Machine], Steps]
    guards: Callable[[Types, Attributes, Box], tuple[Guard, ...]] = no_guards
