"""Promise: arrays of bfloat16 and float8 are shared with other libraries by DLPack, not copied."""

from __future__ import annotations

import gc

import numpy
import pytest

from anydim.base.dtypes import DTYPES, DType
from anydim.runtime.exchange import export_array, import_array, is_exchanged

EXCHANGED = [dtype for dtype in DTYPES.values() if is_exchanged(dtype)]


class Plain:
    """An array of another library that asks for nothing new."""

    def __init__(self, array: numpy.ndarray) -> None:
        self.array = array

    def __dlpack__(self) -> object:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("dtype", EXCHANGED, ids=str)
def test_there_and_back(dtype: DType) -> None:
    array = numpy.arange(6).astype(dtype.numpy).reshape(2, 3)
    back = import_array(export_array(array, dtype))
    assert back.dtype == array.dtype and back.shape == (2, 3)
    assert numpy.shares_memory(back, array)


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
def test_other_types_pass(dtype: str) -> None:
    array = numpy.ones((2, 2), dtype)
    assert (
        numpy.array_equal(import_array(Plain(array)), array)
        and import_array(Plain(array)).dtype == dtype
    )


def test_memory_lives_as_long_as_its_last_user() -> None:
    dtype = DTYPES["bfloat16"]
    array = numpy.full(1 << 16, 3, dtype.numpy)
    back = import_array(export_array(array, dtype))
    del array
    gc.collect()
    assert (back.astype(numpy.float32) == 3).all()


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    dtype = DTYPES["bfloat16"]
    tensor = torch.ones(3, dtype=torch.bfloat16)
    array = import_array(tensor)
    assert array.dtype == dtype.numpy
    tensor[0] = 5
    assert array[0] == 5
    again = torch.from_dlpack(export_array(numpy.full(2, 7, dtype.numpy), dtype))
    assert again.dtype == torch.bfloat16 and again.tolist() == [7, 7]
