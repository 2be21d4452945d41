"""Promise: a size of a kernel that layers share is one size, whatever its role is asked for."""

import pytest

from anydim.base.errors import InternalError
from anydim.compiler.kernels.matmul.window_geometry import LayerSizes
from anydim.sizes import as_size


def test_a_role_that_is_two_sizes() -> None:
    sizes = LayerSizes()
    sizes.role("rows", as_size("m"))
    sizes.role("rows", as_size("m"))
    with pytest.raises(InternalError, match="'rows' of a kernel is m, and also n"):
        sizes.role("rows", as_size("n"))
    assert (sizes.names, sizes.sizes) == (("rows",), (as_size("m"),))
