"""Checks and converts the arguments of a call to numpy arrays, and results back.

numpy arrays and CPU arrays with `__dlpack__` are used without a copy if they are contiguous and
aligned. Results have the library of the arguments. This module imports no other array library: the
library of an argument is already imported.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy

from anydim.base.dtypes import array_of_numbers, from_numpy
from anydim.base.errors import DimError, InputError, OutOfMemoryError, UserError
from anydim.base.text import axes_text, quote_list, suggestion
from anydim.runtime.exchange import code_of, export_array, import_array, is_exchanged, with_strides
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Box

_CPU, _CUDA = 1, 2  # DLPack's kDLCPU, kDLCUDA
_READY = 0x0101  # numpy's flags C_CONTIGUOUS and ALIGNED
_MUCH = 1 << 20  # bytes that are not copied for nothing
_NUMBERS = (bool, int, float, list, tuple)
Wrap = Callable[[numpy.ndarray], Any]


class AtAddress(numpy.ndarray):
    """Shape and address of an array on a device, whose elements the host cannot read."""

    kept: Any  # what keeps the memory: the caller's array, or a capsule of it


def is_elsewhere(value: Any) -> bool:
    """Whether an argument is a DLPack array on a CUDA device."""
    device = getattr(value, "__dlpack_device__", None)
    return device is not None and int(device()[0]) == _CUDA


def plain(
    value: Any, spec: TensorSpec, dtype: numpy.dtype, name: str, box: Box | None = None
) -> numpy.ndarray:
    """Return the argument as a contiguous, aligned numpy array of the expected dtype and rank.

    Raises InputError with the expected and the given type, and a conversion.
    """
    array = value if isinstance(value, numpy.ndarray) else _foreign(value, spec, dtype, name)
    if type(array) is not numpy.ndarray and isinstance(array, numpy.ma.MaskedArray):
        raise InputError(
            f"{_where(spec, name)}: expected a plain array, got a masked array",
            "fill in the masked elements: array.filled(value)",
        )
    if array.dtype != dtype:
        array = _native_order(array, spec, dtype, name)
    if array.ndim != len(spec.shape):
        raise wrong_rank(spec, name, array.shape)
    if array.flags.num & _READY != _READY:
        if box is not None and array.nbytes > _MUCH:
            _check_bounds(array, spec, box, name)
        array = _copy_contiguous(array, spec, dtype, name)
    return array


def wrong_rank(spec: TensorSpec, name: str, shape: Sequence[int]) -> InputError:
    """The error for an argument with another number of axes."""
    wanted = ", ".join(map(str, spec.shape))
    return InputError(
        f"{_where(spec, name)}: expected {axes_text(len(spec.shape))} [{wanted}], "
        f"got {axes_text(len(shape))} {list(shape)}",
        "add axes with array[None], drop them with array.squeeze(), or use array.reshape",
    )


def _check_bounds(array: numpy.ndarray, spec: TensorSpec, box: Box, name: str) -> None:
    """Raise DimError for sizes outside the declared bounds, before anything is copied."""
    for axis, size in enumerate(spec.shape):
        bounds, given = box.interval(size), array.shape[axis]
        if given not in bounds:
            wanted = ", ".join(map(str, spec.shape))
            raise DimError(
                f"{_where(spec, name)}: axis {axis} is {given}, expected {size} in {bounds}",
                f"expected shape [{wanted}], got {list(array.shape)}",
            )


def _copy_contiguous(
    array: numpy.ndarray, spec: TensorSpec, dtype: numpy.dtype, name: str
) -> numpy.ndarray:
    """Copy to contiguous memory; a broadcast array may need more than there is."""
    try:
        return numpy.require(array, dtype, requirements=("C", "A"))
    except (MemoryError, ValueError):  # ValueError: above numpy's maximum
        bytes = math.prod(array.shape) * array.dtype.itemsize
        raise OutOfMemoryError(
            f"{_where(spec, name)}: out of memory for a contiguous copy of {bytes} bytes",
            "give a contiguous array in this machine's byte order",
        ) from None


def _where(spec: TensorSpec, name: str) -> str:
    return f"input '{spec.name}' of {name}"


def _native_order(
    array: numpy.ndarray, spec: TensorSpec, dtype: numpy.dtype, name: str
) -> numpy.ndarray:
    """Convert to native byte order; raise InputError for another dtype."""
    if array.dtype.newbyteorder("=") == dtype:
        return _copy_contiguous(array, spec, dtype, name)
    numbers = array.dtype.kind not in "OSUmM" and array.dtype.names is None
    given = {"O": "Python objects", "S": "bytes", "U": "text"}.get(
        array.dtype.kind, array.dtype.name if array.dtype.names is None else "records"
    )
    raise InputError(
        f"{_where(spec, name)}: expected dtype {dtype.name}, got {given}",
        f"convert it: array.astype('{dtype.name}')" if numbers else f"give an array of {spec}",
    )


def _foreign(value: Any, spec: TensorSpec, dtype: numpy.dtype, name: str) -> numpy.ndarray:
    """Convert a DLPack array without a copy; numbers and nested lists take the declared type."""
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return shared_array(value, _where(spec, name))
    if isinstance(value, Mapping):
        raise InputError(
            f"{_where(spec, name)}: expected an array, got a mapping", _unpacking_advice([value], 1)
        )
    try:
        if isinstance(value, _NUMBERS) and not isinstance(value, numpy.generic):
            return array_of_numbers(value, dtype)
        return numpy.asarray(value)
    except Exception as error:  # any error of the object
        raise InputError(
            f"{_where(spec, name)}: {type(value).__name__} is not an array: {error}",
            f"expected {spec}",
        ) from None


def as_array(value: Any, where: str) -> numpy.ndarray:
    """As `numpy.asarray`; raises InputError, prefixed by `where`, for lists of unequal lengths."""
    try:
        return numpy.asarray(value)
    except Exception as error:  # any error of the object
        raise InputError(
            f"{where}: {type(value).__name__} is not an array: {error}",
            "give an array, or lists of equal lengths",
        ) from None


def rank_of(value: Any) -> int:
    """The number of axes of an argument; -1 for what `plain` refuses."""
    rank = getattr(value, "ndim", None)
    try:
        return numpy.ndim(value) if rank is None else int(rank)
    except Exception:  # any error of the object
        return -1


def is_negated(value: Any) -> bool:
    """Whether an array has torch's negative bit set, as `x.conj().imag` has."""
    negated = getattr(value, "is_neg", None)
    return negated is not None and bool(negated())


