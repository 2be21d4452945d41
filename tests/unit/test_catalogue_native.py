"""Promise: the catalogue of programs agrees with numpy in native code, compiled once each.

The sizes of the calls change from one to the next, 0 and 1 among them.
"""

import numpy as np
import pytest

import anydim as ad
from tests.unit.lang.catalogue import PROGRAMS


@pytest.mark.sampled(most=18)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_native_code_agrees_with_numpy(program):
    (function,) = ad.define(program.text).values()
    for sizes in program.sizes(50):
        arrays = program.arrays(sizes)
        results = function(*arrays)
        results = results if isinstance(results, tuple) else (results,)
        for result, wanted in zip(results, program.expected(arrays), strict=True):
            assert result.shape == np.shape(wanted), sizes
            np.testing.assert_allclose(
                result, wanted, rtol=program.tolerance, atol=program.tolerance, err_msg=str(sizes)
            )
