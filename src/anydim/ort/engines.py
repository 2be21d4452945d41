"""Engines that run a session's model: anydim, or the installed onnxruntime as the fallback.

An engine is the model of one variation: inputs by name in, outputs by name out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy

from anydim.base.errors import UserError
from anydim.base.peer import peer_module
from anydim.ort.errors import ObjectRefused, of_peer, of_run
from anydim.ort.options import SessionOptions
from anydim.ort.profiling import Call, Profile
from anydim.ort.values import OrtValue
from anydim.runtime.output_arrays import disjoint, fill
from anydim.runtime.program.callable_program import CallableProgram
from anydim.runtime.stopping import STOP

Repeat = Callable[..., "dict[str, Any] | None"]


class Engine(Protocol):
    """An executable model."""

    def run(self, given: Mapping[str, Any], into: Mapping[str, numpy.ndarray]) -> dict[str, Any]:
        """The outputs by name; those in `into` are written to its arrays. Raises an OrtError."""

    def shrink(self) -> None:
        """Release cached memory to the system."""


class Compiled:
    """A model that anydim compiled or loaded."""

    def __init__(self, model: CallableProgram, profile: Profile | None = None) -> None:
        self.model = model
        self.on_strings = model.on_strings
        self._call: Call | None = None  # for models whose inputs and outputs are all arrays
        self._repeat: Repeat | None = None
        if not self.on_strings and not model.lists:
            self._call = model.executable if profile is None else profile.clock_call(model)
            self._repeat = model.executable.repeat if profile is None else None

    def run(self, given: Mapping[str, Any], into: Mapping[str, numpy.ndarray]) -> dict[str, Any]:
        """Run the model; outputs by name."""
        try:
            if into:
                return self._into(given, into)
            if self._call is not None:
                return self._call(given)
            results = self.model(**given)
        except UserError as error:
            raise of_run(error) from error
        return {name: _text(value) for name, value in results.items()}

    def repeat(
        self, given: Mapping[str, Any], into: Mapping[str, numpy.ndarray] | None
    ) -> dict[str, Any] | None:
        """The outputs of a run like an earlier one; None: nothing ran, the inputs need checking.

        Arrays of `into` share no memory with inputs.
        """
        if self._repeat is None:
            return None
        try:
            return self._repeat(given, into)
        except UserError as error:
            raise of_run(error) from error

    def _into(self, given: Mapping[str, Any], into: Mapping[str, numpy.ndarray]) -> dict[str, Any]:
        """Results in the caller's arrays; written directly if the run does not read them."""
        if self._call is not None:
            results = self._call(given, disjoint(into, list(given.values())))
        else:
            results = dict(self.model(**given))
        for name, array in into.items():
            if results[name] is not array:
                _same_shape(name, results[name], array)
                fill(array, results[name])
                results[name] = array
        return results

    def shrink(self) -> None:
        """Release cached memory to the system."""
        self.model.trim()


def _same_shape(name: str, result: numpy.ndarray, array: numpy.ndarray) -> None:
    if result.shape != array.shape:
        raise ObjectRefused(
            f"The output OrtValue provided for output '{name}' has shape {list(array.shape)} but"
            f" the computed output shape for this run is {list(result.shape)}"
        )


def _text(value: Any) -> Any:
    """Convert a result of strings to Python strings, as onnxruntime returns them."""
    if isinstance(value, numpy.ndarray) and value.dtype.kind in "UT":
        return value.astype(object)
    return value


class _PeerRun:
    """A run of the installed onnxruntime that another thread may stop."""

    def __init__(self, module: Any) -> None:
        self.options = module.RunOptions()

    def set_deadline(self, deadline: int) -> None:
        """Stop the run, if a deadline is given."""
        self.options.terminate = deadline > 0


class Peer:
    """A model run by the installed onnxruntime. Raises MissingError if it is not installed."""

    def __init__(self, source: str | bytes, options: SessionOptions, providers: list[str]) -> None:
        self._module = peer_module()
        try:
            self._session = self._module.InferenceSession(
                source, self._options(options), providers=providers
            )
        except Exception as error:  # its exceptions have no common base
            raise of_peer(error) from None
        self._names = [output.name for output in self._session.get_outputs()]

    def _options(self, options: SessionOptions) -> Any:
        made = self._module.SessionOptions()
        for name in SessionOptions.__annotations__:
            value = getattr(options, name)
            if hasattr(made, name) and name != "enable_profiling":
                kind = type(getattr(made, name))
                setattr(made, name, value if kind in (bool, int, str) else kind(int(value)))
        for key, entry in options.entries.held.items():
            made.add_session_config_entry(key, entry)
        for name, size in options.sizes_by_name.items():
            made.add_free_dimension_override_by_name(name, size)
        for name, size in options.sizes_by_denotation.items():
            made.add_free_dimension_override_by_denotation(name, size)
        kept = [(name, self._value(value)) for name, value in options.initializers.items()]
        for name, value in kept:
            made.add_initializer(name, value)
        self._kept = kept  # the session uses their memory
        for library in options.libraries:
            made.register_custom_ops_library(library)
        return made

    def _value(self, value: OrtValue) -> Any:
        return self._module.OrtValue.ortvalue_from_numpy(value.numpy())

    def run(self, given: Mapping[str, Any], into: Mapping[str, numpy.ndarray]) -> dict[str, Any]:
        """Run the model; outputs by name."""
        fed = {name: value for name, value in given.items() if value is not None}
        made, stop = _PeerRun(self._module), STOP.get()
        if stop is not None:
            stop.add(made)
        try:
            results = dict(zip(self._names, self._session.run(None, fed, made.options)))
        except Exception as error:
            raise of_peer(error) from None
        finally:
            if stop is not None:
                stop.remove(made)
        for name, array in into.items():
            _same_shape(name, results[name], array)
            fill(array, results[name])
            results[name] = array
        return results

    def shrink(self) -> None:
        """No-op: onnxruntime manages its own memory."""
