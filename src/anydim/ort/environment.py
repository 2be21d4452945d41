"""onnxruntime's process-wide functions that programs call: versions, telemetry, debugging."""

from __future__ import annotations

import platform
from typing import Any

from anydim.ort.errors import Unimplemented
from anydim.ort.notices import warn_once

VERSION = "1.31.1"  # of the emulated onnxruntime
_WARNING = 2


def get_version_string() -> str:
    """The version of the interface."""
    return VERSION


def get_build_info() -> str:
    """The name and version of the implementation."""
    return "anydim, interface of ORT " + VERSION


def has_collective_ops() -> bool:
    return False


def disable_telemetry_events() -> None:
    """No-op: there is no telemetry."""


def enable_telemetry_events() -> None:
    """No-op: there is no telemetry."""


def preload_dlls(
    cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: Any = None
) -> None:
    """No-op: sessions run on the CPU."""


def get_ep_devices() -> list[Any]:
    """Devices of registered providers: none."""
    return []


def set_seed(seed: int) -> None:
    """Warn once: random numbers come from the seeds in a file and are the same in every run."""
    warn_once("set_seed: random operators take their seeds from the file", _WARNING)


def set_global_thread_pool_sizes(
    intra_op_num_threads: int = 0, inter_op_num_threads: int = 0
) -> None:
    """Warn once: every session has its own threads."""
    warn_once("set_global_thread_pool_sizes: every session has threads of its own", _WARNING)


def create_and_register_allocator(*_: Any, **__: Any) -> None:
    """No-op: memory is planned for each model."""


def register_execution_provider_library(name: str, path: str) -> None:
    """Raise NotImplemented: there is one provider."""
    raise Unimplemented(f"the execution provider '{name}' cannot be registered")


def print_debug_info() -> None:
    """Print versions."""
    print(get_build_info())
    print("platform:", platform.platform())


class _Refused:
    """A class of onnxruntime that is not supported."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise Unimplemented(f"{type(self).__name__} is not supported")


class SparseTensor(_Refused):
    """Sparse tensors are not supported."""


class LoraAdapter(_Refused):
    """Parameter adapters are not supported."""


class AdapterFormat(_Refused):
    """Parameter adapters are not supported."""


class ModelCompiler(_Refused):
    """Models are compiled by `anydim.compile`, and saved by `Model.save`."""


class OrtArenaCfg:
    """Accepted and ignored: memory is planned for each model."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass
