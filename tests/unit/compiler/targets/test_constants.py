"""Promise: constants of loop IR that are converted at compile time are those of numpy's astype."""

from __future__ import annotations

import numpy
import pytest

from anydim.base.dtypes import DTYPES, float32, int8, int32, uint8, uint32
from anydim.compiler.kernels.ir import Const, convert, number


@pytest.mark.parametrize("value", [-128, -127, -5, -1, 0, 1, 127])
@pytest.mark.parametrize("dtype", [uint8, uint32, DTYPES["uint64"], int8, int32, float32])
def test_a_constant_is_folded_only_where_the_type_holds_it(value: int, dtype: object) -> None:
    made = convert(number(int8, value), dtype)
    assert made.type.dtype == dtype
    if isinstance(made, Const):
        assert made.value == numpy.array(value, "int8").astype(dtype.numpy)
    else:
        assert value < 0 and dtype != float32
