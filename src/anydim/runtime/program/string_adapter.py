"""Models with strings: operators on strings run before and after the native part."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy

from anydim.base.dtypes import DTYPES, DType
from anydim.base.errors import InputError, OptionError
from anydim.base.text import quote_list
from anydim.runtime.arrays import by_name
from anydim.runtime.output_arrays import given_by_name
from anydim.runtime.program.adapter import Adapter, Call, Feeds
from anydim.runtime.signature import Signature, TensorSpec
from anydim.runtime.string_operators import READERS
from anydim.sizes import Box, Size, as_size

Part = Callable[[Mapping[str, Any]], Mapping[str, Any]]
STRING_BYTES = 56  # of a string of Python, beside its characters
_TENSOR = "tensor("
_NUMPY_NAMES = {"float": "float32", "double": "float64"}


class Port(Protocol):
    """An input or output: `type` as onnxruntime writes it, `reader` a key of `READERS`."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def reader(self) -> str: ...

    @property
    def shape(self) -> Sequence[int | str | None]:
        """Numbers, names or None."""


class StringAdapter(Adapter):
    """`early` and `late` run on the host, before and after the program `native`, if there is one.

    `ports` are the inputs and outputs. `parts` is what a saved file needs of these parts.
    """

    on_strings = True

    def __init__(
        self, name: str, native: Signature | None, ports: tuple[Sequence[Any], Sequence[Any]],
        early: Part, late: Part, parts: Any = None,
    ) -> None:  # fmt: skip
        self.ports: tuple[Sequence[Port], Sequence[Port]] = ports
        self.native, self.parts, self._early, self._late = native, parts, early, late
        self._readers = {port.name: port.reader for port in ports[0]}
        self._results = [port.name for port in ports[1]]
        box = Box(()) if native is None else native.box
        inputs, outputs = (tuple(map(_spec, each)) for each in ports)
        self.signature = Signature(name, box, inputs, outputs)

    def run(self, call: Call, given: Mapping[str, Any], out: Any = None) -> dict[str, Any]:
        """As `Adapter.run`: strings on the host, the rest in native code. Raises InputError."""
        name = self.signature.name
        if out is not None and given_by_name(out, self._results, name):
            raise OptionError(
                f"{name} works on strings, and `out` is for results of native code",
                "omit `out`: results are new arrays",
            )
        feeds, known = self.encode(given)
        return self.decode({} if self.native is None else call(**feeds), known)

    def encode(self, given: Mapping[str, Any]) -> tuple[Feeds, Any]:
        """As `Adapter.encode`: the values that are known before native code runs."""
        names, model = list(self._readers), self.signature.name
        unknown = [name for name in given if name not in self._readers]
        missing = [name for name in names if name not in given]
        if unknown or missing:
            problem = f"has no input '{unknown[0]}'" if unknown else f"needs input '{missing[0]}'"
            raise InputError(f"{model} {problem}", f"its inputs are {quote_list(names)}")
        known = {name: READERS[self._readers[name]](name, value) for name, value in given.items()}
        known |= self._early(known)
        native = () if self.native is None else self.native.inputs
        return {spec.name: known[spec.name] for spec in native}, known

    def encode_item(self, given: Any) -> tuple[Any, Any]:
        """As `Adapter.encode_item`."""
        if not isinstance(given, Mapping):
            values = given if isinstance(given, tuple) else (given,)
            given = by_name(self.signature.name, list(self._readers), values, {})
        return self.encode(given)

    def decode(self, results: Mapping[str, Any], known: Any) -> dict[str, Any]:
        """As `Adapter.decode`."""
        found = {**known, **results}
        found |= self._late(found)
        return {name: found[name] for name in self._results}

    def bytes_of(self, known: Any) -> int:
        """As `Adapter.bytes_of`: the strings."""
        return sum(map(string_bytes, known.values()))

    def check_map(self) -> None:
        """Raise OptionError: the memory of strings is unknown."""
        raise OptionError(f"{self.signature.name} works on strings", "call it for each item")

    def check_batcher(self, batch: str | None) -> None:
        """As `Adapter.check_batcher`."""
        name = self.signature.name
        if batch is not None:
            raise OptionError(f"{name} works on strings, and its requests share no calls",
                              "leave `batch` out")  # fmt: skip
        wrong = [port.name for each in self.ports for port in each
                 if not port.type.startswith(_TENSOR)]  # fmt: skip
        if wrong:
            raise OptionError(f"{name}: '{wrong[0]}' is no tensor", "call the model")


def _spec(port: Port) -> TensorSpec:
    """A tensor of a port; of a list or a map, its type without axes."""
    kind = port.type.removeprefix(_TENSOR).removesuffix(")")
    kind = _NUMPY_NAMES.get(kind, kind)
    dtype = DTYPES.get(kind) or DType(kind, "string", 0)
    sizes = port.shape if port.type.startswith(_TENSOR) else ()
    return TensorSpec(port.name, dtype, tuple(map(_size, sizes)))


def _size(axis: int | str | None) -> Size:
    """The size of an axis; '_' if it has no name, and for what no name of a size has."""
    if isinstance(axis, int):
        return as_size(axis)
    name = re.sub(r"[^A-Za-z0-9_.]", "_", axis or "_")
    return Size.symbol(name if name[0].isalpha() else f"_{name.lstrip('_')}")


def string_bytes(value: Any) -> int:
    """Bytes of the strings of an array; 0 for other values."""
    if not isinstance(value, numpy.ndarray) or value.dtype.kind != "O":
        return 0
    return value.nbytes + sum(STRING_BYTES + len(each) for each in value.reshape(-1).tolist())
