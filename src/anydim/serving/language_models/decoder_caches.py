"""The caches of a decoder's graph: keys and values of each layer, which grow by the new tokens."""

from __future__ import annotations

from anydim.base.records import dataclass
from anydim.runtime.slabs import Cache
from anydim.serving.language_models.decoder_spec import CODES, DecoderSpec
from anydim.sizes import Size

ROWS, NEW, PAST, CAPACITY = "b", "s", "past", "capacity"  # dims
PICKS, STATES = "picks", "states"
OPTIONAL = {PICKS: "k", STATES: "h"}  # inputs of rows with a usual value, and their dims
_AXIS = 2
_SIDES = ("keys", "values")


@dataclass(frozen=True)
class DecoderCaches:
    """Caches, and the dims of their length and of their capacity."""

    caches: tuple[Cache, ...]
    past: str = PAST
    capacity: str = CAPACITY


def decoder_caches(spec: DecoderSpec) -> DecoderCaches:
    """The caches of the graph that `build_decoder` makes of a spec."""
    count = Size.symbol(NEW)
    return DecoderCaches(tuple(
        Cache(name, f"new_{name}", _AXIS, count)
        for number in range(len(spec.layers)) for name in cache_names(spec, number)
    ))  # fmt: skip


def cache_names(spec: DecoderSpec, number: int) -> tuple[str, ...]:
    """The caches of a layer: keys and values, and the scales of codes behind each."""
    parts = ("", "_scales") if spec.cache == CODES else ("",)
    return tuple(f"{side}{part}_{number}" for side in _SIDES for part in parts)
