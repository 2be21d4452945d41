"""Converts sparse tensors of a file to dense ones: initializers, and values of Constant.

A sparse tensor has values with their positions: row-major offsets, or indices along all axes. All
other elements are 0. Nothing in the file is trusted.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy

from anydim.base.errors import ModelError
from anydim.compiler.frontends.onnx.file.data_folder import DataFolder
from anydim.compiler.frontends.onnx.file.tensors import MOST_AXES, Unsupported, read_tensor

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
