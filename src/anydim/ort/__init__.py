"""onnxruntime's Python interface on top of anydim.

    import anydim.ort as onnxruntime

    session = onnxruntime.InferenceSession("encoder.onnx")
    session.run(None, {"input_ids": ids, "attention_mask": mask})

Input: the arguments that programs pass to onnxruntime; output: the results and exceptions of
onnxruntime. `install()` makes `import onnxruntime` return this package; `python -m anydim.ort
program.py` runs a program that way. docs/guides/onnxruntime.md lists the supported features.
"""

from anydim.ort.binding import IOBinding
from anydim.ort.environment import (
    VERSION as __version__,
)
from anydim.ort.environment import (
    AdapterFormat,
    LoraAdapter,
    ModelCompiler,
    OrtArenaCfg,
    SparseTensor,
    create_and_register_allocator,
    disable_telemetry_events,
    enable_telemetry_events,
    get_build_info,
    get_ep_devices,
    get_version_string,
    has_collective_ops,
    preload_dlls,
    print_debug_info,
    register_execution_provider_library,
    set_global_thread_pool_sizes,
    set_seed,
)
from anydim.ort.install import install, uninstall
from anydim.ort.metadata import ModelMetadata, NodeArg
from anydim.ort.notices import set_default_logger_severity, set_default_logger_verbosity
from anydim.ort.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from anydim.ort.providers import (
    MemoryInfo as OrtMemoryInfo,
)
from anydim.ort.providers import (
    get_all_providers,
    get_available_providers,
    get_device,
)
from anydim.ort.session import InferenceSession
from anydim.ort.values import OrtDevice, OrtDeviceVendorId, OrtValue

__all__ = [
    "AdapterFormat",
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "LoraAdapter",
    "ModelCompiler",
    "ModelMetadata",
    "NodeArg",
    "OrtArenaCfg",
    "OrtDevice",
    "OrtDeviceVendorId",
    "OrtMemoryInfo",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "SparseTensor",
    "__version__",
    "create_and_register_allocator",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "install",
    "preload_dlls",
    "print_debug_info",
    "register_execution_provider_library",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "uninstall",
]


def __dir__() -> list[str]:
    return sorted(__all__)
