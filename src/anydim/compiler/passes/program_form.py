"""Options of a compilation: additional templates, and padding of dims."""

from __future__ import annotations

from dataclasses import field

from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.compiler.kernels.template import Template


@dataclass(frozen=True)
class Form:
    """`templates` take precedence over those of the target; their code runs in this process only,
    so saved programs are compiled without them. `pads` are the sizes that dims are padded to
    (`pad.py`).
    """

    templates: tuple[Template, ...] = ()
    pads: FrozenMapping[str, int | str] = field(default_factory=FrozenMapping)


PLAIN_FORM = Form()
