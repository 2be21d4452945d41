"""anydim: compile a tensor program once, run it at any size.

import anydim as ad

model = ad.compile("encoder.onnx", dims={"batch": ad.Dim(0, 64), "seq": ad.Dim(1, 512)})
out = model(input_ids=ids, attention_mask=mask)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from anydim.deploy.load import LoadedModel, load
from anydim.sizes import Dim

if TYPE_CHECKING:
    from anydim.base import settings
    from anydim.caches import cached
    from anydim.definitions import define
    from anydim.deploy.inspect import inspect
    from anydim.frontends.builder import Builder
    from anydim.model import Model, compile
    from anydim.program.limits import MemoryLimit
    from anydim.variants import strategies

__version__ = "0.1.0"

__all__ = [
    "AnydimError",
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
    "OutOfMemoryError",
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
    "load",
    "settings",
    "strategies",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

# what a process that only loads and runs asks for seldom
_RECORDS = {"MemoryLimit": "anydim.program.limits", "inspect": "anydim.deploy.inspect"}

# what needs the compiler, imported when it is first asked for
_COMPILING = {
    "Builder": "anydim.frontends.builder",
    "Model": "anydim.model",
    "cached": "anydim.caches",
    "compile": "anydim.model",
    "define": "anydim.definitions",
}


def __getattr__(name: str) -> Any:
    if name == "strategies":
        return import_module("anydim.variants.strategies")
    if name == "settings":  # a process that only loads and runs reads none
        return import_module("anydim.base.settings")
    if name in _RECORDS:
        return getattr(import_module(_RECORDS[name]), name)
    module = _COMPILING.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:  # LLVM comes into memory while Python reads the rest
        loaded = import_module("anydim.targets.llvm.library").begin_loading()
        value = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise _missing(name, error) from error
    loaded()
    globals()[name] = value
    return value


def _missing(name: str, error: ModuleNotFoundError) -> Exception:
    """What to say where there is no compiler, or something that it needs is not there."""
    if error.name == "anydim.targets":
        problem = f"anydim.{name} needs the compiler, which is not in anydim-runtime"
        return MissingError(problem, "pip uninstall anydim-runtime, then pip install anydim")
    if error.name is None or error.name.startswith("anydim"):
        return error
    return MissingError(
        f"anydim.{name} needs {error.name}, which is not installed", f"pip install {error.name}"
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
