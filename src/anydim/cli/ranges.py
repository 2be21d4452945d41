"""Ranges of numbers on the command line."""

from __future__ import annotations

from math import isfinite
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A number within bounds, neither infinite nor NaN."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Raises BadParameter for another value."""
        number = float(super().convert(value, param, ctx))
        if not isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number
