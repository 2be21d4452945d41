"""Calls of exported models in node, many in one instance."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.base.errors import MissingError
from anydim.deploy.web.link import linker

Inputs = Mapping[str, np.ndarray]
NODE = shutil.which("node")
_RELAXED = "--experimental-wasm-relaxed-simd"  # of node 20; later ones have it without
_NO_LINKER = "there is no linker for WebAssembly: pip install 'anydim[zig]'"


def has_linker() -> bool:
    """Whether exports for browsers can be linked."""
    try:
        return bool(linker())
    except MissingError:
        return False


needs_node = pytest.mark.skipif(
    NODE is None or not has_linker(),
    reason="there is no node" if NODE is None else _NO_LINKER,
)


@cache
def _flags() -> tuple[str, ...]:
    """The options with which this node has fused multiply-add."""
    assert NODE is not None
    done = subprocess.run([NODE, _RELAXED, "-e", "0"], capture_output=True, check=False)
    return () if done.returncode else (_RELAXED,)


def answers(
    folder: Path, calls: Iterable[Mapping[str, Any]], relaxed: bool | None = False,
    together: bool = False, **options: object,
) -> list[dict[str, Any]]:  # fmt: skip
    """The answers of calls: `{"inputs": ...}`, or `{"code": ...}` with `model`."""
    given = {
        "folder": str(folder), "calls": list(calls), "together": together,
        "options": {"relaxed": relaxed, **options},
    }  # fmt: skip
    assert NODE is not None
    done = subprocess.run(
        [NODE, *(() if relaxed is False else _flags()), Path(__file__).with_name("calls.mjs")],
        input=json.dumps(given), capture_output=True, encoding="utf-8", check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, list)
    return found


def call_of(inputs: Inputs) -> dict[str, Any]:
    """A call of `answers`."""
    return {
        "inputs": {
            name: {
                "dtype": array.dtype.name, "shape": array.shape,
                "data": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode(),
            }
            for name, array in inputs.items()
        }
    }  # fmt: skip


def outputs(model: ad.Model, answer: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The outputs of an answer as arrays."""
    assert "error" not in answer, answer
    found = {}
    for spec in model.program.signature.outputs:
        made = answer["outputs"][spec.key]
        data = np.frombuffer(base64.b64decode(made["data"]), spec.dtype.numpy)
        found[spec.key] = data.reshape(made["shape"])
    return found
