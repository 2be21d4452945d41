"""`define`: mathematics in the comprehension language as functions on arrays of any size.

    lib = ad.define('''
      def matmul(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
    ''')
    c = lib.matmul(a, b)

A function is compiled on its first call for the dtypes and ranks that came, with every size free:
another size never compiles again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy

from anydim.base.dtypes import DTYPES
from anydim.base.errors import InputError, OptionError
from anydim.base.frozen import FrozenMapping, freeze_value
from anydim.base.text import listed, suggestion
from anydim.frontends.definition import Pattern, graph_of, pattern_of
from anydim.lang.parser import parse
from anydim.lang.syntax import TYPE_NAMES, Definition, Parameter
from anydim.model import Model, compile
from anydim.runtime.arrays import wrapper


def define(text: str, *, file: str = "<text>", threads: int = 1) -> Definitions:
    """Functions from a text in the comprehension language (docs/language.md).

    Raises LanguageError with line, column and caret for a text that cannot be read.
    """
    if not isinstance(text, str):
        raise OptionError(f"define takes a text, not {type(text).__name__}")
    return Definitions(parse(text, file), threads)


class Definitions(Mapping[str, "Function"]):
    """The functions of a text, as attributes and by name."""

    def __init__(self, definitions: Mapping[str, Definition], threads: int) -> None:
        self._functions = {name: Function(d, threads) for name, d in definitions.items()}

    def __getitem__(self, name: str) -> Function:
        return self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __getattr__(self, name: str) -> Function:
        if name.startswith("_") or name not in self._functions:
            hint = suggestion(name, self._functions)
            raise AttributeError(
                f"there is no definition '{name}'; " + (hint or f"there is {listed(self)}")
            )
        return self._functions[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._functions]


class Function:
    """One definition, callable on arrays; results are new arrays (several: a tuple, in order)."""

    def __init__(self, definition: Definition, threads: int) -> None:
        self.definition = definition
        self._threads = threads
        self._models: dict[tuple[Pattern, FrozenMapping[str, Any]], Model] = {}
        self._lock = threading.Lock()

    def __call__(self, *values: Any, **named: Any) -> Any:
        """Call with arrays by position or name; attributes by name."""
        attributes = {a.name: named.pop(a.name) for a in self._attributes() if a.name in named}
        given = self._arguments(values, named)
        arrays = [_array(value, p) for value, p in zip(given, self.definition.parameters)]
        model = self._model(arrays, attributes)
        results = model.executable(dict(zip((s.name for s in model.inputs), arrays)))
        wrap = wrapper(given)
        made = tuple(wrap(result) if wrap else result for result in results.values())
        return made[0] if len(made) == 1 else made

    def model(self, *values: Any, **attributes: Any) -> Model:
        """The compiled model that serves arguments like these, to plan, explain and check."""
        arrays = [_array(v, p) for v, p in zip(values, self.definition.parameters)]
        return self._model(arrays, attributes)

    def _attributes(self) -> tuple[Any, ...]:
        return self.definition.attributes

    def _model(self, arrays: list[numpy.ndarray], attributes: Mapping[str, Any]) -> Model:
        frozen = FrozenMapping({name: freeze_value(value) for name, value in attributes.items()})
        key = (pattern_of(self.definition, arrays), frozen)
        with self._lock:
            if key not in self._models:
                graph = graph_of(self.definition, key[0], frozen)
                self._models[key] = compile(graph, threads=self._threads)
            return self._models[key]

    def _arguments(self, values: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        names = [parameter.name for parameter in self.definition.parameters]
        takes = f"{self.definition.name} takes ({', '.join(names)})"
        if len(values) > len(names):
            raise InputError(f"{takes}; {len(values)} arguments came")
        found = dict(zip(names, values))
        for name, value in named.items():
            if name not in names:
                hint = suggestion(name, [*names, *(a.name for a in self._attributes())])
                raise InputError(f"{takes}, not '{name}'", hint or "")
            if name in found:
                raise InputError(f"{takes}; '{name}' came twice")
            found[name] = value
        missing = [name for name in names if name not in found]
        if missing:
            raise InputError(f"{takes}; {listed(missing)} is missing")
        return [found[name] for name in names]

    def __repr__(self) -> str:
        return f"<anydim definition {self.definition.name}>"


def _array(value: Any, parameter: Parameter) -> numpy.ndarray:
    """An argument as a numpy array; numbers and lists take the declared element type."""
    if isinstance(value, numpy.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        return numpy.from_dlpack(value)
    kind = TYPE_NAMES.get(parameter.type)
    try:
        return numpy.asarray(value, None if kind is None else DTYPES[kind].numpy)
    except (TypeError, ValueError) as error:
        raise InputError(f"argument '{parameter.name}': {error}") from None
