"""Every test here runs for each target."""

import pytest

from anydim.kernels.product import sharing
from tests.kernel_targets import kernel_target as kernel_target


@pytest.fixture(autouse=True)
def _each_target(kernel_target: str) -> None:
    """Kernels are compiled by the target that the settings name."""


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are small here: were a step no less work, threads would have nothing to share."""
    monkeypatch.setattr(sharing, "STEP", 50)
