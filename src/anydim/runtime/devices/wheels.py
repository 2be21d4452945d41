"""Paths of shared libraries in NVIDIA's wheels and in the system."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path


def library_paths(
    packages: Sequence[str], stem: str, windows: str, versions: Sequence[str]
) -> Iterator[str]:
    """Yield paths and names of a library, such as 'nvrtc', to try in order, wheels first.

    `packages` are the wheels that may contain it, `windows` the pattern of its file name on
    Windows, with `{}` for a version; `versions` are those that a system may have.
    """
    here = sys.platform == "win32"
    for package in packages:
        try:
            found = find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in (found.submodule_search_locations or ()) if found is not None else ():
            pattern = f"bin/**/{windows.format('*')}" if here else f"lib/lib{stem}.so.*"
            yield from map(str, sorted(Path(folder).glob(pattern)))
    for version in versions:
        yield windows.format(version) if here else f"lib{stem}.so.{version}"
