"""Promise: tensors of narrow types are read as onnx wrote them, packed or listed or elsewhere."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from anydim.base.dtypes import DTYPES, DType, convert_array
from anydim.base.errors import ModelError
from anydim.base.onnx_notation import ELEMENT_TYPES
from anydim.compiler.frontends.onnx.file.data_folder import DataFolder
from anydim.compiler.frontends.onnx.file.tensors import read_tensor

NARROW = [d for d in DTYPES.values() if not d.is_native]
NUMBERS = {dtype: number for number, dtype in ELEMENT_TYPES.items()}


def some(dtype: DType, count: int) -> np.ndarray:
    """Every bit pattern in turn."""
    patterns = np.arange(count) * (257 if dtype.bits == 16 else 1) % (1 << dtype.bits)
    return patterns.astype(f"u{dtype.bytes}").view(dtype.numpy)


def bits(array: np.ndarray, dtype: DType) -> list[int]:
    return (array.view(f"u{dtype.bytes}") & ((1 << dtype.bits) - 1)).tolist()


@pytest.mark.parametrize("count", [0, 1, 3, 4, 300])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_raw_and_external(dtype: DType, count: int, tmp_path) -> None:
    array = some(dtype, count)
    proto = numpy_helper.from_array(array, "w")
    assert proto.data_type == NUMBERS[dtype]
    read = read_tensor(proto, None, "w")
    assert read.dtype == dtype.numpy and bits(read, dtype) == bits(array, dtype)
    (tmp_path / "w.bin").write_bytes(b"skip" + proto.raw_data)
    set_external_data(proto, "w.bin", 4, len(proto.raw_data))
    proto.ClearField("raw_data")
    assert bits(read_tensor(proto, DataFolder(tmp_path / "m.onnx", False), "w"), dtype) == bits(
        array, dtype
    )


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_listed(dtype: DType) -> None:
    array = some(dtype, 5)
    values = convert_array(array, np.dtype(np.float32)).tolist()
    proto = helper.make_tensor("w", NUMBERS[dtype], [5], values)
    assert not proto.HasField("raw_data")
    read, onnxs = read_tensor(proto, None, "w"), numpy_helper.to_array(proto)
    assert bits(read, dtype) == bits(onnxs, dtype)


def test_too_short() -> None:
    proto = TensorProto(data_type=onnx.TensorProto.INT4, dims=[3], raw_data=b"1")
    with pytest.raises(ModelError, match="holds 1 bytes, its shape and type int4 need 2"):
        read_tensor(proto, None, "w")
    proto = TensorProto(data_type=onnx.TensorProto.UINT2, dims=[5], int32_data=[1])
    with pytest.raises(ModelError, match="holds 1 numbers"):
        read_tensor(proto, None, "w")
