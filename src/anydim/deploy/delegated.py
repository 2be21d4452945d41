"""Binds the engines of a loaded program: names to engines, with the parts stored in the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

from anydim.base.errors import ArtefactError, DeviceError
from anydim.deploy.saved import Saved
from anydim.runtime.devices.engines.delegated import LoadedParts
from anydim.runtime.devices.engines.table import engine_named, named_engines


def load_delegated(
    saved: Saved, devices: Any, arrays: Mapping[str, numpy.ndarray], threads: int
) -> tuple[Any, LoadedParts]:
    """The devices that are not engines, and the parts that engines run.

    Raises DeviceError for names that are bound to no engine and for parts that an engine rejects,
    MissingError for an engine that is not installed.
    """
    rest, engines = named_engines(devices)
    parts = saved.interface.handed
    found = {}
    for part in parts:
        engine = engine_named(part.engine, engines)
        if engine is None:
            raise DeviceError(
                f"{saved.signature.name} has parts on '{part.engine}', which is bound to no engine",
                f"bind it: devices={{'{part.engine}': 'onnxruntime'}}",
            )
        if part.model not in arrays or arrays[part.model].dtype != numpy.uint8:
            raise ArtefactError(f"the records of {saved.signature.name} lack the model of a part")
        found[part.engine] = engine
    return rest, LoadedParts(parts, found, arrays, threads)
