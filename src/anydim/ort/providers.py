"""Execution providers: the CPU is the only one; requests for others raise a warning."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from anydim.base.records import dataclass
from anydim.base.user_values import short_repr
from anydim.ort.errors import ValueRefused
from anydim.ort.values import OrtDevice

CPU = "CPUExecutionProvider"
_OTHERS = (
    "NvTensorRTRTX", "Tensorrt", "CUDA", "MIGraphX", "OpenVINO", "Dnnl", "VitisAI", "QNN", "Nnapi",
    "VSINPU", "Js", "CoreML", "ACL", "Dml", "Rknpu", "WebNN", "WebGpu", "Xnnpack", "CANN", "Azure",
)  # fmt: skip


def get_available_providers() -> list[str]:
    """The providers that sessions can run on."""
    return [CPU]


def get_all_providers() -> list[str]:
    """The names of all providers of onnxruntime, in order of preference."""
    return [*(f"{name}ExecutionProvider" for name in _OTHERS), CPU]


def get_device() -> str:
    """The kind of device that sessions run on."""
    return "CPU"


@dataclass(frozen=True)
class MemoryInfo:
    """The memory that holds a value: the CPU's."""

    name: str = "Cpu"
    device_id: int = 0

    @property
    def device(self) -> OrtDevice:
        return OrtDevice(0)


def normalise_providers(providers: Any, options: Any) -> dict[str, dict[str, str]]:
    """Providers by name with their options; unavailable ones are dropped with a warning.

    Raises ValueError for lists of different lengths.
    """
    if providers is None:
        return {}
    if isinstance(providers, str):
        providers = [providers]
    if not isinstance(providers, Sequence):
        raise ValueRefused("'providers' should be a sequence.")
    if options is not None:
        if not isinstance(options, Sequence) or len(options) != len(providers):
            raise ValueRefused(
                "'providers' and 'provider_options' should be the same length if both are given."
            )
        providers = list(zip(providers, options))
    found: dict[str, dict[str, str]] = {}
    for entry in providers:
        name, given = entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, {})
        if name != CPU:
            warnings.warn(
                f"Specified provider {short_repr(name)} is not in available provider names. "
                f"Available providers: '{CPU}'", UserWarning, stacklevel=4,
            )  # fmt: skip
        elif isinstance(given, Mapping):
            found[name] = {str(key): str(value) for key, value in given.items()}
    return found
