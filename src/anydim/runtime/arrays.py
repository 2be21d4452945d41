"""Arguments of a call -> numpy arrays, checked; results -> the kind of array that came in.

numpy arrays and every array with `__dlpack__` on the CPU are taken without a copy when they are
contiguous and aligned. Nothing here imports another array library: its module is there already
when an array of it comes in.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy

from anydim.base.dtypes import from_numpy, of_numbers
from anydim.base.errors import DimError, InputError, OutOfMemoryError
from anydim.base.text import axes_text, listed, suggestion
from anydim.runtime.exchange import handed, is_exchanged, taken
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Box

_CPU = 1  # DLPack's kDLCPU
_READY = 0x0101  # numpy's flags C_CONTIGUOUS and ALIGNED
_MUCH = 1 << 20  # bytes that are not copied for nothing
_NUMBERS = (bool, int, float, list, tuple)
Wrap = Callable[[numpy.ndarray], Any]


def plain(
    value: Any, spec: TensorSpec, dtype: numpy.dtype, name: str, box: Box | None = None
) -> numpy.ndarray:
    """The argument as a contiguous, aligned numpy array of the right dtype and rank.

    Raises InputError that says what was expected, what came and how to convert.
    """
    array = value if isinstance(value, numpy.ndarray) else _foreign(value, spec, dtype, name)
    if isinstance(array, numpy.ma.MaskedArray):
        raise InputError(
            f"{_where(spec, name)}: a masked array came, expected a plain one",
            "fill in the masked elements: array.filled(value)",
        )
    if array.dtype != dtype:
        array = _native_order(array, spec, dtype, name)
    if array.ndim != len(spec.shape):
        wanted = ", ".join(map(str, spec.shape))
        raise InputError(
            f"{_where(spec, name)}: expected {axes_text(len(spec.shape))} [{wanted}], "
            f"got {axes_text(array.ndim)} {list(array.shape)}",
            "add axes with array[None], drop them with array.squeeze(), or use array.reshape",
        )
    if array.flags.num & _READY != _READY:
        if box is not None and array.nbytes > _MUCH:
            _check_bounds(array, spec, box, name)
        array = _copied(array, spec, dtype, name)
    return array


def _check_bounds(array: numpy.ndarray, spec: TensorSpec, box: Box, name: str) -> None:
    """Raise DimError for sizes that no call takes, before anything is copied."""
    for axis, size in enumerate(spec.shape):
        bounds, came = box.interval(size), array.shape[axis]
        if came not in bounds:
            wanted = ", ".join(map(str, spec.shape))
            raise DimError(
                f"{_where(spec, name)}: axis {axis} is {came}, expected {size} in {bounds}",
                f"expected shape [{wanted}], got {list(array.shape)}",
            )


def _copied(array: numpy.ndarray, spec: TensorSpec, dtype: numpy.dtype, name: str) -> numpy.ndarray:
    """The elements in one piece; of an array without strides there may be more than memory."""
    try:
        return numpy.require(array, dtype, requirements=("C", "A"))
    except (MemoryError, ValueError):  # numpy's word for more than an array can have
        bytes = math.prod(array.shape) * array.dtype.itemsize
        raise OutOfMemoryError(
            f"{_where(spec, name)}: a contiguous copy needs {bytes} bytes, which there are not",
            "give a contiguous array in this machine's byte order",
        ) from None


def _where(spec: TensorSpec, name: str) -> str:
    return f"input '{spec.name}' of {name}"


def _native_order(
    array: numpy.ndarray, spec: TensorSpec, dtype: numpy.dtype, name: str
) -> numpy.ndarray:
    """The array in this machine's byte order; another dtype is an error."""
    if array.dtype.newbyteorder("=") == dtype:
        return _copied(array, spec, dtype, name)
    numbers = array.dtype.kind not in "OSUmM" and array.dtype.names is None
    came = {"O": "Python objects", "S": "bytes", "U": "text"}.get(
        array.dtype.kind, array.dtype.name if array.dtype.names is None else "records"
    )
    raise InputError(
        f"{_where(spec, name)}: expected dtype {dtype.name}, got {came}",
        f"convert it: array.astype('{dtype.name}')" if numbers else f"give an array of {spec}",
    )


def _foreign(value: Any, spec: TensorSpec, dtype: numpy.dtype, name: str) -> numpy.ndarray:
    """A numpy array over the memory of a DLPack array, or of a number or nested lists, which take
    the type that the model declares."""
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return shared_array(value, _where(spec, name))
    if isinstance(value, Mapping):
        raise InputError(f"{_where(spec, name)}: a mapping came", _unpacked([value], 1))
    try:
        if isinstance(value, _NUMBERS) and not isinstance(value, numpy.generic):
            return of_numbers(value, dtype)
        return numpy.asarray(value)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{_where(spec, name)}: {type(value).__name__} is no array: {error}",
            f"expected {spec}",
        ) from None


