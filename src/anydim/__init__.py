"""anydim: compile a tensor program once, run it at any size.

import anydim as ad

model = ad.compile("encoder.onnx", dims={"batch": ad.Dim(0, 64), "seq": ad.Dim(1, 512)})
out = model(input_ids=ids, attention_mask=mask)
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anydim.api.cached_model import cached
    from anydim.api.compile_options import Options
    from anydim.api.definitions import define
    from anydim.api.entry import compile
    from anydim.api.model import Model
    from anydim.base import settings
    from anydim.base.dtypes import (
        bfloat16,
        boolean,
        float16,
        float32,
        float64,
        int8,
        int16,
        int32,
        int64,
        uint8,
        uint16,
        uint32,
        uint64,
    )
    from anydim.base.errors import (
        AnydimError,
        ArgumentError,
        ArtefactError,
        BusyError,
        DeviceError,
        DeviceMemoryError,
        DimError,
        GraphError,
        InputError,
        InternalError,
        LanguageError,
        MemoryLimitError,
        MissingError,
        ModelError,
        OptionError,
        OutOfMemoryError,
        TimeLimitError,
        UserError,
    )
    from anydim.compiler.frontends.builder import Builder
    from anydim.compiler.variants import strategies
    from anydim.deploy.inspect import inspect
    from anydim.deploy.load import LoadedModel, load
    from anydim.runtime.program.limits import MemoryLimit
    from anydim.runtime.ragged import Ragged
    from anydim.runtime.structures import Structure
    from anydim.serving.language_models.language_model import language_model
    from anydim.sizes import Dim

__version__ = "0.1.0"

__all__ = [
    "AnydimError",
    "ArgumentError",
    "ArtefactError",
    "Builder",
    "BusyError",
    "DeviceError",
    "DeviceMemoryError",
    "Dim",
    "DimError",
    "GraphError",
    "InputError",
    "InternalError",
    "LanguageError",
    "LoadedModel",
    "MemoryLimit",
    "MemoryLimitError",
    "MissingError",
    "Model",
    "ModelError",
    "OptionError",
    "Options",
    "OutOfMemoryError",
    "Ragged",
    "Structure",
    "TimeLimitError",
    "UserError",
    "__version__",
    "bfloat16",
    "boolean",
    "cached",
    "compile",
    "define",
    "float16",
    "float32",
    "float64",
    "inspect",
    "int8",
    "int16",
    "int32",
    "int64",
    "language_model",
    "load",
    "settings",
    "strategies",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

# Modules are imported on first use of a name: a process that only loads and runs needs few of
# them, and the command line reacts to Ctrl-C from the start.
_RUNNING = {
    "Dim": "anydim.sizes",
    "LoadedModel": "anydim.deploy.load",
    "MemoryLimit": "anydim.runtime.program.limits",
    "Ragged": "anydim.runtime.ragged",
    "Structure": "anydim.runtime.structures",
    "inspect": "anydim.deploy.inspect",
    "load": "anydim.deploy.load",
}
_STARTING = {  # programs may be on disk
    "Model": "anydim.api.model",
    "Options": "anydim.api.compile_options",
    "compile": "anydim.api.entry",
    "language_model": "anydim.serving.language_models.language_model",
}
_COMPILING = {
    "Builder": "anydim.compiler.frontends.builder",
    "cached": "anydim.api.cached_model",
    "define": "anydim.api.definitions",
}
_MODULES = {"settings": "anydim.base.settings", "strategies": "anydim.compiler.variants.strategies"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        text = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(text, name=name, obj=sys.modules[__name__])
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _COMPILING or name in _STARTING:
        value = _of_compiler(name)
    else:
        kinds = "anydim.base.errors" if name.endswith("Error") else "anydim.base.dtypes"
        value = getattr(import_module(_RUNNING.get(name, kinds)), name)
    globals()[name] = value
    return value


def _of_compiler(name: str) -> Any:
    """A name of the compiler; LLVM is loaded concurrently with the Python modules."""
    try:
        if name in _STARTING:
            with import_module("anydim.base.collector").collector_paused(lasting=True):
                return getattr(import_module(_STARTING[name]), name)
        loaded = import_module("anydim.compiler.targets.llvm.llvm_api").begin_loading()
        value = getattr(import_module(_COMPILING[name]), name)
    except ModuleNotFoundError as error:
        raise import_module("anydim.base.missing_package").missing_module(
            f"anydim.{name}", error
        ) from error
    loaded()
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
