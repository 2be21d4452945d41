"""What a program is compiled with beside the templates of its target and the options of kernels."""

from __future__ import annotations

from dataclasses import field

from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.kernels.template import Template


@dataclass(frozen=True)
class Form:
    """`templates` are asked before those of the target; code of theirs runs in this process alone,
    so that what is saved is made without them. `pads` says what dims are padded to (`pad.py`).
    `on_devices` are asked before those of the targets of devices, by these targets' names."""

    templates: tuple[Template, ...] = ()
    pads: FrozenMapping[str, int | str] = field(default_factory=FrozenMapping)
    on_devices: FrozenMapping[str, tuple[Template, ...]] = field(default_factory=FrozenMapping)


PLAIN_FORM = Form()
