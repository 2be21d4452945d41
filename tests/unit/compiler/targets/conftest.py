"""Tests that use `kernel_target` run for each target; those that use `tiles` have them."""

from tests.kernel_targets import kernel_target as kernel_target
from tests.tile_emulator import tiles as tiles
