"""The derivations of a program's constants as JSON, and their repetition on other weights.

    {"texts":   ["input float32[64] t0 ...", ...],              groups
     "steps":   [["weight", 3], ["evaluate", [0, 1], ...], ["scale", [0, 2], [64, 1]], ...],
     "outputs": {"conv1/panels16": [2, {"is": "Panels", ...}], ...},
     "facts":   [[1, "finite", true], ...],
     "weights": [[3, "conv1.weight", "float32", [64, 3, 7, 7], ""], ...],
     "structure": "8d5e..."}                                    digest of the source without them

A weight has a digest if its contents belong to the structure. Steps refer to those before them.
Constants that no weight determines are in the program's file; the elements of small ones that a
step needs are in the record.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy

from anydim.base.dtypes import DTYPES, from_numpy
from anydim.base.records import fields_of
from anydim.compiler.graph.derivations import (
    FACTS,
    Converted,
    Evaluated,
    LastAxis,
    Quantised,
    Scaled,
    Step,
    Weight,
    weights_of,
)
from anydim.compiler.graph.nodes import Constant
from anydim.lang.surface.group_text import parse_group
from anydim.lang.surface.printer import print_group
from anydim.lang.tree import Expr, Group, Read
from anydim.lang.tree.affine import rewrite
from anydim.runtime.packing import pack
from anydim.runtime.pages import Pages
from anydim.runtime.panels import BytesPanels, NarrowPanels, Packing, Panels, ProductPanels

_PACKINGS = {each.__name__: each for each in (Panels, ProductPanels, BytesPanels, NarrowPanels)}
_MOST_BYTES = 1 << 16  # of a constant in the record


def write_record(
    constants: Mapping[str, tuple[Constant, Packing | None]],
    weights: Sequence[Weight],
    structure: str,
) -> bytes:
    """The record of the constants of a program, by name, and the weights of its source.

    `structure` is the digest of the source without them. Empty if a step needs a large constant
    that no weight determines.
    """
    writer = _Writer()
    try:
        outputs = {
            name: [writer.step(constant), _packing_as_json(packing)]
            for name, (constant, packing) in constants.items() if weights_of([constant])
        }  # fmt: skip
        facts = {(writer.step(constant), fact): answer
                 for weight in weights for constant, fact, answer in weight.facts}  # fmt: skip
    except _NoData:
        return b""
    return json.dumps({
        "texts": list(writer.texts), "steps": writer.steps, "outputs": outputs,
        "facts": [[*key, answer] for key, answer in facts.items()],
        "structure": structure, "weights": [
            [each.number, each.name, each.dtype.name, list(each.shape), each.digest]
            for each in sorted(weights, key=lambda weight: weight.number)
        ],
    }).encode()  # fmt: skip


class _NoData(Exception):
    """A constant that the record cannot hold."""


class _Writer:
    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.steps: list[list[Any]] = []
        self._numbers: dict[int, int] = {}  # of constants, by identity
        self._held: list[Constant] = []  # an identity lasts as long as its object

    def step(self, constant: Constant) -> int:
        """The number of the step that makes a constant."""
        key = id(constant.origin if isinstance(constant.origin, Weight) else constant)
        if key not in self._numbers:
            row = self._row(constant)
            self._numbers[key] = len(self.steps)
            self._held.append(constant)
            self.steps.append(row)
        return self._numbers[key]

    def _row(self, constant: Constant) -> list[Any]:
        origin = constant.origin
        if isinstance(origin, Weight):
            return ["weight", origin.number]
        if origin is None or not weights_of([constant]):
            return _data(constant)
        inputs = [self.step(each) for each in origin.inputs]
        step = origin.step
        if isinstance(step, Scaled):
            return ["scale", inputs, list(step.shape)]
        if isinstance(step, Converted) and step.parts > 1:
            return ["parts", inputs, step.dtype.name, step.parts]
        if isinstance(step, LastAxis):
            return ["axis", inputs, step.axis]
        if isinstance(step, Converted):
            return ["convert", inputs, step.dtype.name]
        if isinstance(step, Quantised):
            return ["quantise", inputs, list(step.order), list(step.along), step.scales]
        assert isinstance(step, Evaluated)  # panels are held as those of their product
        text = print_group(_rename_tensors(step.group))
        number = self.texts.setdefault(text, len(self.texts))
        return ["evaluate", inputs, number, step.dtype.name, step.long, step.output]


def _data(constant: Constant) -> list[Any]:
    array = constant.elements
    if array.nbytes > _MOST_BYTES or not array.flags.c_contiguous:
        raise _NoData  # sums of elements in another order may have other bits
    text = b64encode(array.tobytes()).decode()
    return ["data", [], from_numpy(array.dtype).name, list(array.shape), text]


def _rename_tensors(group: Group) -> Group:
    """A group of statements with numbered tensors, so that equal ones have one text."""
    if group.steps or group.guards:
        return group
    tensors = (*group.inputs, *group.temporaries, *group.outputs)
    names = {tensor.name: f"t{number}" for number, tensor in enumerate(tensors)}

    def rename(expr: Expr) -> Expr | None:
        return replace(expr, tensor=names[expr.tensor]) if isinstance(expr, Read) else None

    def with_names(given: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(replace(tensor, name=names[tensor.name]) for tensor in given)

    statements = tuple(
        replace(each, target=names[each.target], body=rewrite(each.body, rename))
        for each in group.statements
    )
    parts = (
        with_names(group.inputs), with_names(group.outputs), statements,
        with_names(group.temporaries),
    )  # fmt: skip
    return Group(*parts)


def _packing_as_json(packing: Packing | None) -> Any:
    if packing is None:
        return None
    fields = {each.name: getattr(packing, each.name) for each in fields_of(type(packing))}
    return {"is": type(packing).__name__, **fields}


# ---- repetition --------------------------------------------------------------------------------


def derive_again(
    whole: Mapping[str, Any], weight: Callable[[int], numpy.ndarray]
) -> dict[str, numpy.ndarray] | None:
    """The constants of a program for other weights, by name; None if a fact differs for them.

    `whole` is the parsed record. Raises ValueError, KeyError, TypeError, IndexError or a UserError
    for an invalid record.
    """
    derived = _Derived(whole, weight)
    for step, fact, answer in whole["facts"]:
        if FACTS[fact](derived.take(step)) != answer:
            return None
    return {name: derived.output(*row) for name, row in whole["outputs"].items()}


class _Derived:
    """The arrays of steps, each held until its last use."""

    def __init__(self, whole: Mapping[str, Any], weight: Callable[[int], numpy.ndarray]) -> None:
        self._steps, self._weight, self._pages = whole["steps"], weight, Pages()
        self._made: dict[int, numpy.ndarray] = {}
        self._room = numpy.empty(0, numpy.uint8)
        self._uses = Counter(n for kind, inputs, *_ in self._steps if kind != "weight"
                             for n in inputs)  # fmt: skip
        self._uses.update(number for number, *_ in (*whole["facts"], *whole["outputs"].values()))
        self._group = cache(lambda number: parse_group(whole["texts"][number]))

    def take(self, number: int) -> numpy.ndarray:
        """The array of a step, for one of its uses."""
        array = self._made.get(number)
        if array is None:
            array = self._make(*self._steps[number])
        self._uses[number] -= 1
        if self._uses[number]:
            self._made[number] = array
        else:
            self._made.pop(number, None)
        return array

    def output(self, number: int, packing: Mapping[str, Any] | None) -> numpy.ndarray:
        """The array of a step as a kernel reads it."""
        if packing is None:
            return numpy.require(self.take(number), None, ("C", "A"))
        fields = {name: _tuples(value) for name, value in packing.items() if name != "is"}
        return pack(self._take_to_pack(number), _PACKINGS[packing["is"]](**fields), self._pages)

    def _take_to_pack(self, number: int) -> numpy.ndarray:
        """The array of a step, in memory that the next one reuses if it is a product: pages of new
        memory cost four times as much as the product itself."""
        kind, inputs, *rest = self._steps[number]
        if kind != "scale" or self._uses[number] > 1:
            return self.take(number)
        array, scale = map(self.take, inputs)
        if array.dtype != scale.dtype:
            return Scaled(tuple(*rest)).run(array, scale)
        if array.nbytes > self._room.nbytes:
            self._room = numpy.empty(array.nbytes, numpy.uint8)
        made: numpy.ndarray = self._room[: array.nbytes].view(array.dtype).reshape(array.shape)
        numpy.copyto(made, array)  # which may be unaligned, and then is multiplied in pieces
        return numpy.multiply(made, scale.reshape(*rest), out=made)

    def _make(self, kind: str, inputs: Any, *rest: Any) -> numpy.ndarray:
        if kind == "weight":
            return self._weight(inputs)
        if kind == "data":
            dtype, shape, text = rest
            flat = numpy.frombuffer(b64decode(text), numpy.uint8)
            return flat.view(DTYPES[dtype].numpy).reshape(shape)
        arrays = [*map(self.take, inputs)]
        if kind == "evaluate":  # numpy sums unaligned elements in other parts
            arrays = [numpy.require(each, None, "A") for each in arrays]
        return self._step(kind, *rest).run(*arrays)

    def _step(self, kind: str, *rest: Any) -> Step:
        if kind == "parts":
            return Converted(DTYPES[rest[0]], rest[1])
        if kind == "scale":
            return Scaled(tuple(*rest))
        if kind == "axis":
            return LastAxis(*rest)
        if kind == "convert":
            return Converted(DTYPES[rest[0]])
        if kind == "quantise":
            return Quantised(*map(_tuples, rest))
        number, dtype, long, output = rest
        return Evaluated(self._group(number), DTYPES[dtype], long, output)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
