"""Records and code in memory -> what can be called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy

from anydim.runtime.delegated import Handed
from anydim.runtime.executable import Executable, Image
from anydim.runtime.interface import Interface
from anydim.runtime.signature import Signature
from anydim.runtime.straight import StraightExecutable

if TYPE_CHECKING:
    from anydim.runtime.device_calls import Hosted
    from anydim.runtime.region import RegionExecutable


def executable(
    signature: Signature, interface: Interface, image: Image,
    arrays: Mapping[str, numpy.ndarray], threads: int = 1,
    devices: Mapping[str, Hosted] | None = None, handed: Handed | None = None,
) -> Executable[Any]:  # fmt: skip
    """What runs the code of `image`, whose symbols are those of `interface`, and of `devices`, and
    the parts that are `handed` over."""
    if "bind" in interface.functions:
        return StraightExecutable(signature, interface, image, arrays, threads, devices, handed)
    regions: type[RegionExecutable] = import_module("anydim.runtime.region").RegionExecutable
    return regions(signature, interface, image, arrays, threads, devices, handed)
