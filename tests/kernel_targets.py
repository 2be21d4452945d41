"""Runs tests once for each target that makes code of kernels.

They use the fixture `kernel_target`, which a conftest.py imports. For C they are slow: a compiler
starts for each.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anydim.base import settings
from anydim.base.errors import OptionError
from anydim.targets.c.compilers import compiler


def has_compiler(name: str = "") -> bool:
    """Whether this machine has that C compiler, or any."""
    try:
        with settings.override(c_compiler=name):
            return bool(compiler())
    except OptionError:
        return False


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no C compiler")


@pytest.fixture(params=["llvm", pytest.param("c", marks=[pytest.mark.slow, needs_compiler])])
def kernel_target(request: pytest.FixtureRequest) -> Iterator[str]:
    """The target that kernels are compiled by, in all that the test runs."""
    with settings.override(target=request.param):
        yield request.param
