"""Reads arrays from a model file: dense tensors, and sparse ones as dense.

Nothing in the file is trusted: sizes are checked before use. A sparse tensor has values with their
positions, row-major offsets or indices along all axes; all other elements are 0.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import Any

import numpy

from anydim.base.dtypes import DType
from anydim.base.errors import ModelError
from anydim.base.onnx_notation import ELEMENT_TYPES
from anydim.compiler.frontends.onnx.file.data_folder import DataFolder, check_location

_PACKED = ("int2", "uint2", "int4", "uint4", "float4", "float6")  # several per byte in a file
MOST_BYTES = 1 << 30  # of a dense tensor; a small file may declare a huge one


def densify(proto: Any, folder: DataFolder | None, name: str) -> Any:
    """Append dense initializers for the sparse ones of each graph.

    Returns the model itself if it has none.
    """
    if not any(graph.sparse_initializer for graph in _graphs(proto.graph)):
        return proto
    own = type(proto)()
    own.CopyFrom(proto)
    for graph in _graphs(own.graph):
        for sparse in graph.sparse_initializer:
            where = f"{name}: sparse initializer '{sparse.values.name}'"
            try:
                array = read_sparse(sparse, folder, where)
            except Unsupported as reason:
                raise ModelError(f"{where}: {reason}") from None
            made = graph.initializer.add()
            made.name, made.data_type = sparse.values.name, sparse.values.data_type
            made.dims.extend(array.shape)
            made.raw_data = array.tobytes()
        del graph.sparse_initializer[:]
    return own


def read_sparse(proto: Any, folder: DataFolder | None, where: str) -> numpy.ndarray:
    """The dense array of a SparseTensorProto.

    Raises ModelError for inconsistent parts, Unsupported for an unknown element type.
    """
    values = read_tensor(proto.values, folder, f"{where}: its values")
    indices = read_tensor(proto.indices, folder, f"{where}: its indices")
    shape = tuple(proto.dims)
    if len(shape) > MOST_AXES or any(size < 0 for size in shape):
        raise ModelError(f"{where}: a tensor of shape {list(shape)} is not valid")
    if prod(shape) * values.dtype.itemsize > MOST_BYTES:
        raise ModelError(
            f"{where}: its dense form takes {prod(shape) * values.dtype.itemsize} bytes, "
            f"the limit is {MOST_BYTES}"
        )
    if values.ndim != 1 or indices.dtype != numpy.int64:
        raise ModelError(f"{where}: its values have {values.ndim} axes, its indices are of type "
                         f"{indices.dtype}; expected a vector of values and int64")  # fmt: skip
    if values.dtype.name.startswith(_PACKED):
        raise Unsupported(f"sparse elements of type {values.dtype}")
    dense = numpy.zeros(shape, values.dtype)
    dense.reshape(-1)[_offsets(indices, shape, len(values), where)] = values
    return dense


def _offsets(
    indices: numpy.ndarray, shape: tuple[int, ...], count: int, where: str
) -> numpy.ndarray:
    """The row-major offsets of the values."""
    if indices.shape == (count,):
        limits: Any = prod(shape)
    elif indices.shape == (count, len(shape)):
        limits = numpy.array(shape, numpy.int64)
    else:
        raise ModelError(
            f"{where}: its indices are of shape {list(indices.shape)}, expected "
            f"[{count}] or [{count}, {len(shape)}]"
        )
    if ((indices < 0) | (indices >= limits)).any():
        raise ModelError(f"{where}: an index is outside of the shape {list(shape)}")
    if indices.ndim == 1:
        offsets = indices
    else:
        steps = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        offsets = indices @ numpy.array(steps, numpy.int64).reshape(len(shape))
    if len(numpy.unique(offsets)) != count:
        raise ModelError(f"{where}: two values have the same index")
    return offsets


def _graphs(graph: Any) -> Iterator[Any]:
    """A graph and all its subgraphs."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.ByteSize():
                    yield from _graphs(inner)


