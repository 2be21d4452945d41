"""Requests of models with strings: each has a call of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from anydim.base.errors import InputError, OptionError
from anydim.base.text import listed
from anydim.program.string_calls import StringCalls
from anydim.runtime.arrays import by_name
from anydim.serving.equal_form import EqualForm
from anydim.serving.item import Item

STRING_BYTES = 56  # of a string of Python, beside its characters
_TENSOR = "tensor("


class StringForm:
    """Operators before native code run when a request is read, so that the sizes of its call are
    known. Strings of results count as pointers."""

    def __init__(self, model: StringCalls) -> None:
        if model.core is None:
            raise OptionError(f"{model.name} has no native part: all of it is on strings",
                              "call the model")  # fmt: skip
        wrong = [port.name for port in (*model.ports[0], *model.ports[1])
                 if not port.type.startswith(_TENSOR)]  # fmt: skip
        if wrong:
            raise OptionError(f"{model.name}: '{wrong[0]}' is no tensor", "call the model")
        self.name, self._model, self._inner = model.name, model, EqualForm(model.core, None)
        self.executable, self.costs = model.core.executable, self._inner.costs
        self.most_rows: int | None = 1

    def read(self, given: Any, outputs: Sequence[str] | None) -> Item:
        """As `Form.read`. Raises InputError or DimError."""
        model, names = self._model, [port.name for port in self._model.ports[1]]
        unknown = [name for name in outputs or () if name not in names]
        if unknown:
            raise InputError(f"{self.name} has no result '{unknown[0]}'",
                             f"its results: {listed(names)}")  # fmt: skip
        if not isinstance(given, dict):
            values = given if isinstance(given, tuple) else (given,)
            given = by_name(self.name, model.input_names(), values, {})
        known = model.before(given)
        inner = self._inner.read(model.native_inputs(known), None)
        strings = sum(map(string_bytes, known.values()))
        content = (known, inner, names if outputs is None else list(outputs))
        return Item(
            (), inner.sizes, 1, inner.extent, inner.own, inner.input_bytes + strings,
            inner.output_bytes, content,
        )  # fmt: skip

    def overhead(self, item: Item) -> float:
        """As `Form.overhead`."""
        return self._inner.overhead(item)

    def sizes(self, items: Sequence[Item]) -> dict[str, int]:
        """As `Form.sizes`."""
        return items[0].sizes

    def run(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        """As `Form.run`. Raises the errors of a call."""
        found = []
        for item in items:
            known, inner, wanted = item.content
            results = self._model.after({**known, **self._inner.run([inner])[0]})
            found.append({name: results[name] for name in wanted})
        return found

    def idle_bytes(self) -> int:
        """As `Form.idle_bytes`."""
        return self._inner.idle_bytes()

    def trim(self) -> None:
        """As `Form.trim`."""
        self._inner.trim()


def string_bytes(value: Any) -> int:
    """Bytes of the strings of an array; 0 for other values."""
    if not isinstance(value, numpy.ndarray) or value.dtype.kind != "O":
        return 0
    return value.nbytes + sum(STRING_BYTES + len(each) for each in value.reshape(-1).tolist())
