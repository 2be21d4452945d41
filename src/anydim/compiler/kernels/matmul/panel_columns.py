"""The columns of a product in panels, of one image or of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from anydim.base.records import dataclass
from anydim.compiler.kernels.matmul.window_geometry import Walk
from anydim.compiler.kernels.schedule import ANY
from anydim.compiler.kernels.versions import taken_where
from anydim.sizes import NEVER, Condition, Size, as_size, at_least, ceil_div, maximum, minimum

# No tap outside is multiplied there: 1.2 to 1.55 -> 0.5 to 0.9 from 12 images on.
MAX_POSITIONS = 16  # maximum positions of an image computed by position, and elements of a channel
BY_POSITION = "by_position"  # name of the version
Loop = TypeVar("Loop", bound=Walk)


@dataclass(frozen=True)
class Columns(Generic[Loop]):
    """The columns of a product, in panels of `width`.

    Where `joined` holds, `loop` has one iteration, and `all` counts the columns of all its images.
    Where `by_position` holds as well, see `by_position.py`.
    """

    loop: Loop | None
    positions: Size
    joined: Condition
    width: Size
    all: Size
    loops: tuple[tuple[str, Size], ...]
    by_position: Condition

    @property
    def panels(self) -> Size:
        return ceil_div(self.all, maximum(self.width, 1))


def joined_columns(
    loop: Loop | None, positions: Size, max_width: int, width: Size, loops: Sequence[Loop],
    version: str = ANY, by_position: Condition = NEVER,
) -> Columns[Loop]:  # fmt: skip
    """Return columns of `positions` per image; a panel has `max_width`, or `width` of one image."""
    extents = tuple((each.name, each.extent) for each in loops)
    if loop is None:
        return Columns(None, positions, NEVER, width, positions, extents, NEVER)
    fitting = by_position.where(max_width, as_size(max_width) // maximum(positions, 1))
    images = minimum(fitting, loop.extent)
    joined = taken_where(version, "joined", at_least(images, 2), at_least(images, 1))
    joined = by_position if version == BY_POSITION else joined
    few = minimum(
        positions, max(max_width, MAX_POSITIONS)
    )  # all positions of images that are joined, as one term
    return Columns(
        loop=loop,
        positions=positions,
        joined=joined,
        width=joined.where(images * few, width),
        all=joined.where(maximum(positions, loop.extent * few), positions),
        loops=tuple(
            (name, joined.where(1, maximum(extent, 0)) if name == loop.name else extent)
            for name, extent in extents
        ),
        by_position=by_position,
    )
