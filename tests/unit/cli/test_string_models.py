"""Promise: the command line runs models with strings, compiled and saved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from anydim.cli.app import main
from tests.unit.compiler.frontends.test_strings import CLASSES, classifier
from tests.unit.deploy.test_saved_strings import maps


def words(*line: str) -> Result:
    return CliRunner().invoke(main, list(line))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strings")
    onnx.save(classifier()[0], folder / "c.onnx")
    onnx.save(maps(), folder / "maps.onnx")
    np.savez(folder / "in.npz", flat=np.array(["no", "YES"]))
    np.savez(folder / "x.npz", x=np.eye(3, dtype=np.float32))
    assert words("compile", str(folder / "c.onnx"), "-o", str(folder / "c.anydim")).exit_code == 0
    return folder


@pytest.mark.parametrize("name", ["c.onnx", "c.anydim"])
def test_run(name: str, folder: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out.npz")
    done = words("run", str(folder / name), "--input", str(folder / "in.npz"), "--output", out)
    assert done.exit_code == 0, done.output
    assert "name    string   [2]" in done.output
    found = np.load(out)
    assert set(found["name"].tolist()) <= set(CLASSES) and found["score"].shape == (2, 3)


@pytest.mark.parametrize("command", ["run", "bench", "profile"])
def test_strings_cannot_be_drawn(command: str, folder: Path) -> None:
    done = words(command, str(folder / "c.anydim"), "--at", "unk__0=2")
    assert done.exit_code == 2
    assert "c.onnx takes 'flat' on strings, which cannot be drawn\n  run it on" in done.output


def test_maps_are_no_arrays(folder: Path, tmp_path: Path) -> None:
    line = ["run", str(folder / "maps.onnx"), "--input", str(folder / "x.npz")]
    done = words(*line)
    assert done.exit_code == 0 and "z       list   [3]" in done.output, done.output
    done = words(*line, "--output", str(tmp_path / "out.npz"))
    assert done.exit_code == 2 and "'z' is no array, but a list or maps" in done.output
