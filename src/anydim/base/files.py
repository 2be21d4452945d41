"""Atomic replacement of files."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text; a file that exists is replaced as a whole, a device or a pipe written to."""
    name = os.fspath(path)
    special = os.path.exists(name) and not os.path.isfile(name)
    place = nullcontext(name) if special else replace_file(name)
    with place as new, open(new, "w", encoding="utf-8") as file:
        file.write(text)


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
