"""A relation between sizes that is checked when a program runs."""

from __future__ import annotations

from dataclasses import dataclass

from anydim.sizes.expression import Size


@dataclass(frozen=True)
class Guard:
    """`left relation right` must hold ('==', '!=', '<=', '<'); `message` says why."""

    left: Size
    relation: str
    right: Size
    message: str
