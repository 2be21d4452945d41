"""Compares the model of an exported function with the exported program, run by torch.

Numbers are those of the first call, sizes are free. Calls that torch's program refuses, because its
guards do not hold or because an operator fails, are left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import Dim

import anydim as ad
from tests.torch.functions.function import NUMBERS, Applied, Function, Given, Point, given
from tests.torch.functions.judge import Failure, difference, shown


class _WithNumbers(Applied):
    """A function with its numbers as a module."""

    def __init__(self, function: Function) -> None:
        super().__init__(function)
        self.numbers = tuple(function.points[0][name] for name in function.numbers)

    def forward(self, *tensors: torch.Tensor) -> Any:
        return super().forward(*tensors, *self.numbers)


def judge_exported(function: Function) -> Failure | None:
    """The first difference of the model from the program; None for what is not exported."""
    if function.is_random:  # models draw numbers of their own
        return None
    function = replace(function, is_recorded=False)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = _exported(function)
        if program is None or _writes_weights(program):
            return None
        try:
            model = ad.compile(program)
        except ad.UserError:
            return None  # refused
        except Exception as error:
            return Failure("error", shown(error))
        module = program.module()
        for point in _points(function):
            found = _at(function, point, module, model)
            if found is not None and _at(function, point, _functional(program), model):
                return replace(found, reason=f"exported, at {dict(point)}: {found.reason}")
    return None


def _points(function: Function) -> list[Point]:
    numbers = {name: function.points[0][name] for name in NUMBERS if name in function.points[0]}
    return [{**point, **numbers} for point in function.points]


def _exported(function: Function) -> Any:
    """The program with free sizes; None if torch cannot export the function."""
    module = _WithNumbers(function)
    inputs = module.given(given(function, function.points[0]))
    free = tuple(
        {axis: Dim.AUTO for axis, dim in enumerate(each.dims) if isinstance(dim, str)}
        for each in function.inputs[: module.count]
    )
    try:
        return torch.export.export(
            module, inputs.tensors[: module.count], dynamic_shapes=(free,), strict=False
        )
    except Exception:  # torch raises any kind
        return None


def _writes_weights(program: Any) -> bool:
    """Whether calls change weights, which the model and torch's program share."""
    try:
        signature = program.run_decompositions({}).graph_signature
    except Exception:  # torch raises any kind
        return True
    return bool(signature.parameters_to_mutate or signature.buffers_to_mutate)


def _functional(program: Any) -> Any:
    """The program without changes in place, as torch makes it: what the model is made of."""
    return program.run_decompositions({}).module()


def _at(function: Function, point: Point, module: Any, model: Any) -> Failure | None:
    count = sum(each.layout != "weight" for each in function.inputs)
    wanted, found = (_first_inputs(given(function, point), count) for _ in range(2))
    try:
        expected = torch.utils._pytree.tree_leaves(module(*wanted.tensors))
    except Exception:  # a guard, or an operator
        return None
    try:
        made = model(*found.tensors)
    except ad.DimError:  # torch's program checks no sizes that it does not read
        return None
    except Exception as error:
        is_of_expanded = "more than one element of the written-to tensor" in str(error)
        return None if is_of_expanded else Failure("error", shown(error))
    results = torch.utils._pytree.tree_leaves(made)
    if len(expected) != len(results):
        return Failure("results", f"{len(results)} results, of eager {len(expected)}")
    return _first_difference(results, expected, found, wanted)


def _first_inputs(inputs: Given, count: int) -> Given:
    """Without weights, which the program keeps."""
    return Given(inputs.leaves[:count], inputs.tensors[:count])


def _first_difference(
    results: Sequence[Any], expected: Sequence[Any], found: Given, wanted: Given
) -> Failure | None:
    expected = [
        torch.tensor(eager, dtype=ours.dtype)
        if isinstance(ours, torch.Tensor) and not isinstance(eager, torch.Tensor) else eager
        for ours, eager in zip(results, expected)
    ]  # numbers that depend on sizes are tensors  # fmt: skip
    pairs = [("values", *pair) for pair in zip(results, expected)]
    pairs += [("inputs", *pair) for pair in zip(found.leaves, wanted.leaves)]
    for number, (kind, ours, eager) in enumerate(pairs):
        failure = difference(kind, f"{kind} {number}", ours, eager, lambda: None, True)
        if failure is not None:
            return failure
    return None
