"""anydim: compile a tensor program once, run it at any size.

    import anydim as ad

    model = ad.compile("encoder.onnx", dims={"batch": ad.Dim(0, 64), "seq": ad.Dim(1, 512)})
    out = model(input_ids=ids, attention_mask=mask)
"""

from anydim.targets.llvm.library import begin_loading

_loaded = begin_loading()  # LLVM comes into memory while Python reads the rest

# ruff: noqa: E402
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
    DimError,
    GraphError,
    InputError,
    InternalError,
    LanguageError,
    ModelError,
    OptionError,
    UserError,
)
from anydim.definitions import define
from anydim.frontends.builder import Builder
from anydim.model import Model, compile
from anydim.sizes import Dim

_loaded()

__version__ = "0.1.0"

__all__ = [
    "AnydimError",
    "Builder",
    "Dim",
    "DimError",
    "GraphError",
    "InputError",
    "InternalError",
    "LanguageError",
    "Model",
    "ModelError",
    "OptionError",
    "UserError",
    "__version__",
    "bfloat16",
    "boolean",
    "compile",
    "define",
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "settings",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