MOST_AXES = 32
_MOST_BYTES = 1 << 46

_FIELDS = {
    "float32": "float_data", "float64": "double_data", "int64": "int64_data",
    "uint32": "uint64_data", "uint64": "uint64_data",
}  # fmt: skip


class Unsupported(Exception):
    """A node needs an unsupported feature; `import_model` reports all of them at once."""


def unsupported_error(model: str, nodes: Iterable[object], hint: str = "") -> ModelError:
    """The error for an unsupported model, with one line per node."""
    lines = [str(node) for node in nodes]
    what = "1 node that is" if len(lines) == 1 else f"{len(lines)} nodes that are"
    return ModelError("\n  ".join([f"{model} has {what} not supported:", *lines]), hint)


def element_type(number: int) -> DType:
    """The element type of a TensorProto.DataType; Unsupported for an unknown one."""
    dtype = ELEMENT_TYPES.get(number)
    if dtype is None:
        raise Unsupported(f"element type {_type_name(number)}")
    return dtype


def _type_name(number: int) -> str:
    import onnx

    try:
        return str(onnx.TensorProto.DataType.Name(number)).lower()
    except ValueError:
        return f"number {number}, which ONNX does not know"


def read_tensor(
    proto: Any,
    folder: DataFolder | None,
    where: str,
    raw: Callable[[], numpy.ndarray] | None = None,
) -> numpy.ndarray:
    """The array of a TensorProto, read-only; `folder` is the folder of external data.

    `raw` reads the bytes of its raw_data if they were left in the file. Raises ModelError for
    inconsistent parts and Unsupported for an unknown element type.
    """
    dtype = element_type(proto.data_type)
    if proto.HasField("segment"):
        raise ModelError(f"{where}: tensors in segments are not supported")
    shape = _shape(proto, where)
    count = prod(shape)
    if prod(max(size, 1) for size in shape) * dtype.bytes > _MOST_BYTES:
        raise ModelError(f"{where}: a tensor of shape {list(shape)} is too large")
    if is_external(proto):
        flat = _external(proto, folder, where, dtype, count)
    elif raw is not None or proto.HasField("raw_data"):
        data = numpy.frombuffer(proto.raw_data, numpy.uint8) if raw is None else raw()
        _expect(data.size, _packed_bytes(dtype, count), where, dtype, "bytes")
        flat = _unpack(data, dtype, count)
    else:
        flat = _read_listed(proto, where, dtype, count)
    array = flat.reshape(shape)
    if not array.flags.aligned:
        array = array.copy()
    array.flags.writeable = False
    return array


def _shape(proto: Any, where: str) -> tuple[int, ...]:
    if len(proto.dims) > MOST_AXES:
        raise ModelError(f"{where}: {len(proto.dims)} axes, at most {MOST_AXES} are possible")
    shape = tuple(proto.dims)
    if any(size < 0 for size in shape):
        raise ModelError(f"{where}: its shape {list(shape)} has a negative size")
    return shape


def _expect(found: int, expected: int, where: str, dtype: DType, unit: str) -> None:
    if found != expected:
        raise ModelError(
            f"{where}: holds {found} {unit}, its shape and type {dtype} need {expected}",
            "the file may be truncated",
        )


def _read_listed(proto: Any, where: str, dtype: DType, count: int) -> numpy.ndarray:
    values = getattr(proto, _FIELDS.get(dtype.name, "int32_data"))
    if dtype.name not in _FIELDS and (dtype.is_float or dtype.stored):
        return _read_listed_bits(values, where, dtype, count)
    _expect(len(values), count, where, dtype, "elements")
    try:
        return numpy.fromiter(values, _LISTED.get(dtype.kind, dtype.numpy), count).astype(
            dtype.numpy
        )
    except OverflowError:
        raise ModelError(f"{where}: an element does not fit {dtype}") from None


