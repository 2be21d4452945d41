"""The inputs of a run, checked as in onnxruntime and converted for the model.

Accepts numpy arrays, OrtValues, and lists of numbers; for sequences, lists of arrays. Messages are
onnxruntime's where programs may parse them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy

from anydim.base.onnx_notation import ELEMENT_TYPES, is_open
from anydim.base.records import dataclass
from anydim.base.user_values import short_repr
from anydim.ort.errors import InvalidArgument, ObjectRefused, ValueRefused
from anydim.ort.metadata import NodeArg
from anydim.ort.values import STRING, OrtValue, element_of, numpy_of, type_name
from anydim.runtime.variations import PLAIN, Variable, Variation, rank_of

_MEND = "Please fix either the inputs/outputs or the model."


@dataclass(frozen=True)
class InputSpec:
    """The specification of an input, as a run checks it.

    `element` is 0 unless the input is a tensor of numbers or strings. `fixed` holds (axis, size),
    `named` (axis, name); `rank` is None if the file declares no shape.
    """

    name: str
    type: str
    element: int
    rank: int | None
    fixed: tuple[tuple[int, int], ...]
    named: tuple[tuple[int, str], ...]
    dtype: numpy.dtype | None

    @property
    def optional(self) -> bool:
        """Whether a run may omit it."""
        return self.type.startswith("optional")


def input_spec(arg: NodeArg, element: int, has_shape: bool = True) -> InputSpec:
    """The specification of an input; `element` is its tensor element type, 0 for other types."""
    if element != STRING and element not in ELEMENT_TYPES:
        return InputSpec(arg.name, arg.type, 0, None, (), (), None)
    axes = list(enumerate(arg.shape))
    return InputSpec(
        arg.name, arg.type, element, len(axes) if has_shape else None,
        tuple((axis, size) for axis, size in axes if isinstance(size, int) and size > 0),
        tuple((axis, size) for axis, size in axes if isinstance(size, str) and not is_open(size)),
        None if element == STRING else numpy_of(element),
    )  # fmt: skip


def input_spec_of(arg: NodeArg, kind: Any) -> InputSpec:
    """The specification of an input that a file declares with this TypeProto."""
    tensor = kind.tensor_type
    return input_spec(arg, tensor.elem_type, tensor.HasField("shape"))


class Feeds:
    """The inputs of a session, required and optional."""

    def __init__(
        self,
        inputs: Sequence[InputSpec],
        overridable: Sequence[InputSpec],
        variable: Variable | None,
    ) -> None:
        self._inputs = inputs
        self._variable = variable  # None: runs do not vary
        self._needed = [each.name for each in inputs if not each.optional]
        self._absent = [each.name for each in inputs if each.optional]
        self._known = {each.name: each for each in (*inputs, *overridable)}
        self._names = {name for each in inputs for _, name in each.named}
        self._twice = sum(len(each.named) for each in inputs) > len(self._names)

    def missing(self, given: Mapping[str, Any]) -> None:
        """Raise ValueError if a feed lacks a required input."""
        names = given.keys()
        absent = [name for name in self._needed if name not in names]
        if absent:
            raise ValueRefused(
                f"Required inputs ({absent}) are missing from input feed ({list(names)})."
            )

    def take_inputs(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], Variation]:
        """The inputs for the model of a variation, and the variation; raises InvalidArgument."""
        taken: dict[str, Any] = dict.fromkeys(self._absent)
        for name, value in given.items():
            spec = self._known.get(name)
            if spec is None:
                raise InvalidArgument(f"Invalid input name: {name}", self._hint())
            taken[name] = check_input(spec, value)
        return taken, self._variation(taken)

    @property
    def names(self) -> list[str]:
        """All inputs that a run accepts."""
        return list(self._known)

    @property
    def complete(self) -> bool:
        """Whether the model can be compiled before a run gives the ranks."""
        return self._variable is None or not self._variable.open

    @property
    def ranked(self) -> bool:
        """Whether the file declares the rank of every input."""
        return self._variable is None or not self._variable.unranked

    def _hint(self) -> str:
        return f"the inputs are {', '.join(self._known)}"

    def _variation(self, taken: Mapping[str, Any]) -> Variation:
        found = PLAIN
        if self._variable is not None:
            found = self._variable.variation(taken, lambda name: rank_of(taken[name]))
        if self._twice and self._differ(taken):
            return replace(found, apart=True)
        return found

    def _differ(self, taken: Mapping[str, Any]) -> bool:
        """Whether axes of one name differ in size."""
        sizes: dict[str, int] = {}
        for each in self._inputs:
            if each.named:
                shape = taken[each.name].shape
                for axis, name in each.named:
                    if sizes.setdefault(name, shape[axis]) != shape[axis]:
                        return True
        return False


def check_input(spec: InputSpec, value: Any) -> Any:
    """Check one input; arrays get the right type and rank, lists and mappings are unchanged."""
    if isinstance(value, OrtValue):
        value = value.held
    if not spec.element:
        return _non_tensor(spec, value)
    if not isinstance(value, numpy.ndarray):
        value = _from_list(spec, value)
    dtype = value.dtype
    if dtype != spec.dtype:
        if element_of(value) != spec.element:
            raise InvalidArgument(
                f"Unexpected input data type. Actual: (tensor({_type_of(value)})) ,"
                f" expected: ({spec.type})",
                f"input '{spec.name}': convert it with array.astype",
            )
        value = value.astype(spec.dtype or object)
    if spec.rank is not None:
        if value.ndim != spec.rank:
            raise InvalidArgument(
                f"Invalid rank for input: {spec.name} Got: {value.ndim} Expected: {spec.rank}"
                f" {_MEND}"
            )
        for axis, size in spec.fixed:
            if value.shape[axis] != size:
                raise _sizes(spec, value)
    return value


def _type_of(array: numpy.ndarray) -> str:
    return type_name(element_of(array)) if element_of(array) else str(array.dtype)


def _sizes(spec: InputSpec, value: numpy.ndarray) -> InvalidArgument:
    lines = "".join(
        f"\n index: {axis} Got: {value.shape[axis]} Expected: {size}"
        for axis, size in spec.fixed if value.shape[axis] != size
    )  # fmt: skip
    begin = f"Got invalid dimensions for input: {spec.name} for the following indices"
    return InvalidArgument(f"{begin}{lines}\n {_MEND}")


def _from_list(spec: InputSpec, value: Any) -> numpy.ndarray:
    """A tensor from lists of numbers."""
    if isinstance(value, list):
        try:
            return numpy.array(value, dtype=spec.dtype or object)
        except (TypeError, ValueError, OverflowError):
            raise ObjectRefused(
                "Could not create tensor from given input list", f"input '{spec.name}'"
            ) from None
    if isinstance(value, (tuple, str)):
        raise ObjectRefused(
            f"Input must be a list of dictionaries or a single numpy array for input '{spec.name}'."
        )
    raise ObjectRefused(
        f"Unable to handle object of type {type(value)}",
        f"input '{spec.name}' is {short_repr(value)}, expected a numpy array of {spec.type}",
    )


def _non_tensor(spec: InputSpec, value: Any) -> Any:
    """A sequence, an optional or a mapping; the model checks its contents."""
    if spec.type.startswith("seq(tensor") and not isinstance(value, list):
        received = "a tensor" if isinstance(value, numpy.ndarray) else type(value).__name__
        raise InvalidArgument(
            f"input with name: '{spec.name}' expected to be of type: {spec.type} but received"
            f" {received}"
        )
    return value
