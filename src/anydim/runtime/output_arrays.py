"""Checks and fills arrays that a caller passes for results (`out=`)."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.errors import InputError
from anydim.base.text import count_of, quote_list, suggestion
from anydim.runtime.arrays import detach, is_negated, shared_array
from anydim.runtime.exchange import is_read_only
from anydim.runtime.executable import Executable, wrong_shape
from anydim.runtime.signature import TensorSpec

_READY = 0x0101  # numpy's flags C_CONTIGUOUS and ALIGNED


def called_into(
    executable: Executable[Any], feeds: Mapping[str, Any], out: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Call a program; return its results by name, and the arrays of `out` that were filled.

    A call reads its inputs as they were before it: the result for an array that overlaps an input
    is computed elsewhere and copied, unless the array is exactly an input that is not read after
    the result is written (`Executable.updates`). Raises InputError for unsuitable arrays, before
    the call unless only the call determines shapes.
    """
    name = executable.signature.name
    arrays, given = results_given(out, executable.signature.outputs, name)
    for key in executable.kept:
        if key in arrays:
            raise InputError(
                f"{name}: result '{key}' stays on its device",
                "call without `out` for it, or keep_on_device() without it",
            )
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
    """Whether a result can be written to an array directly: it overlaps no input read later."""
    for name, other in inputs.items():
        if not numpy.may_share_memory(array, other):
            continue
        same = array.ctypes.data == other.ctypes.data and array.nbytes == other.nbytes
        whole = other.flags.num & _READY == _READY and array.dtype.itemsize == other.dtype.itemsize
        if not (same and whole and (result, name) in updates):
            return False
    return True


def _memory(name: str, value: Any) -> numpy.ndarray:
    """Return an array over the memory of an input; an empty array for numbers and lists."""
    if isinstance(value, numpy.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        return shared_array(value, f"input '{name}'")
    return numpy.empty(0)


def results_given(
    out: Any, specs: Sequence[TensorSpec], name: str
) -> tuple[dict[str, numpy.ndarray], dict[str, Any]]:
    """Return numpy arrays over `out` by result name, and the given objects.

    `out` is an array for a single result, a sequence with one entry per result (None: allocate), or
    a mapping by name. Raises InputError for unsuitable arrays; the call checks shapes.
    """
    if out is None:
        return {}, {}
    keys = [spec.key for spec in specs]
    given = given_by_name(out, keys, name)
    arrays = {}
    for spec in specs:
        if spec.key in given:
            arrays[spec.key] = output_array(given[spec.key], spec, name)
    for number, left in enumerate(arrays):
        for right in list(arrays)[number + 1 :]:
            if numpy.may_share_memory(arrays[left], arrays[right]):
                raise InputError(
                    f"{name}: the arrays for '{left}' and '{right}' share memory",
                    "pass a separate array for each result",
                )
    return arrays, given


def given_by_name(out: Any, keys: Sequence[str], name: str) -> dict[str, Any]:
    """Return the entries of `out` that are not None, by result name."""
    if isinstance(out, Mapping):
        for key in out:
            if key not in keys:
                hint = suggestion(str(key), keys) or f"its results are {quote_list(keys)}"
                raise InputError(f"{name} has no result '{key}' to write into", hint)
        return {key: array for key, array in out.items() if array is not None}
    if not isinstance(out, (tuple, list)):
        out = (out,)
    if len(out) != len(keys):
        raise InputError(
            f"{name} has {count_of(len(keys), 'result')}, got {count_of(len(out), 'array')}",
            f"its results are {quote_list(keys)}",
        )
    return {key: array for key, array in zip(keys, out) if array is not None}


def output_array(value: Any, spec: TensorSpec, name: str) -> numpy.ndarray:
    """Return a writable numpy array over a given array."""
    where = f"{name}: the array for '{spec.key}'"
    if isinstance(value, numpy.ndarray):
        array = value
        if not array.flags.writeable:
            raise InputError(f"{where} is read-only", "pass a writable array")
    elif hasattr(value, "__dlpack__"):
        value = detach(value, where)
        if is_negated(value):
            raise InputError(f"{where} has the negative bit set", "pass a separate array")
        array = shared_array(value, where)
        if is_read_only(value, array):
            raise InputError(f"{where} is read-only", "pass a writable array")
    else:
        raise InputError(f"{where}: expected an array, got {type(value).__name__}")
    if array.dtype != spec.dtype.numpy:
        order = "" if array.dtype.isnative else " in the other byte order"
        raise InputError(
            f"{where} has dtype {array.dtype.name}{order}, the result has {spec.dtype}",
            f"allocate it with dtype '{spec.dtype}'",
        )
    if array.flags.num & _READY != _READY:
        raise InputError(
            f"{where} is not contiguous", "pass a contiguous array and copy from it afterwards"
        )
    return array


def fill(array: numpy.ndarray, result: numpy.ndarray) -> None:
    """Copy a result to its array, of the same shape and dtype.

    numpy considers memory from unversioned DLPack capsules read-only.
    """
    if array.flags.writeable:
        array[...] = result
    else:
        source = numpy.ascontiguousarray(result)
        ctypes.memmove(array.ctypes.data, source.ctypes.data, source.nbytes)


def disjoint(
    arrays: Mapping[str, numpy.ndarray], inputs: Sequence[numpy.ndarray]
) -> dict[str, numpy.ndarray]:
    """Return the arrays that overlap no input; results are written there directly."""
    return {
        name: array
        for name, array in arrays.items()
        if not any(numpy.may_share_memory(array, other) for other in inputs)
    }
