"""Sparse tensors of a file as dense ones: initializers of any graph, and values of Constant.

A sparse tensor has values, and for each its place: its number in row-major order, or its indices
along all axes. What has no value is 0. Nothing in the file is trusted.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy

from anydim.base.errors import ModelError
from anydim.frontends.onnx.file.tensors import MOST_AXES, Unsupported, read_tensor

_PACKED = ("int2", "uint2", "int4", "uint4", "float4", "float6")  # several to a byte in a file
MOST_BYTES = 1 << 30  # of a tensor that a few numbers stand for


def densified(proto: Any, folder: Path | None, name: str) -> Any:
    """The model with dense initializers in place of sparse ones, as the last of each graph; itself
    where it has none."""
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


def read_sparse(proto: Any, folder: Path | None, where: str) -> numpy.ndarray:
    """The dense array of a SparseTensorProto.

    Raises ModelError for parts that contradict each other, Unsupported for a type anydim lacks.
    """
    values = read_tensor(proto.values, folder, f"{where}: its values")
    indices = read_tensor(proto.indices, folder, f"{where}: its indices")
    shape = tuple(proto.dims)
    if len(shape) > MOST_AXES or any(size < 0 for size in shape):
        raise ModelError(f"{where}: a tensor of shape {list(shape)} cannot be")
    if prod(shape) * values.dtype.itemsize > MOST_BYTES:
        raise ModelError(
            f"{where}: its dense form takes {prod(shape) * values.dtype.itemsize} bytes, "
            f"at most {MOST_BYTES} are taken"
        )
    if values.ndim != 1 or indices.dtype != numpy.int64:
        raise ModelError(f"{where}: its values have {values.ndim} axes, its indices are of type "
                         f"{indices.dtype}; expected a vector of values and int64")  # fmt: skip
    if values.dtype.name.startswith(_PACKED):
        raise Unsupported(f"sparse elements of type {values.dtype}")
    dense = numpy.zeros(shape, values.dtype)
    dense.reshape(-1)[_places(indices, shape, len(values), where)] = values
    return dense


def _places(
    indices: numpy.ndarray, shape: tuple[int, ...], count: int, where: str
) -> numpy.ndarray:
    """The places of values in row-major order."""
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
        places = indices
    else:
        steps = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        places = indices @ numpy.array(steps, numpy.int64).reshape(len(shape))
    if len(numpy.unique(places)) != count:
        raise ModelError(f"{where}: two values have one place")
    return places


def _graphs(graph: Any) -> Iterator[Any]:
    """A graph and all graphs inside it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.ByteSize():
                    yield from _graphs(inner)
