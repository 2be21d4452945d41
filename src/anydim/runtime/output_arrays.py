"""Arrays that a caller gives for results: checked, told from the inputs, filled."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.errors import InputError
from anydim.base.text import listed, suggestion
from anydim.runtime.arrays import detached, is_negated, shared_array
from anydim.runtime.exchange import is_read_only
from anydim.runtime.executable import Executable, wrong_shape
from anydim.runtime.signature import TensorSpec

_READY = 0x0101  # numpy's flags C_CONTIGUOUS and ALIGNED


def called_into(
    executable: Executable[Any], feeds: Mapping[str, Any], out: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results of a call by name, and the arrays of `out` that some of them are in.

    What is read is what was there before the call: where an array shares memory with an input, the
    result is made elsewhere and copied, but for an array that is just an input of which nothing is
    read after its place was written (`Executable.updates`). Raises InputError for arrays that do
    not fit, before anything runs but where only the call tells shapes.
    """
    name = executable.signature.name
    arrays, given = results_given(out, executable.signature.outputs, name)
    direct: dict[str, numpy.ndarray] = {}
    if executable.direct:
        memory = {key: _memory(key, value) for key, value in feeds.items()}
        direct = {
            key: array for key, array in arrays.items()
            if _may_be_written(key, array, memory, executable.updates)
        }  # fmt: skip
    results = executable(feeds, direct) if direct else executable(feeds)
    for key, array in arrays.items():
        if key not in direct:
            result = results[key]
            if not isinstance(result, numpy.ndarray):
                result = shared_array(result, f"{name}: result '{key}'")
            if array.shape != result.shape:
                raise wrong_shape(name, key, array.shape, result.shape)
            fill(array, result)
    return results, given


def _may_be_written(
    result: str, array: numpy.ndarray, inputs: Mapping[str, numpy.ndarray],
    updates: Collection[tuple[str, str]],
) -> bool:  # fmt: skip
    """Whether a result can be made in an array at once: no input lies there that is read later."""
    for name, other in inputs.items():
        if not numpy.may_share_memory(array, other):
            continue
        same = array.ctypes.data == other.ctypes.data and array.nbytes == other.nbytes
        whole = other.flags.num & _READY == _READY and array.dtype.itemsize == other.dtype.itemsize
        if not (same and whole and (result, name) in updates):
            return False
    return True


def _memory(name: str, value: Any) -> numpy.ndarray:
    """An input as an array that shows its memory; of numbers and lists, memory of nobody."""
    if isinstance(value, numpy.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        return shared_array(value, f"input '{name}'")
    return numpy.empty(0)


def results_given(
    out: Any, specs: Sequence[TensorSpec], name: str
) -> tuple[dict[str, numpy.ndarray], dict[str, Any]]:
    """The arrays behind `out` by the result they are for, and the objects that were given.

    `out` is an array for the one result, a sequence with one for each (None: a new one), or a
    mapping by name. Raises InputError for what does not fit; shapes are checked by the call.
    """
    if out is None:
        return {}, {}
    keys = [spec.key for spec in specs]
    given = _by_name(out, keys, name)
    arrays = {}
    for spec in specs:
        if spec.key in given:
            arrays[spec.key] = _array(given[spec.key], spec, name)
    for number, left in enumerate(arrays):
        for right in list(arrays)[number + 1 :]:
            if numpy.may_share_memory(arrays[left], arrays[right]):
                raise InputError(
                    f"{name}: the arrays for '{left}' and '{right}' share memory",
                    "give an array of its own for each result",
                )
    return arrays, given


def _by_name(out: Any, keys: Sequence[str], name: str) -> dict[str, Any]:
    if isinstance(out, Mapping):
        for key in out:
            if key not in keys:
                hint = suggestion(str(key), keys) or f"its results are {listed(keys)}"
                raise InputError(f"{name} has no result '{key}' to write into", hint)
        return {key: array for key, array in out.items() if array is not None}
    if not isinstance(out, (tuple, list)):
        out = (out,)
    if len(out) != len(keys):
        raise InputError(
            f"{name} has {len(keys)} results, {len(out)} arrays were given for them",
            f"its results are {listed(keys)}",
        )
    return {key: array for key, array in zip(keys, out) if array is not None}


def _array(value: Any, spec: TensorSpec, name: str) -> numpy.ndarray:
    """The memory of one array that was given."""
    where = f"{name}: the array for '{spec.key}'"
    if isinstance(value, numpy.ndarray):
        array = value
        if not array.flags.writeable:
            raise InputError(f"{where} cannot be written", "give one that is not read-only")
    elif hasattr(value, "__dlpack__"):
        value = detached(value, where)
        if is_negated(value):
            raise InputError(f"{where} holds its numbers negated", "give one of its own memory")
        array = shared_array(value, where)
        if is_read_only(value, array):
            raise InputError(f"{where} cannot be written", "give one that is not read-only")
    else:
        raise InputError(f"{where}: expected an array, got {type(value).__name__}")
    if array.dtype != spec.dtype.numpy:
        order = "" if array.dtype.isnative else " in the other byte order"
        raise InputError(
            f"{where} has dtype {array.dtype.name}{order}, the result has {spec.dtype}",
            f"make it with dtype '{spec.dtype}'",
        )
    if array.flags.num & _READY != _READY:
        raise InputError(
            f"{where} is not contiguous", "give a contiguous array, and copy from it afterwards"
        )
    return array


def fill(array: numpy.ndarray, result: numpy.ndarray) -> None:
    """Write a result over an array that was given for it, of the same shape and type.

    Memory whose library does not say that it may be written looks read-only to numpy.
    """
    if array.flags.writeable:
        array[...] = result
    else:
        source = numpy.ascontiguousarray(result)
        ctypes.memmove(array.ctypes.data, source.ctypes.data, source.nbytes)


def apart(
    arrays: Mapping[str, numpy.ndarray], inputs: Sequence[numpy.ndarray]
) -> dict[str, numpy.ndarray]:
    """The arrays that share no memory with an input: results may go there at once."""
    return {
        name: array
        for name, array in arrays.items()
        if not any(numpy.may_share_memory(array, other) for other in inputs)
    }
