"""All engines for delegated subgraphs, by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import metadata, util
from typing import Any

from anydim.base.errors import DeviceError
from anydim.base.fork_locks import fork_lock
from anydim.base.records import dataclass
from anydim.runtime.devices.engines.engine import Engine
from anydim.runtime.devices.engines.onnxruntime import OnnxRuntime
from anydim.runtime.devices.engines.openvino import OpenVino


@dataclass(frozen=True)
class EngineKind:
    """An engine: its distribution, its extra of anydim, and its constructor.

    `open` raises MissingError if it is not installed.
    """

    about: str
    distribution: str
    open: Callable[[], Engine]

    def here(self) -> str:
        """Return the installed version; raises DeviceError if there is none. Imports nothing."""
        name = self.distribution
        if util.find_spec(name) is None:
            raise DeviceError(f"{name} is not installed", f"pip install anydim[{name}]")
        try:
            version = f" {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            version = ""
        return f"{self.about}{version}: takes whole parts of a program"


ENGINES: Mapping[str, EngineKind] = {
    "onnxruntime": EngineKind("onnxruntime's CPU provider", "onnxruntime", OnnxRuntime),
    "openvino": EngineKind("OpenVINO's CPU plugin", "openvino", OpenVino),
}
_LOCK = fork_lock(sys.modules[__name__], "_LOCK")


def open_engine(name: str) -> Engine:
    """Return the engine of a name, one per process. Raises MissingError if it is not installed."""
    with _LOCK:
        return _open_engine(name)


@cache
def _open_engine(name: str) -> Engine:
    return ENGINES[name].open()


def named_engines(devices: Any) -> tuple[Any, dict[str, str | Engine]]:
    """Split `devices={"accel": "onnxruntime", ...}` into devices, and engines by name."""
    if not isinstance(devices, Mapping):
        return devices, {}
    engines = {
        name: given for name, given in devices.items()
        if isinstance(given, Engine) or (isinstance(given, str) and given in ENGINES)
    }  # fmt: skip
    rest = {name: given for name, given in devices.items() if name not in engines}
    return rest or None, engines


def engine_named(name: str, given: Mapping[str, str | Engine]) -> Engine | None:
    """Return the engine that a name in the program refers to, otherwise None.

    The names of engines refer to themselves. Raises MissingError if it is not installed.
    """
    wanted = given.get(name, name)
    if isinstance(wanted, Engine):
        return wanted
    return open_engine(wanted) if wanted in ENGINES else None
