"""Creates executables from records and code in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy

from anydim.runtime.delegated import DelegatedParts
from anydim.runtime.executable import Executable, Image
from anydim.runtime.interface import Interface
from anydim.runtime.signature import Signature
from anydim.runtime.straight import StraightExecutable

if TYPE_CHECKING:
    from anydim.runtime.device_calls import Hosted


def executable(
    signature: Signature, interface: Interface, image: Image,
    arrays: Mapping[str, numpy.ndarray], threads: int = 1,
    devices: Mapping[str, Hosted] | None = None, handed: DelegatedParts | None = None,
) -> Executable[Any]:  # fmt: skip
    """Create the executable for the code of `image` with its `interface`, devices and delegated
    parts."""
    if "bind" in interface.functions:
        return StraightExecutable(signature, interface, image, arrays, threads, devices, handed)
    from anydim.runtime.region import RegionExecutable

    return RegionExecutable(signature, interface, image, arrays, threads, devices, handed)
