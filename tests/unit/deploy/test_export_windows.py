"""Promise: exported C is the same program on Windows, built by MinGW, and by CMake anywhere.

Wine runs what MinGW builds; without them, tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import anydim as ad
from tests.unit.deploy.kinds import KINDS, Inputs

MINGW, WINE = shutil.which("x86_64-w64-mingw32-gcc"), shutil.which("wine")
on_windows = pytest.mark.skipif(
    not (MINGW and WINE and shutil.which("make")), reason="MinGW or Wine is missing"
)
by_cmake = pytest.mark.skipif(
    not (shutil.which("cmake") and shutil.which("cc")), reason="CMake or a C compiler is missing"
)
AVX2 = "x86-64-v3"  # that Wine's processors have, wherever tests run


def done(command: Sequence[object], **more: object) -> subprocess.CompletedProcess[bytes]:
    found = subprocess.run(list(map(str, command)), capture_output=True, check=False, **more)  # type: ignore[call-overload]
    assert found.returncode == 0, found.stderr.decode()[-2000:]
    return found  # type: ignore[no-any-return]


def outputs(
    runner: Sequence[object], folder: Path, inputs: Inputs, environment: Mapping[str, str]
) -> bytes:
    (weights,) = folder.glob("*.weights")
    sizes = [size for array in inputs.values() for size in array.shape]
    data = b"".join(array.tobytes() for array in inputs.values())
    return done([*runner, weights, *sizes], input=data, env={**os.environ, **environment}).stdout


@on_windows
@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", sorted(KINDS))
def test_windows_gives_the_bits_of_linux(name: str, threads: int, tmp_path: Path) -> None:
    kind = KINDS[name]
    model = ad.compile(kind.build(), threads=threads)
    folders = tmp_path / "linux", tmp_path / "windows"
    for folder in folders:
        model.export(folder, "program", target=AVX2)
    done(["make", "-s", "-C", folders[0]])
    tools = ("CC=x86_64-w64-mingw32-gcc", "AR=x86_64-w64-mingw32-ar", "LDFLAGS=-static")
    done(["make", "-s", "-C", folders[1], *tools])
    wine = {"WINEPREFIX": str(tmp_path / "wine"), "WINEDEBUG": "-all"}
    for inputs in kind.inputs():
        here = outputs([folders[0] / "example"], folders[0], inputs, {})
        there = outputs([WINE, folders[1] / "example.exe"], folders[1], inputs, wine)
        assert here == there


@on_windows
def test_objects_for_windows_have_the_bits_of_linux(tmp_path: Path) -> None:
    """LLVM's objects are COFF, with the system's calling convention; MinGW links them."""
    kind = KINDS["encoder"]
    model = ad.compile(kind.build())
    folders = tmp_path / "linux", tmp_path / "windows"
    for folder, target in zip(folders, (AVX2, f"windows-{AVX2}")):
        model.export(folder, "program", target=target, code="llvm")
    done(["make", "-s", "-C", folders[0]])
    tools = ("CC=x86_64-w64-mingw32-gcc", "AR=x86_64-w64-mingw32-ar", "LDFLAGS=-static")
    done(["make", "-s", "-C", folders[1], *tools])
    wine = {"WINEPREFIX": str(tmp_path / "wine"), "WINEDEBUG": "-all"}
    inputs = kind.draw(np.random.default_rng(0), 17)
    here = outputs([folders[0] / "example"], folders[0], inputs, {})
    assert here == outputs([WINE, folders[1] / "example.exe"], folders[1], inputs, wine)


@by_cmake
@pytest.mark.parametrize("code", ["c", "llvm"])
def test_cmake_builds_the_example(code: str, tmp_path: Path) -> None:
    kind = KINDS["encoder"]
    model = ad.compile(kind.build(), threads=2)
    model.export(tmp_path, "program", code=code)
    done(["cmake", "-S", tmp_path, "-B", tmp_path / "build"])
    done(["cmake", "--build", tmp_path / "build"])
    inputs = kind.draw(np.random.default_rng(0), 7)
    got = outputs([tmp_path / "build" / "example"], tmp_path, inputs, {})
    wanted = np.concatenate([array.reshape(-1) for array in model(**inputs).values()])
    np.testing.assert_allclose(np.frombuffer(got, np.float32), wanted, 1e-6, 1e-6)