def is_negated(value: Any) -> bool:
    """Whether an array's memory holds its numbers negated, as torch's `x.conj().imag` does."""
    negated = getattr(value, "is_neg", None)
    return negated is not None and bool(negated())


def detached(value: Any, where: str) -> Any:
    """The array; of one that records gradients its memory alone, where nobody records now.

    `where` begins the InputError where somebody does: a model gives no gradients back.
    """
    if not getattr(value, "requires_grad", False):
        return value
    recording = _of_library(value, "is_grad_enabled")
    if recording is None:  # a library without such a mode says itself whether it shares it
        return value
    if recording():
        raise InputError(
            f"{where}: the array records gradients, and a model gives none back",
            "call under torch.no_grad(), or give x.detach()",
        )
    return value.detach()


def _of_library(value: Any, name: str) -> Any:
    """A function of the library that an array is of, or that its class is made from one of."""
    for kind in type(value).__mro__:
        library = sys.modules.get(kind.__module__.partition(".")[0])
        found = getattr(library, name, None)
        if found is not None:
            return found
    return None


def shared_array(value: Any, where: str) -> numpy.ndarray:
    """A numpy array over the memory of a DLPack array; `where` begins the InputError that is raised
    for one on another device, or one that its library does not share. Of one whose memory holds
    its numbers negated, which DLPack does not say, it is over the memory of a copy."""
    value = detached(value, where)
    try:
        if is_negated(value):
            value = value.resolve_neg()
        if int(value.__dlpack_device__()[0]) != _CPU:
            raise InputError(
                f"{where}: the array is on another device than the CPU", "move it to the CPU first"
            )
        return taken(value)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"{where}: the array cannot be shared: {error}",
            "give a dense array on the CPU",
        ) from None


def wrapper(values: Sequence[Any]) -> Wrap | None:
    """What turns results into the kind of the first argument that is no numpy array, if any."""
    for value in values:
        if not isinstance(value, numpy.ndarray) and hasattr(value, "__dlpack__"):
            found = _of_library(value, "from_dlpack")
            if found is None and hasattr(value, "__array_namespace__"):
                found = getattr(value.__array_namespace__(), "from_dlpack", None)
            if found is not None and found is not numpy.from_dlpack:
                return partial(_shared, found)
    return None


def _shared(take: Wrap, array: numpy.ndarray) -> Any:
    """A result in the hands of another library; a type it cannot be told stays a numpy array."""
    dtype = from_numpy(array.dtype)
    if dtype.is_native:
        return take(array)
    return take(handed(array, dtype)) if is_exchanged(dtype) else array


def check_names(given: Mapping[str, Any], signature: Signature) -> None:
    """Raise InputError when an input is missing or is none of the signature's."""
    names = [spec.name for spec in signature.inputs]
    extra = [name for name in given if name not in names]
    missing = [name for name in names if name not in given]
    if extra:
        hint = suggestion(extra[0], missing or names)
        raise InputError(
            f"{signature.name} has no input {listed(extra)}", hint or _takes(signature)
        )
    if missing:
        hint = _unpacked(list(given.values()), len(names)) or _takes(signature)
        raise InputError(f"{signature.name}: input {listed(missing)} is missing", hint)


def by_name(
    model: str, names: Sequence[str], values: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Positional and named arguments of a call together; `names` are the inputs in order."""
    together = dict(zip(names, values))
    if len(values) <= len(names) and not named:
        return together
    takes = f"it takes {', '.join(names) or 'no inputs'}"
    if len(values) > len(names):
        raise InputError(
            f"{model}: {len(values)} positional inputs came, it has {len(names)}", takes
        )
    twice = [name for name in together if name in named]
    if twice:
        raise InputError(
            f"{model}: input {listed(twice)} came twice, by position and by name", takes
        )
    together.update(named)
    return together


def _unpacked(values: Sequence[Any], count: int) -> str:
    """What to write where all inputs came in one argument; an empty text where they did not."""
    (first,) = values if len(values) == 1 else (None,)
    if isinstance(first, Mapping):
        return "give the inputs of a mapping by name: model(**inputs)"
    if isinstance(first, (list, tuple)) and len(first) == count:
        return f"give the inputs of a {type(first).__name__} one by one: model(*inputs)"
    return ""


def _takes(signature: Signature) -> str:
    return "it takes " + (", ".join(map(str, signature.inputs)) or "no inputs")
