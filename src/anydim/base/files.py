"""Atomic replacement of files."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def replace_file(path: str) -> Iterator[str]:
    """Yield the path of a new file, which replaces `path` atomically at the end of the block.

    A link stays a link: its target is replaced. Raises OSError for a folder, and for a device or a
    pipe, which would be destroyed.
    """
    path = os.path.realpath(path)
    with suppress(FileNotFoundError):
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is a device or a pipe, not a file")
    folder, name = os.path.split(path)
    new = os.path.join(folder, f".{name}.{os.getpid()}.{threading.get_ident()}")
    try:
        yield new
        os.replace(new, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(new)
