"""Sizes above their bound: an error, or memory that grows beyond the bound.

Proofs rest on bounds: code for a dim up to 128 may be wrong at 129. Dims that may grow are
therefore compiled without upper bounds; the given bounds are kept as expected sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.user_values import short_repr
from anydim.compiler.frontends.table import frontend_of
from anydim.sizes import Dim

ERROR, GROW = "error", "grow"


def expected_bounds(
    source: Any, dims: Mapping[str, Dim], on_overflow: str
) -> tuple[Mapping[str, Dim], Mapping[str, int]]:
    """The dims to compile a source for, and the upper bounds that sizes may exceed.

    Raises OptionError for an unknown mode, and for bounds that the source does not admit.
    """
    if not isinstance(on_overflow, str) or on_overflow not in (ERROR, GROW):
        raise OptionError(f"on_overflow is {short_repr(on_overflow)}, expected 'error' or 'grow'")
    if on_overflow == ERROR:
        return dims, {}
    expected = {name: dim.hi for name, dim in dims.items() if dim.hi not in (None, dim.lo)}
    bounds = {name: Dim(dim.lo) if name in expected else dim for name, dim in dims.items()}
    highs = {name: high for name, high in expected.items() if high is not None}
    frontend = frontend_of(source)
    found = frontend.soft_bounds(source, dims, highs)
    return {} if frontend.declares_dims else bounds, found
