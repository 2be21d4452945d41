"""The record of an exported program, from which its texts are generated."""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.records import dataclass
from anydim.compiler.targets.processor import Processor
from anydim.deploy.export.binding import Binding
from anydim.deploy.export.weights import Weights
from anydim.runtime.interface import Interface
from anydim.runtime.signature import Signature


@dataclass(frozen=True)
class Exported:
    """The data for the templates. `threads` are the most of a call, `objects` existing files."""

    name: str
    signature: Signature
    interface: Interface
    binding: Binding
    weights: Weights
    processor: Processor
    threads: int
    objects: Sequence[str] = ()

    @property
    def straight(self) -> bool:
        """Whether it is a single segment."""
        return self.binding.code is None
