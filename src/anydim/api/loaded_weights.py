"""`Model.load_weights`: other weights for a compiled model, without a compilation.

The record of a program (`compiler/graph/derivation_record.py`) has the names, types and shapes of
its weights, and how its constants are derived from them. The constants are derived before the model
changes; then later calls read them, and queries that need the compiler are answered by a source
with the new weights.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy

from anydim.api.structures import Source, derive_again
from anydim.base.dtypes import DTYPES, DType
from anydim.base.errors import ModelError, OptionError, UserError
from anydim.base.read_files import FileRead, reads_noted, was_read
from anydim.base.text import quote_list, suggestion
from anydim.base.user_values import absolute, short_repr
from anydim.compiler.frontends.table import frontend_of
from anydim.compiler.graph.derivations import digest_of
from anydim.runtime.arrays import plain
from anydim.runtime.executable import AbsentProgram
from anydim.runtime.pages import ALIGNMENT, Pages
from anydim.runtime.pointers import pointers
from anydim.runtime.signature import TensorSpec
from anydim.sizes import as_size

_COMPILE = "compile it with ad.compile"


def load_weights(model: Any, source: Any) -> None:
    """Load the weights of a source or a mapping; see `Model.load_weights`."""
    _check_kind(model)
    record = model._derivations()
    if record is None or all(digest for *_, digest in record["weights"]):
        raise OptionError(
            f"{model.name} has no weights that can be exchanged",
            "its source is an ONNX model, or a Builder whose constants have names: "
            "g.constant(array, name='w')",
        )
    given: _Arrays | _File
    if isinstance(source, Mapping):
        given = _Arrays(model.name, record, source)
    else:
        given = _File(model.name, record, source)
    try:
        made = derive_again(record, given.weight)
    except OSError as error:
        raise _unreadable(given.name, error) from None
    if made is None:
        raise ModelError(
            f"{given.name}: the program of {model.name} depends on whether some of its weights are "
            "finite, or zero, and these differ",
            _COMPILE,
        )
    pages = Pages()
    arrays = {name: _own(array, pages) for name, array in made.items()}
    model.executable.exchange_constants(arrays)
    model._take_weights(arrays, given)


def _check_kind(model: Any) -> None:
    """Raise OptionError for a model with weights outside of its own program."""
    run = model.executable
    if isinstance(run, AbsentProgram):
        run.refuse()
    elsewhere = (*run.devices, *(part.engine for part in run.interface.handed))
    if elsewhere:
        raise OptionError(
            f"{model.name} has parts on {quote_list(dict.fromkeys(elsewhere))}, which hold weights "
            "of their own", _COMPILE,
        )  # fmt: skip
    if model._varied is not None:
        raise OptionError(
            f"calls of {model.name} may give initializers or ranks, and it has a program for each",
            "remove initializers from the inputs of the file, or compile the other file",
        )


def _unreadable(name: str, error: OSError) -> ModelError:
    reason = error.strerror or error
    return ModelError(f"{name}: cannot be read: {reason}", "give the path of an ONNX file")


def _own(array: numpy.ndarray, pages: Pages) -> numpy.ndarray:
    """The array, aligned, in memory of its own, no view of a file."""
    if array.flags.writeable and not pointers((array,))[0] % ALIGNMENT:  # no view of a file
        return array
    made = pages.take(array.nbytes).view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


class _Arrays:
    """Weights by name. Raises OptionError for names, types and shapes that the model has not."""

    def __init__(self, model: str, record: Mapping[str, Any], source: Mapping[Any, Any]) -> None:
        self.name = f"load_weights of {model}"
        rows = {name: (number, dtype, shape, digest)
                for number, name, dtype, shape, digest in record["weights"]}  # fmt: skip
        unknown = next((name for name in source if name not in rows), None)
        if unknown is not None:
            near = suggestion(unknown, rows) if isinstance(unknown, str) else ""
            raise OptionError(
                f"{model} has no weight {short_repr(unknown)}", near or f"it has {_some(rows)}"
            )
        missing = [name for name, row in rows.items() if not row[3] and name not in source]
        if missing:
            raise OptionError(
                f"load_weights: weight '{missing[0]}' of {model} is missing",
                f"give all {len(rows)} weights; missing are {_some(missing)}",
            )
        self._structure = record["structure"]
        self.arrays: dict[str, numpy.ndarray] = {}
        self._by_number: dict[int, numpy.ndarray] = {}
        for name, value in source.items():
            number, dtype, shape, digest = rows[name]
            where = f"load_weights: weight '{name}' of {model}"
            array = _array(value, DTYPES[dtype], tuple(shape), where)
            if digest and digest_of(array) != digest:
                raise OptionError(
                    f"{where} has other contents, and the program depends on them",
                    f"{_COMPILE}, or leave it out: the model keeps it",
                )
            self.arrays[name] = self._by_number[number] = array

    def weight(self, number: int) -> numpy.ndarray:
        """The array of a weight."""
        return self._by_number[number]

    def request(self, request: Any) -> Any:
        """The request for a source with these weights. Raises OptionError if it has changed."""
        frontend = frontend_of(request.source)
        made = frontend.with_weights(request.source, self.arrays, request.options)
        if self._structure and made.structure() != self._structure:
            raise OptionError(f"{request.path} has changed since it was compiled", _COMPILE)
        return replace(request, source=made)

    @property
    def source(self) -> Any:
        """What `load_weights` takes in another process."""
        return self.arrays


def _array(value: Any, dtype: DType, shape: tuple[int, ...], where: str) -> numpy.ndarray:
    """A copy of a user's array; OptionError for another type or shape."""
    spec = TensorSpec(where, dtype, tuple(map(as_size, shape)))
    wanted = f"expected {dtype}{list(shape)}"
    if not hasattr(value, "dtype"):
        raise OptionError(f"{where} is {short_repr(value)}", f"{wanted}, an array")
    found = f"{where} is {value.dtype}{list(getattr(value, 'shape', ()))}"
    try:
        array = plain(value, spec, dtype.numpy, where)
    except UserError:
        raise OptionError(found, wanted) from None
    if array.shape != shape:
        raise OptionError(found, wanted)
    return array.copy()


