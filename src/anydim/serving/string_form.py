"""Requests of models with strings: each has a call of its own, which may have no native part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from anydim.base.errors import InputError, OptionError
from anydim.base.text import listed
from anydim.program.batches.work import NO_WORK
from anydim.program.string_calls import StringCalls
from anydim.runtime.arrays import by_name
from anydim.serving.costs import Costs
from anydim.serving.equal_form import EqualForm
from anydim.serving.item import Item

STRING_BYTES = 56  # of a string of Python, beside its characters
_TENSOR = "tensor("


class StringForm:
    """Operators before native code run when a request is read, so that the sizes of its call are
    known: all of them, if there is none. Otherwise strings of results count as pointers."""

    def __init__(self, model: StringCalls, name: str = "") -> None:
        wrong = [port.name for port in (*model.ports[0], *model.ports[1])
                 if not port.type.startswith(_TENSOR)]  # fmt: skip
        if wrong:
            raise OptionError(f"{name or model.name}: '{wrong[0]}' is no tensor", "call the model")
        self.name, self._model, core = name or model.name, model, model.core
        self._inner = None if core is None else EqualForm(core, None, self.name)
        self.costs = Costs(NO_WORK, 1) if self._inner is None else self._inner.costs
        self.constant_bytes = 0 if self._inner is None else self._inner.constant_bytes
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
        known, wanted = model.before(given, self.name), names if outputs is None else list(outputs)
        strings = sum(map(string_bytes, known.values()))
        if self._inner is None:
            found = {name: known[name] for name in wanted}
            extent = sum(numpy.size(known[name]) for name in model.input_names())
            return Item(
                (), {}, 1, extent, self.costs.predicted({}), strings,
                sum(array.nbytes + string_bytes(array) for array in found.values()), found,
            )  # fmt: skip
        inner = self._inner.read(model.native_inputs(known), None)
        content = (known, inner, wanted)
        return Item(
            (), inner.sizes, 1, inner.extent, inner.own, inner.input_bytes + strings,
            inner.output_bytes, content,
        )  # fmt: skip

    def overhead(self, item: Item) -> float:
        """As `Form.overhead`."""
        return 0.0  # no two requests share a call

    def sizes(self, items: Sequence[Item]) -> dict[str, int]:
        """As `Form.sizes`."""
        return items[0].sizes

    def run(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        """As `Form.run`. Raises the errors of a call."""
        if self._inner is None:
            return [item.content for item in items]
        found = []
        for item in items:
            known, inner, wanted = item.content
            results = self._model.after({**known, **self._inner.run([inner])[0]})
            found.append({name: results[name] for name in wanted})
        return found

    def idle_bytes(self) -> int:
        """As `Form.idle_bytes`."""
        return 0 if self._inner is None else self._inner.idle_bytes()

    def trim(self) -> None:
        """As `Form.trim`."""
        self._model.trim()


def string_bytes(value: Any) -> int:
    """Bytes of the strings of an array; 0 for other values."""
    if not isinstance(value, numpy.ndarray) or value.dtype.kind != "O":
        return 0
    return value.nbytes + sum(STRING_BYTES + len(each) for each in value.reshape(-1).tolist())
