"""IOBinding: inputs and outputs that are bound to memory once, for many runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Protocol

import numpy

from anydim.base.errors import UserError
from anydim.ort.errors import ObjectRefused, OrtError, ValueRefused
from anydim.ort.metadata import NodeArg
from anydim.ort.values import OrtValue, numpy_of, on_cpu
from anydim.runtime.output_arrays import disjoint

Repeat = Callable[[Mapping[str, Any], "Mapping[str, numpy.ndarray] | None"], Any]
Run = Callable[[Mapping[str, Any], Mapping[str, numpy.ndarray]], dict[str, Any]]


class Session(Protocol):
    """The part of an InferenceSession that a binding uses."""

    @property
    def input_names(self) -> list[str]:
        """All inputs that a run accepts."""

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that a run requires."""

    def get_outputs(self) -> list[NodeArg]:
        """The outputs of a run."""


class IOBinding:
    """Inputs and outputs of a session by name; outputs without memory are allocated per run."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, OrtValue | None] = {}
        self._results: list[OrtValue] | None = []  # None: not converted from `_made` yet
        self._made: Mapping[str, Any] = {}
        self._ready: tuple[dict[str, Any], dict[str, numpy.ndarray] | None] | None = None

    @property
    def _iobinding(self) -> IOBinding:
        return self

    # ---- inputs ----

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an array; every run reads it. Raises RuntimeError for an unknown name."""
        if not isinstance(arr_on_cpu, numpy.ndarray):
            raise ObjectRefused(
                "Unable to create OrtValue from the given python object",
                f"input '{name}' takes a numpy array",
            )
        self._check_name(name)
        self._bind(self._inputs, name, arr_on_cpu)

    def bind_input(
        self, name: str, device_type: Any, device_id: int, element_type: Any,
        shape: Sequence[int], buffer_ptr: int,
    ) -> None:  # fmt: skip
        """Bind memory at an address: elements of a type, [shape]; the caller keeps it alive."""
        self._check_name(name)
        self._bind(self._inputs, name, _memory(device_type, element_type, shape, buffer_ptr))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an OrtValue."""
        self._check_name(name)
        self._bind(self._inputs, name, ortvalue)

    def _check_name(self, name: str) -> None:
        if name not in self.session.input_names:
            raise ObjectRefused(f"Failed to find NodeArg with name: {name} in the def list")

    # ---- outputs ----

    def bind_output(
        self, name: str, device_type: Any = "cpu", device_id: int = 0, element_type: Any = None,
        shape: Sequence[int] | None = None, buffer_ptr: int | None = None,
    ) -> None:  # fmt: skip
        """Request an output, in memory at an address or newly allocated."""
        if buffer_ptr is None:
            on_cpu(str(device_type))
            self._bind(self._outputs, name, None)
            return
        if element_type is None or shape is None:
            raise ValueRefused(
                "`element_type` and `shape` are to be provided if pre-allocated memory is provided"
            )
        self._bind(
            self._outputs, name, OrtValue(_memory(device_type, element_type, shape, buffer_ptr))
        )

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Request an output in the memory of an OrtValue."""
        self._bind(self._outputs, name, ortvalue)

    # ---- runs and results ----

    def run(self, work: Run) -> None:
        """Run on the bound values; any UserError becomes RuntimeError."""
        if not self._outputs:
            raise ObjectRefused("Error in execution: At least one output should be requested.")
        known = [arg.name for arg in self.session.get_outputs()]
        for name in self._outputs:
            if name not in known:
                raise ObjectRefused(f"Error in execution: Invalid output name: {name}")
        absent = [arg.name for arg in self.session.get_inputs() if arg.name not in self._inputs]
        if absent:
            raise ObjectRefused(f"Error in execution: inputs {absent} are not bound")
        into = {name: self._target(name, held) for name, held in self._outputs.items() if held}
        try:
            results = work(self._inputs, into)
        except UserError as error:
            raise _refused_object(error) from error
        self._results, self._made = None, results
        inputs = {
            name: value.held if isinstance(value, OrtValue) else value
            for name, value in self._inputs.items()
        }
        arrays = [each for each in inputs.values() if isinstance(each, numpy.ndarray)]
        if len(arrays) == len(inputs) and len(disjoint(into, arrays)) == len(into):
            self._ready = inputs, into or None

    def repeat_run(self, work: Repeat) -> bool:
        """Repeat the last run if the bindings allow it; False if nothing was done."""
        if self._ready is None:
            return False
        try:
            results = work(*self._ready)
        except UserError as error:
            raise _refused_object(error) from error
        if results is None:
            return False
        self._results, self._made = None, results
        return True

    def _bind(self, bound: dict[str, Any], name: str, value: Any) -> None:
        self._change()
        bound[name] = value

    def _change(self) -> None:
        """Fetch pending results before the bindings change."""
        self.get_outputs()
        self._ready = None

    def _target(self, name: str, held: OrtValue) -> numpy.ndarray:
        array = held.numpy()
        arg = next(arg for arg in self.session.get_outputs() if arg.name == name)
        if held.data_type() != arg.type:
            raise ObjectRefused(
                f"Error in execution: Unexpected output data type. Actual: ({held.data_type()}) ,"
                f" expected: ({arg.type})"
            )
        return array

    def get_outputs(self) -> list[OrtValue]:
        """The results of the last run, in the order in which they were bound."""
        if self._results is None:
            made, self._made = self._made, {}
            self._results = [
                held if held is not None else OrtValue(made[name])
                for name, held in self._outputs.items()
            ]
        return self._results

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """Same as `get_outputs`."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Copies of the results of the last run as arrays."""
        return [
            value.numpy().copy() if value.is_tensor() else value.held
            for value in self.get_outputs()
        ]

    def synchronize_inputs(self) -> None:
        """No-op: inputs are in place when they are bound."""

    def synchronize_outputs(self) -> None:
        """No-op: results are in place when a run ends."""

    def clear_binding_inputs(self) -> None:
        """Remove the input bindings."""
        self._change()
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Remove the output bindings."""
        self._change()
        self._outputs.clear()


def _refused_object(error: UserError) -> ObjectRefused:
    text = error.text if isinstance(error, OrtError) else error.problem
    return ObjectRefused(f"Error in execution: {text}", error.hint)


def _memory(device: Any, element_type: Any, shape: Sequence[int], address: int) -> numpy.ndarray:
    """An array [shape] over memory owned by the caller."""
    on_cpu(str(device))
    dtype = numpy_of(element_type)
    sizes = tuple(map(int, shape))
    if not address or any(size < 0 for size in sizes):
        raise ObjectRefused(f"there is no array of shape {list(sizes)} at address {address}")
    count = prod(sizes) * dtype.itemsize
    held = (ctypes.c_uint8 * count).from_address(int(address))
    return numpy.frombuffer(memoryview(held), numpy.uint8).view(dtype).reshape(sizes)