def detach(value: Any, where: str) -> Any:
    """Detach an array that requires gradients while gradient recording is disabled.

    Raises InputError, prefixed by `where`, while recording is enabled: models compute no gradients.
    """
    if not getattr(value, "requires_grad", False):
        return value
    recording = of_library(value, "is_grad_enabled")
    if recording is None:  # a library without such a mode decides itself whether it exports
        return value
    if recording():
        raise InputError(
            f"{where}: the array requires gradients, but models compute no gradients",
            "call under torch.no_grad(), or pass x.detach()",
        )
    return value.detach()


def of_library(value: Any, name: str) -> Any:
    """Find a function in the library that defines the array's class or one of its bases."""
    for kind in type(value).__mro__:
        library = sys.modules.get(kind.__module__.partition(".")[0])
        found = getattr(library, name, None)
        if found is not None:
            return found
    return None


def shared_array(value: Any, where: str) -> numpy.ndarray:
    """Return a numpy array that shares the memory of a DLPack array.

    Raises InputError, prefixed by `where`, for an array on another device or one that its library
    does not export. An array with torch's negative bit, which DLPack cannot express, is copied.
    """
    value = detach(value, where)
    try:
        if is_negated(value):
            value = value.resolve_neg()
        if int(value.__dlpack_device__()[0]) != _CPU:
            raise InputError(
                f"{where}: the array is on another device than the CPU", "move it to the CPU first"
            )
        return import_array(value)
    except UserError:
        raise
    except Exception as error:  # any error of the object
        raise InputError(
            f"{where}: the array cannot be shared: {error}",
            "give a dense array on the CPU",
        ) from None


