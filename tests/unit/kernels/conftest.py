"""Every test here runs for each target."""

import pytest

from tests.kernel_targets import kernel_target as kernel_target


@pytest.fixture(autouse=True)
def _each_target(kernel_target: str) -> None:
    """Kernels are compiled by the target that the settings name."""
