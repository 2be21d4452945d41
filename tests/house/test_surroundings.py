"""Promise: tests have a home of their own, and no setting, cache or device of whoever runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anydim.base import settings

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = {
    "ANYDIM_TARGET": "no such target", "ANYDIM_CACHE_DIR": "/nowhere", "ANYDIM_STRATEGY": "wrong",
    "OCL_ICD_VENDORS": "/nowhere", "POCL_DEVICES": "none", "XDG_CACHE_HOME": "/nowhere",
    "OMP_NUM_THREADS": "7", "NO_COLOR": "1", "COLUMNS": "20",
}  # fmt: skip
INNER = """
import os
def test_inside():
    print("HAS", {name: os.environ.get(name) for name in NAMES}, os.environ["HOME"])
"""


def test_settings_have_their_defaults() -> None:
    usual = {knob.name: knob.default() for knob in settings.KNOBS if knob.name != "cache_dir"}
    found = {name: settings.get(name) for name in usual}
    ours = {"tuned": False, "strategy": "generic", "keep_programs": False}
    assert found == {**usual, **ours}
    assert settings.cache_dir == os.path.join(os.environ["HOME"], ".cache", "anydim")


def test_what_a_machine_has_set_is_not_seen(tmp_path: Path) -> None:
    """A session of pytest with this folder's conftest, in foreign surroundings."""
    (tmp_path / "conftest.py").symlink_to(ROOT / "tests" / "conftest.py")
    inner = INNER.replace("NAMES", repr(list(FOREIGN)))
    (tmp_path / "test_inner.py").write_text(inner, "utf-8")
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=tmp_path, env={**env, **FOREIGN, "HOME": "/nowhere"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    ours = {"ANYDIM_STRATEGY": "generic", "POCL_DEVICES": "pthread pthread", "OMP_NUM_THREADS": "1"}
    line = next(line for line in done.stdout.splitlines() if line.startswith("HAS"))
    seen, home = line.removeprefix("HAS ").rsplit(" ", 1)
    assert seen == str({name: ours.get(name) for name in FOREIGN})
    assert home != "/nowhere" and not Path(home).exists()


@pytest.mark.parametrize("change", ["os.environ['LEFT'] = '1'", "os.chdir('/')"])
def test_what_a_test_leaves_changed_is_its_failure(change: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").symlink_to(ROOT / "tests" / "conftest.py")
    (tmp_path / "test_inner.py").write_text(
        f"import os\ndef test_inside():\n    {change}\n", "utf-8"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=tmp_path, env=env, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1 and "1 passed, 1 error" in done.stdout, done.stdout + done.stderr
