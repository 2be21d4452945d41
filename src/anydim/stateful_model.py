"""Models that own state: tensors that a call reads and writes back, as a module's buffers."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from anydim.base.errors import InputError
from anydim.model import Model
from anydim.runtime.arrays import by_name
from anydim.runtime.signature import TensorSpec


class StatefulModel(Model):
    """A model of a module that writes to its buffers or inputs; calls are serialised.

    `state` are the buffers by input of `core`: their memory is the module's, or the program's that
    was compiled. `written` are the outputs of `core` that a call copies into an input, by input.
    """

    def __init__(self, core: Model, state: Mapping[str, Any], written: Mapping[str, str]) -> None:
        self.core, self.state, self.written = core, dict(state), dict(written)
        self._lock = threading.Lock()
        self._made = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "core":  # before it is set
            raise AttributeError(name)
        return getattr(self.core, name)  # a saved program has its state as inputs

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs of a call: those of the program without its state."""
        return tuple(spec for spec in self.core.inputs if spec.name not in self.state)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The results of a call: those of the program without what is written back."""
        return tuple(s for s in self.core.outputs if s.name not in self.written.values())

    def __call__(self, *values: Any, **named: Any) -> dict[str, Any]:
        """Run the model, and write new values into its state and inputs. Raises as a model."""
        if values:
            named = by_name(self.name, [spec.name for spec in self.inputs], values, named)
        for name in named:
            if name in self.state:
                raise InputError(f"{self.name} owns '{name}'", "change it in `model.state`")
        with self._lock:
            found = self.core(**named, **self.state)
            for name, result in self.written.items():
                kept = self.state[name] if name in self.state else named[name]
                kept[...] = found.pop(result)
        return found

    def __repr__(self) -> str:
        return f"{self.core!r} with state"

    def __reduce__(self) -> tuple[Any, ...]:
        return StatefulModel, (self.core, self.state, self.written)
