"""The command cache: what anydim keeps on disk between runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from anydim.base.amounts import bytes_text
from anydim.base.cache import DiskCache, disk_cache
from anydim.base.errors import OptionError, UserError
from anydim.cli.ranges import FiniteRange
from anydim.cli.report.console import Console
from anydim.deploy.container import Container

_DAY = 86_400.0
_KINDS = {  # folders of the cache
    "objects": "object code of kernels",
    "programs": "compiled programs",
    "sources": "files that programs were compiled from",
    "structures": "programs with the same code",
    "models": "models of sessions and transformers",
    "packed": "weights, packed for this processor",
}
_CONTAINERS = ("programs", "models")


@click.command
@click.argument("action", type=click.Choice(["show", "check", "prune"]), default="show")
@click.option(
    "--unused",
    type=FiniteRange(0),
    metavar="DAYS",
    help="prune: remove files that were not used for DAYS.",
)
@click.option("--all", "everything", is_flag=True, help="prune: remove everything.")
def cache(action: str, unused: float | None, everything: bool) -> None:
    """Show, check or prune the cache of compiled code and programs.

    Without an option, prune removes the least recently used files of each folder above its limit
    (ANYDIM_CACHE_LIMIT_MB). Other processes may use the cache at the same time.

    \b
    Example:
      anydim cache
      anydim cache check
      anydim cache prune --unused 30
    """
    console = Console()
    if action != "prune" and (unused is not None or everything):
        raise OptionError("--unused and --all work with `anydim cache prune` only")
    if action == "check":
        _check(console)
    elif action == "prune":
        _prune(console, unused, everything)
    _show(console)


def _show(console: Console) -> None:
    lines = [f"{'folder':<10}{'files':>7}{'size':>12}{'limit':>12}  last use"]
    for kind, about in _KINDS.items():
        files = list(_files(kind))
        size = sum(file.stat().st_size for file in files)
        last = max((file.stat().st_mtime for file in files), default=None)
        used = "never" if last is None else _age(time.time() - last)
        row = f"{kind:<10}{len(files):>7}{bytes_text(size):>12}{bytes_text(_cache(kind).limit):>12}"
        lines.append(f"{row}  {used:<14}{about}")
    console.table("\n".join(lines))
    console.note(f"in {_cache('objects').root}")


def _check(console: Console) -> None:
    """Read every file; what is damaged is removed."""
    damaged = checked = 0
    for kind in _KINDS:
        for file in _files(kind):
            checked += 1
            if not _is_whole(kind, file):
                damaged += 1
                file.unlink(missing_ok=True)
                console.result(f"damaged, removed: {file}")
    console.result(f"{checked} files checked, {damaged} damaged")


def _is_whole(kind: str, file: Path) -> bool:
    if kind == "packed":
        return True  # compared with the checksums of the model when it is loaded
    if kind not in _CONTAINERS:
        found = replace(_cache(kind), limit=file.stat().st_size)
        return found.get(file.parent.name + file.name) is not None
    try:
        container = Container(str(file))
        for name in container.parts:
            container.view(name)
    except UserError:
        return False
    return True


def _prune(console: Console, unused: float | None, everything: bool) -> None:
    now, removed, freed = time.time(), 0, 0
    for kind in _KINDS:
        before = {file: file.stat() for file in _files(kind)}
        if unused is None and not everything:
            _cache(kind).trim()
        for file, about in before.items():
            if everything or (unused is not None and now - about.st_mtime > unused * _DAY):
                file.unlink(missing_ok=True)
        gone = [about.st_size for file, about in before.items() if not file.exists()]
        removed, freed = removed + len(gone), freed + sum(gone)
    console.result(f"{removed} files removed, {bytes_text(freed)}")


def _files(kind: str) -> Iterator[Path]:
    return (file for file in Path(_cache(kind).folder).glob("??/*") if file.is_file())


def _cache(kind: str) -> DiskCache:
    found = disk_cache(kind)
    if found is None:
        raise OptionError("the cache is off", "ANYDIM_USE_CACHE=1 switches it on")
    return found


def _age(seconds: float) -> str:
    for unit, name in ((_DAY, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name} ago"
    return "just now"
