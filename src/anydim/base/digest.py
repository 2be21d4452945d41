"""SHA-256 of short contents, without loading OpenSSL.

Loading OpenSSL takes 2 ms and 3.6 MiB of memory; Python's built-in code hashes 400 KB in the same
time. Longer contents, and all if OpenSSL is loaded anyway, use `hashlib`, which is five times as
fast.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

try:
    _own: Any = import_module("_sha2" if sys.version_info >= (3, 12) else "_sha256").sha256
except ImportError:  # a Python without its own code
    _own = None
_SHORT = 1 << 17  # bytes


def sha256(data: bytes | memoryview = b"", size: int = 0) -> Any:
    """A hash object like `hashlib.sha256`; `size` is the count of bytes of later updates."""
    if _own is not None and len(data) + size <= _SHORT and "hashlib" not in sys.modules:
        return _own(data)
    return import_module("hashlib").sha256(data)
