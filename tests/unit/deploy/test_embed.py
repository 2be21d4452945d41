"""Promise: the example in C encodes sentences as the compiled model does."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from examples.minilm.model import WEIGHTS_PACKAGE

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "embed"


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("make")), reason="there is no C compiler, or no make"
)
@pytest.mark.skipif(
    importlib.util.find_spec(WEIGHTS_PACKAGE) is None, reason="MiniLM's weights are not here"
)
def test_the_example_encodes_sentences(tmp_path: Path) -> None:
    build = ["make", "-s", "-C", str(EXAMPLE), f"OUT={tmp_path}", f"PYTHON={sys.executable}"]
    subprocess.run(build, check=True)
    check = [sys.executable, "-m", "examples.embed.check", str(tmp_path / "encode")]
    subprocess.run([*check, str(tmp_path / "minilm" / "minilm.weights")], check=True)
