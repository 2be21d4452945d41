"""Records and code in memory -> what can be called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

from anydim.runtime.executable import Executable, Image
from anydim.runtime.handed import Handed
from anydim.runtime.hosted import Hosted
from anydim.runtime.interface import Interface
from anydim.runtime.region import RegionExecutable
from anydim.runtime.signature import Signature
from anydim.runtime.straight import StraightExecutable


def executable(
    signature: Signature, interface: Interface, image: Image,
    arrays: Mapping[str, numpy.ndarray], threads: int = 1,
    devices: Mapping[str, Hosted] | None = None, handed: Handed | None = None,
) -> Executable[Any]:  # fmt: skip
    """What runs the code of `image`, whose symbols are those of `interface`, and of `devices`, and
    the parts that are `handed` over."""
    form = StraightExecutable if "bind" in interface.functions else RegionExecutable
    return form(signature, interface, image, arrays, threads, devices, handed)
