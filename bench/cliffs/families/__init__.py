"""The families, area by area; each module has a tuple FAMILIES."""

from __future__ import annotations

from dataclasses import replace

from bench.cliffs.families import (
    elements,
    learned,
    moves,
    products,
    rows,
    selecting,
    windows,
)
from bench.cliffs.family import Family

_AREAS = (products, windows, rows, elements, moves, selecting, learned)


def families() -> tuple[Family, ...]:
    """All of them, each with the name of its module as its area."""
    return tuple(
        replace(family, area=area.__name__.rsplit(".", 1)[1])
        for area in _AREAS
        for family in area.FAMILIES
    )
