"""Writes what comes with the package, so that no user's first compile has to make it.

    python -m release.shipped          # `make setup` and `make wheels` do so

Micro-kernels of products, convolutions and attention, and the host code of every program, are the
same for all models; kernels of the usual layers (`release/layers.py`) are the same for all widths.
Their objects are compiled for each level of processors (`LEVELS`), and where they depend on the
level-one cache, for its two usual sizes (`L1_BYTES`).
`base/cache.py` looks into `src/anydim/shipped` for what the user's cache lacks. A key names the
code that made an object and the release of LLVM: objects of another version are never found.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy

import anydim as ad
from anydim.base import cache, settings
from anydim.compiler.native.build import prepare
from anydim.compiler.pipeline import run_pipeline
from anydim.compiler.targets.processor import describe_processor
from anydim.compiler.targets.target import Source
from anydim.compiler.targets.targets import target
from release import layers

LEVELS = {"x86-64-v3": "vnni", "x86-64-v4": "vnni", "aarch64": "dotprod"}  # and dot products
L1_BYTES = (32 * 1024, 48 * 1024)
_LAYERS = (  # of images: channels, kernel, stride, groups
    (64, 3, 1, 1), (64, 1, 1, 1), (64, 3, 2, 1), (64, 3, 1, 64), (3, 7, 2, 1), (64, 5, 1, 1),
    (64, 1, 1, 4), (60, 3, 1, 1), (60, 1, 1, 4),
)  # fmt: skip


def program() -> ad.Builder:
    """A graph whose kernels call the libraries of floats."""
    g = ad.Builder("layers")
    for dtype in (ad.float32, ad.float64):
        _products(g, dtype)
    for number, layer in enumerate(_LAYERS):
        _images(g, f"image{number}", *layer)
    _attention(g)
    return g


def _weights(g: ad.Builder, dtype: Any, *shape: int) -> Any:
    return g.constant(numpy.full(shape, 1 / shape[-1], str(dtype)))


def _products(g: ad.Builder, dtype: Any) -> None:
    """By constants, and of two matrices of any size, the second one perhaps transposed."""
    x = g.input(f"x_{dtype}", dtype, (g.dim(f"rows_{dtype}", 0, 4096), 64))
    hidden = g.relu(g.matmul(x, _weights(g, dtype, 64, 96)))
    g.output(f"dense_{dtype}", g.matmul(hidden, _weights(g, dtype, 96, 7)))
    m, k, n = (g.dim(f"{name}_{dtype}", 0, 512) for name in "mkn")
    a, b = g.input(f"a_{dtype}", dtype, (m, k)), g.input(f"b_{dtype}", dtype, (k, n))
    turned = g.transpose(g.input(f"c_{dtype}", dtype, (n, k)), perm=(1, 0))
    g.output(f"product_{dtype}", g.matmul(a, b))
    g.output(f"turned_{dtype}", g.matmul(a, turned))
    g.output(f"vector_{dtype}", g.matmul(a, g.input(f"v_{dtype}", dtype, (k,))))


def _images(
    g: ad.Builder, name: str, channels: int, kernel: int, stride: int, groups: int
) -> None:  # fmt: skip
    """Convolutions of images of known and of free size."""
    given = {"strides": (stride, stride), "pads": (kernel // 2,) * 4, "groups": groups}
    free = [g.dim(f"{name}_{axis}", 1, 512) for axis in "hw"]
    for kind, size in (("known", (28, 28)), ("free", free)):
        batch = g.dim(f"{name}_{kind}_batch", 0, 64)
        x = g.input(f"{name}_{kind}", ad.float32, (batch, channels, *size))
        made = max(channels, 60)  # of 60, tiles are not whole
        weights = _weights(g, ad.float32, made, channels // groups, kernel, kernel)
        g.output(f"{name}_{kind}_y", g.relu(g.conv(x, weights, **given)))


def _attention(g: ad.Builder) -> None:
    batch, length = g.dim("batch", 0, 64), g.dim("length", 1, 512)
    q, k, v = (g.input(name, ad.float32, (batch, 4, length, 32)) for name in ("q", "key", "value"))
    scores = g.matmul(q, g.transpose(k, perm=(0, 1, 3, 2)))
    g.output("mixed", g.matmul(g.softmax(scores, axis=-1), v))


def portable(levels: Sequence[str]) -> dict[str, dict[str, Source]]:
    """The modules of portable libraries and kernels that the programs take, for each level, and
    those of dot products of bytes for the level with instructions for them."""
    found: dict[str, dict[str, Source]] = defaultdict(dict)
    for graph, precision in ((program(), None), *layers.graphs()):
        compiled = run_pipeline(graph, None, 2, lambda *progress: None, precision=precision)
        for level in levels:
            for l1_bytes in L1_BYTES[: 2 if level.startswith("x86") else 1]:
                code = target("llvm", level)
                code = replace(code, processor=replace(code.processor, l1_bytes=l1_bytes))
                made = compiled.again(code, 2).made
                with_dots = describe_processor(f"{level}+{LEVELS[level]}")
                for own in (code, replace(code, processor=with_dots)):
                    for name, source in prepare(made, own).sources.items():
                        if source.processor:
                            found[source.processor.name][name] = source
    return found


def write(folder: Path, levels: Sequence[str] = tuple(LEVELS)) -> int:
    """Fill a folder with objects of some levels; returns how many."""
    shutil.rmtree(folder, ignore_errors=True)  # else what it holds would not be made
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        with patch.object(cache, "SHIPPED", str(folder)):
            with settings.override(cache_dir=first, use_cache=True):
                modules = portable(levels)
            with settings.override(cache_dir=second, use_cache=True):
                for name, wanted in modules.items():
                    target("llvm", name).compile(wanted)
        found = sorted(Path(second, "objects").glob("??/*"))
        folder.mkdir(parents=True, exist_ok=True)
        for path in found:
            shutil.copyfile(path, folder / f"{path.parent.name}{path.name}")
        return len(found)


if __name__ == "__main__":
    print(f"{cache.SHIPPED}: {write(Path(cache.SHIPPED))} objects")
