"""The record of a routine: an operator that is not a comprehension (sorting, selection, nonzero).

A routine is hand-written in loop IR (`kernels/routines/`). The sizes of its results are known
before it runs; where the number of results depends on data, it fills a result of the largest size
and a count, and a `sizes` node after it turns the count into a dim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.records import dataclass
from anydim.compiler.kernels.launch import Launch, Machine
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

    Arguments of the launches are named "x0", "x1", ... for the inputs, which are read-only, "y0",
    "y1", ... for the results, or by the name of one of `temporaries`. A launch may read and modify
    what an earlier one wrote; results and temporaries are uninitialized before.
    """

    launches: tuple[Launch, ...]
    temporaries: tuple[Tensor, ...] = ()


def no_guards(types: Types, attributes: Attributes, box: Box) -> tuple[Guard, ...]:
    """The guards of a routine that is correct at every size."""
    return ()


@dataclass(frozen=True, eq=False)
class Routine:
    """The result types, meaning and lowering of an operator; attributes are complete.

    `inputs` are the minimum and maximum number of inputs. `infer` gives the types of the results,
    with sizes as expressions over the dims of the box; it raises GraphError for invalid inputs or
    attributes. `guards` are conditions on sizes. `evaluate` is the numpy reference: the results for
    input arrays, where `sizes` holds the dims. `lower` gives the steps in native code, correct at
    every size in the box where the guards hold.
    """

    inputs: tuple[int, int]
    infer: Callable[[Types, Attributes, Box], tuple[TensorType, ...]]
    evaluate: Callable[[Arrays, Attributes, Dims], Results]
    lower: Callable[[Types, Attributes, Box, Machine], Steps]
    guards: Callable[[Types, Attributes, Box], tuple[Guard, ...]] = no_guards
