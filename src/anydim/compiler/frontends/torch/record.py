"""The row of an overload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Build: TypeAlias = "Callable[..., Any]"
"""(builder, arguments of the schema) -> results; keyword-only arguments are named."""
