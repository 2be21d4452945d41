"""Tests that use `kernel_target` run for each target."""

from tests.kernel_targets import kernel_target as kernel_target