def _read_listed_bits(values: Any, where: str, dtype: DType, count: int) -> numpy.ndarray:
    """int32_data whose low bits hold one element, or one byte of packed elements."""
    packed = dtype.bits in (2, 4)
    wanted = _packed_bytes(dtype, count) if packed else count
    _expect(len(values), wanted, where, dtype, "numbers")
    words = numpy.fromiter(values, numpy.int64, wanted)
    if packed:
        return _unpack(words.astype(numpy.uint8), dtype, count)
    return (words & (1 << dtype.bits) - 1).astype(f"u{dtype.bytes}").view(dtype.numpy)


_LISTED: dict[str, Any] = {"int": numpy.int64, "uint": numpy.uint64, "bool": numpy.int64}


# ---- elements of less than a byte --------------------------------------------------------------


def _packed_bytes(dtype: DType, count: int) -> int:
    """Bytes of `count` elements in a file; small ones are packed."""
    return -(-count * dtype.bits // 8) if _is_packed(dtype) else count * dtype.bytes


def _is_packed(dtype: DType) -> bool:
    return dtype.stored and dtype.bits < 8


def _unpack(data: numpy.ndarray, dtype: DType, count: int) -> numpy.ndarray:
    """Elements from the bytes of a file; packed ones (first in the low bits) get a byte each."""
    if not _is_packed(dtype):
        return data.view(dtype.numpy)
    bits = numpy.unpackbits(data, count=count * dtype.bits, bitorder="little")
    elements = numpy.packbits(bits.reshape(count, dtype.bits), axis=1, bitorder="little")
    return elements.reshape(count).view(dtype.numpy)


# ---- external data -----------------------------------------------------------------------------


def is_external(proto: Any) -> bool:
    """Whether the elements of a TensorProto are in another file."""
    return proto.data_location == 1 or bool(proto.external_data)


def has_external_nodes(proto: Any) -> bool:
    """Whether tensors besides the initializers of the model are in another file."""
    inside = [tensor for graph in [*_graphs(proto.graph)][1:] for tensor in graph.initializer]
    nodes = [node for graph in _graphs(proto.graph) for node in graph.node]
    nodes += [node for function in proto.functions for node in function.node]
    held = (each for node in nodes for each in node.attribute)
    return any(map(is_external, inside)) or any(
        is_external(tensor) for each in held for tensor in _tensors(each)
    )


def _tensors(attribute: Any) -> Iterator[Any]:
    yield from (attribute.t, *attribute.tensors)
    for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
        yield from (sparse.values, sparse.indices)


def _external(
    proto: Any, folder: DataFolder | None, where: str, dtype: DType, count: int
) -> numpy.ndarray:
    """Elements in another file of the model's folder, memory-mapped."""
    entries = {entry.key: entry.value for entry in proto.external_data}
    if any(isinstance(text, bytes) for pair in entries.items() for text in pair):
        raise ModelError(f"{where}: the location of its external data is not UTF-8 text")
    location = entries.get("location", "")
    check_location(location, where)
    if folder is None:
        raise ModelError(
            f"{where}: external data at {location!r}, but the model did not come from a file",
            "give the path of the model",
        )
    with folder.open(location, where) as file:
        offset = _number(entries, "offset", 0, where)
        wanted = _packed_bytes(dtype, count)
        length = _number(entries, "length", wanted, where)
        _expect(length, wanted, where, dtype, "bytes")
        available = os.fstat(file.fileno()).st_size
        if offset + length > available:
            raise ModelError(
                f"{where}: needs bytes {offset}..{offset + length} of "
                f"'{os.path.basename(location)}', which has {available}"
            )
        if not count:
            return numpy.zeros(0, dtype.numpy)
        if _is_packed(dtype):
            return _unpack(numpy.memmap(file, numpy.uint8, "r", offset, (wanted,)), dtype, count)
        return numpy.memmap(file, dtype.numpy, "r", offset, (count,))


def _number(entries: dict[str, str], key: str, default: int, where: str) -> int:
    text = entries.get(key, str(default))
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise ModelError(f"{where}: '{key}' of its external data is {text[:40]!r}, not a number")
    return int(text)
