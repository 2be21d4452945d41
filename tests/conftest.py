"""What all tests share: surroundings that are the same on every machine.

Calls run on one core where a test says nothing else. What somebody tuned or set here is not taken:
tests see the defaults, and a home folder made for one run of pytest. Compiled code is kept between
runs (`.pytest_cache/compiled`), found by its content. Kernels have one variant unless a test names
a strategy. PoCL shows two devices, for programs on several.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy
import pytest

from tests.samples import functions, sample

_KEPT = Path(__file__).resolve().parents[1] / ".pytest_cache" / "compiled"
_OTHERS = ("ANYDIM_", "OCL_", "POCL_", "PYOPENCL_", "XDG_", "OMP_", "KMP_", "MKL_")
_COLOURS = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES")
# of a make that runs the tests: a make that a test runs would take its jobs and its options
_MAKES = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEFILES", "GNUMAKEFLAGS")
_OURS = {
    "OMP_NUM_THREADS": "1",
    "ANYDIM_TUNED": "0",
    "ANYDIM_STRATEGY": "generic",
    "ANYDIM_KEEP_PROGRAMS": "0",  # what a test compiles is compiled
    "POCL_DEVICES": "pthread pthread",
}
# set by whatever test is the first to open a device or import scikit-learn, or by pytest
_SET_ONCE = {
    "POCL_WORK_GROUP_METHOD", "PYOPENCL_HOME", "PYTEST_CURRENT_TEST", "KMP_DUPLICATE_LIB_OK",
    "KMP_INIT_AT_FORK", "TORCHINDUCTOR_CACHE_DIR",
}  # fmt: skip


def _surround() -> str:
    """Replace the environment and return the new home; workers of a session inherit both."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return os.environ["HOME"]
    told = {*_COLOURS, *_MAKES}
    for name in [name for name in os.environ if name.startswith(_OTHERS) or name in told]:
        del os.environ[name]
    home = tempfile.mkdtemp(prefix="anydim-home-")
    for name in ("anydim/objects", "pocl"):
        link, kept = Path(home, ".cache", name), _KEPT / name
        link.parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # a tree that may not be written keeps nothing
            kept.mkdir(parents=True, exist_ok=True)
            link.symlink_to(kept, target_is_directory=True)
    os.environ.update(_OURS, HOME=home)
    return home


_HOME = _surround()
# whether somebody wrote the package's objects or not; settings are read at this import
import_module("anydim.base.cache").SHIPPED = os.path.join(_HOME, "shipped")


def pytest_unconfigure() -> None:
    """The process that made the home removes it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(_HOME, ignore_errors=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", type=int, help="run at most so many cases of a function")


@pytest.hookimpl(tryfirst=True)  # before -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of functions marked `sampled`, the cases outside the sample are slow (tests/samples.py).

    With `--cases`, those of every function are.
    """
    most = config.getoption("--cases")
    quick = [item for item in items if not item.get_closest_marker("slow")]
    for cases in functions(quick).values():
        chosen = sample(cases, most)
        for case in cases:
            if case not in chosen:
                case.add_marker(pytest.mark.slow)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Modules and collected tests stay: the collector does not walk them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # else a tenth of the time of tests that compile


_BETWEEN_FREEZES = 40  # tests
_finished = 0


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish() -> None:
    """What tests leave in caches stays: a collection walks what the last tests made alone."""
    global _finished
    _finished += 1
    if _finished % _BETWEEN_FREEZES == 0:
        gc.collect()
        gc.freeze()


_STATES: dict[int, Any] = {}


@pytest.fixture(autouse=True)
def numbers_are_drawn_anew(request: pytest.FixtureRequest) -> None:
    """Generators of a module are as after its import: data does not depend on earlier tests."""
    for value in vars(request.module).values():
        if isinstance(value, numpy.random.Generator):
            bits = value.bit_generator
            bits.state = _STATES.setdefault(id(value), bits.state)


@pytest.fixture(autouse=True)
def surroundings_stay() -> Iterator[None]:
    """A test leaves the environment and the working folder as it found them."""
    before, folder = dict(os.environ), os.getcwd()
    yield
    after = dict(os.environ)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed <= _SET_ONCE, f"left changed: {sorted(changed - _SET_ONCE)}"
    assert os.getcwd() == folder
