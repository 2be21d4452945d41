"""The fast tier, a plugin of pytest: `make test-fast`, or

    python -m pytest -p tests.fast -m "not slow" -n 2

Of each test function it runs the cases that bring in a value of a parameter that no earlier case
has, and of many such cases `MOST`, spread over all. Left out are the folders `LEFT_OUT` and
functions of which one case takes longer than `LONGEST`: `tests/fast.txt` names them. The option
`--measure` writes that file: it runs one case of each function.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.values import bringing_new_values, function_of, functions, spread

MOST = 3
LONGEST = 0.2  # seconds of processor time, those of ended child processes among them
LEFT_OUT = ("conformance", "fuzz", "gpu", "release", "soak")  # whole models and long searches
LISTED = Path(__file__).with_name("fast.txt")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--measure", action="store_true", help="write tests/fast.txt anew")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--measure"):
        config.pluginmanager.register(_Measured(), "measured")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    left_out = collection_path.name in LEFT_OUT and collection_path.parent == LISTED.parent
    return True if left_out else None


@pytest.hookimpl(trylast=True)  # after -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    measuring = config.getoption("--measure")
    left_out = set() if measuring else set(LISTED.read_text("utf-8").split())
    chosen = set()
    for name, cases in functions(items).items():
        if name not in left_out:
            chosen.update(cases[:1] if measuring else spread(bringing_new_values(cases), MOST))
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


class _Measured:
    """Writes the functions whose case takes longer than `LONGEST`."""

    def __init__(self) -> None:
        self._found: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = _seconds()
        try:
            return (yield)
        finally:
            if _seconds() - before > LONGEST:
                self._found.add(function_of(item.nodeid))

    def pytest_sessionfinish(self) -> None:
        LISTED.write_text("".join(f"{name}\n" for name in sorted(self._found)), "utf-8")


def _seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