def wrapper(values: Sequence[Any]) -> Wrap | None:
    """Return a converter of results to the library of the first non-numpy argument, if any."""
    for value in values:
        if not isinstance(value, numpy.ndarray) and hasattr(value, "__dlpack__"):
            found = of_library(value, "from_dlpack")
            if found is None and hasattr(value, "__array_namespace__"):
                found = getattr(value.__array_namespace__(), "from_dlpack", None)
            if found is not None and found is not numpy.from_dlpack:
                return partial(_wrap_result, found)
    return None


def _wrap_result(take: Wrap, array: Any) -> Any:
    """Convert a result to another library; dtypes without a DLPack code stay numpy arrays."""
    if not isinstance(array, numpy.ndarray):  # on a device
        return array if code_of(from_numpy(array.dtype)) is None else take(array)
    array, dtype = with_strides(array), from_numpy(array.dtype)
    if dtype.is_native:
        return take(array)
    return take(export_array(array, dtype)) if is_exchanged(dtype) else array


def check_names(given: Mapping[str, Any], signature: Signature) -> None:
    """Raise InputError for missing and unknown inputs."""
    names = [spec.name for spec in signature.inputs]
    extra = [name for name in given if name not in names]
    missing = [name for name in names if name not in given]
    if extra:
        hint = suggestion(extra[0], missing or names)
        raise InputError(
            f"{signature.name} has no input {quote_list(extra)}", hint or _takes(signature)
        )
    if missing:
        hint = _unpacking_advice(list(given.values()), len(names)) or _takes(signature)
        raise InputError(f"{signature.name}: input {quote_list(missing)} is missing", hint)


def missing_input(
    model: str, name: str, given: Mapping[str, Any], inputs: Iterable[str]
) -> InputError:
    """The error of an input that is missing, or that has a similar name in what is given."""
    known = list(inputs)
    for other in given:
        if other not in known and suggestion(other, [name]):
            return InputError(f"{model} has no input '{other}'", f"did you mean '{name}'?")
    return InputError(f"{model}: input '{name}' is missing", f"inputs: {quote_list(known)}")


def by_name(
    model: str, names: Sequence[str], values: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Merge positional and named arguments; `names` are the inputs in order."""
    together = dict(zip(names, values))
    if len(values) <= len(names) and not named:
        return together
    takes = f"inputs: {', '.join(names) or 'none'}"
    if len(values) > len(names):
        raise InputError(
            f"{model}: got {len(values)} positional inputs, expected at most {len(names)}", takes
        )
    twice = [name for name in together if name in named]
    if twice:
        raise InputError(
            f"{model}: input {quote_list(twice)} was given twice, by position and by name", takes
        )
    together.update(named)
    return together


def by_position(model: str, names: Sequence[str], given: Any) -> dict[str, Any]:
    """Inputs by name that were given as one value: a tuple, a list of several, or the only one."""
    several = isinstance(given, tuple) or (isinstance(given, list) and len(names) > 1)
    return by_name(model, names, given if several else (given,), {})


def _unpacking_advice(values: Sequence[Any], count: int) -> str:
    """Return advice for a call with all inputs in one argument, otherwise an empty text."""
    (first,) = values if len(values) == 1 else (None,)
    if isinstance(first, Mapping):
        return "unpack the mapping: model(**inputs)"
    if isinstance(first, (list, tuple)) and len(first) == count:
        return f"unpack the {type(first).__name__}: model(*inputs)"
    return ""


def _takes(signature: Signature) -> str:
    return "inputs: " + (", ".join(map(str, signature.inputs)) or "none")