def _some(names: Any) -> str:
    """The first names of many."""
    every = [*names]
    return quote_list(every[:5]) + (", ..." if len(every) > 5 else "")


class _File:
    """The weights of a file, of its bytes or of a ModelProto. Raises ModelError, OptionError."""

    def __init__(self, model: str, record: Mapping[str, Any], source: Any) -> None:
        self.source: Any = source
        if hasattr(source, "SerializeToString"):
            self.source = frontend_of(source).contents(source)
        if isinstance(source, bytearray):
            self.source = bytes(source)
        path = absolute(source) if isinstance(source, (str, os.PathLike)) else None
        if path is None and not isinstance(self.source, bytes):
            raise OptionError(
                f"load_weights: {short_repr(source)} is no source of weights",
                "give the path of an ONNX file, its bytes, an onnx.ModelProto, or arrays by name",
            )
        self.source = self.source if path is None else path
        self.name = "the model" if path is None else path
        try:
            with reads_noted() as self._read:
                found = Source(path, None if path else self.source, "")
        except OSError as error:
            raise _unreadable(str(path), error) from None
        if not record["structure"]:
            raise OptionError(
                f"{model} was not compiled from an ONNX model as it is", "give arrays by name"
            )
        if found.structure != record["structure"]:
            raise ModelError(
                f"{self.name} has another structure than {model}: {found.difference(record)}",
                f"{_COMPILE}, or give its weights by name",
            )
        name = found.differing(record)
        if name:
            raise ModelError(
                f"{self.name}: initializer '{name}' has other contents, and the program of {model} "
                "depends on them", _COMPILE,
            )  # fmt: skip
        self.weight: Callable[[int], numpy.ndarray] = found.weight

    def request(self, request: Any) -> Any:
        """The request for this source. Raises OptionError if it has changed."""
        for path, read in self._read.items():
            if not was_read(read, FileRead.of(path)):
                raise OptionError(f"{path} has changed since its weights were loaded", _COMPILE)
        return replace(request, source=self.source)
