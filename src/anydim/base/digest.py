"""SHA-256 of short contents, for a process that has not loaded OpenSSL.

Loading it takes 2 ms and 3.6 MiB of memory, which the code that comes with Python needs for 400 KB.
Longer contents, and all where OpenSSL is loaded anyway, go by way of `hashlib`, which is five times
as fast.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

try:
    _own: Any = import_module("_sha2" if sys.version_info >= (3, 12) else "_sha256").sha256
except ImportError:  # a Python that leaves it to OpenSSL
    _own = None
_SHORT = 1 << 17  # bytes


def sha256(data: bytes | memoryview = b"", size: int = 0) -> Any:
    """A hash as `hashlib.sha256` makes it; `size` bytes will be given later."""
    if _own is not None and len(data) + size <= _SHORT and "hashlib" not in sys.modules:
        return _own(data)
    return import_module("hashlib").sha256(data)
