"""Compiled models that outlive the process: the next session of a file is there in milliseconds.

A model that was compiled is saved beside the compiler's objects, under the hash of everything that
it depends on: the file, threads, settings, the processor and the code of anydim. Models with
strings, with data outside the file or of more than a quarter of the cache's limit are not kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from anydim.base import settings
from anydim.base.cache import DiskCache, key_of, package_version
from anydim.base.errors import UserError
from anydim.deploy.load import load
from anydim.frontends.onnx.file.reading import Opened
from anydim.model import Model, StringModel, compile
from anydim.program.held import Held
from anydim.runtime.cpu import this_level

_SHARE = 4  # of the limit that one model may take
_SETTINGS = ("winograd", "target", "c_compiler", "vector_bits", "most_nodes")


def compiled(model: Opened, threads: int) -> Held:
    """The model, from the last time or compiled now; raises what `anydim.compile` raises."""
    folder = _folder()
    if folder is None or _is_elsewhere(model):
        return compile(model, threads=threads)
    path = folder.path(_key(model, threads))
    if path.is_file():
        with contextlib.suppress(UserError, OSError):
            found = load(path)
            os.utime(path)
            return found
    made = compile(model, threads=threads)
    _keep(made, path, folder)
    return made


def _folder() -> DiskCache | None:
    if not settings.use_cache:
        return None
    return DiskCache(Path(settings.cache_dir) / "models", settings.cache_limit_mb * 1024**2)


def _is_elsewhere(model: Opened) -> bool:
    return any(tensor.data_location for tensor in model.proto.graph.initializer)


def _key(model: Opened, threads: int) -> str:
    state = hashlib.sha256(model.proto.SerializeToString(deterministic=True))
    for number, read in sorted(model.weights.items()):
        state.update(number.to_bytes(8, "little"))
        state.update(read().data)
    level = this_level()
    return key_of(
        state.hexdigest(), model.name, str(threads), level.architecture, *sorted(level.flags),
        *(f"{name}={settings.get(name)}" for name in _SETTINGS), package_version(),
    )  # fmt: skip


def _keep(made: Model, path: Path, folder: DiskCache) -> None:
    """Save a model; a folder that cannot be used costs time, never an error."""
    if isinstance(made, StringModel):
        return
    weights = sum(array.nbytes for array in made.executable._constants.values())
    if weights > folder.limit // _SHARE:
        return
    with contextlib.suppress(UserError, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        os.close(handle)
        try:
            made.save(name)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
        folder.tidy()
