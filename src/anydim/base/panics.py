"""Panics of libraries in Rust, which reach Python as exceptions that are no `Exception`."""

from __future__ import annotations

import sys


def failures() -> tuple[type[BaseException], ...]:
    """What a library in Rust raises: `except failures()` catches errors and a panic."""
    error = sys.exc_info()[1]
    if error is None or type(error).__name__ != "PanicException":
        return (Exception,)
    return (Exception, type(error))
