"""Promise: an exported program with code for AMX asks for tiles, and says if they are refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import anydim as ad
from anydim.compiler.targets.llvm.host import this_machine
from tests.tile_emulator import Emulator, build, reason
from tests.tile_emulator import tiles as tiles
from tests.unit.deploy.test_export import build as make
from tests.unit.deploy.test_export import pytestmark as pytestmark
from tests.unit.test_tile_precision import call, drawn, layer

K, N = 96, 65
here = pytest.mark.skipif(bool(reason()), reason=reason() or "runs")


def run(folder: Path, x: np.ndarray, **environment: str) -> subprocess.CompletedProcess[bytes]:
    (weights,) = folder.glob("*.weights")
    command = [folder / "example", weights, *map(str, x.shape)]
    return subprocess.run(
        command, input=x.tobytes(), capture_output=True, check=False, env=environment
    )


@here
@pytest.mark.parametrize("code", ["c", "llvm"])
def test_an_export_asks_for_tiles(tiles: Emulator, code: str, tmp_path: Path) -> None:
    model, x = ad.compile(layer(K, N), precision="bfloat16", threads=1), drawn(19, K)
    (want,) = call(model, x)
    model.export(tmp_path / "made", "layer", target="x86-64-v4+amx-bfloat16", code=code)
    make(tmp_path / "made")
    preload = str(build(tmp_path / "tiles.so", "-DPRELOAD")) if tiles.library else ""
    done = run(tmp_path / "made", x, LD_PRELOAD=preload)
    assert done.returncode == 0, done.stderr.decode()
    np.testing.assert_array_equal(np.frombuffer(done.stdout, np.float32).reshape(19, N), want)
    if tiles.library:
        refused = run(tmp_path / "made", x)
        assert refused.returncode == 1 and b"does not permit them" in refused.stderr


def test_other_exports_do_not_ask(tmp_path: Path) -> None:
    if this_machine().machine.pair_tiles:
        pytest.skip("native code has tiles")
    ad.compile(layer(K, N), threads=1).export(tmp_path / "made", "layer")
    assert "#if 0\n  return syscall" in (tmp_path / "made" / "layer.c").read_text("utf-8")
