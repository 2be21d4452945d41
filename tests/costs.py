"""Processor seconds of each test file, its children included: `pytest -p tests.costs -n 2`.

Every process of the run adds what each test took to out/costs.json; the imports of a file, and its
collection, are those of `file::`. `python -m tests.costs` prints the sums, and `--depth 2` those of
folders.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

FILE = Path(__file__).parents[1] / "out" / "costs.json"


def _now() -> float:
    """Processor seconds of this process and of the children that it waited for."""
    return sum(os.times()[:4])


def _add(name: str) -> Iterator[None]:
    start = _now()
    yield
    with FILE.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps([name, round(_now() - start, 4)])}\n")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    yield from _add(item.nodeid)


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    yield from _add(f"{collector.nodeid}::" if isinstance(collector, pytest.Module) else "::")


def pytest_configure() -> None:
    FILE.parent.mkdir(exist_ok=True)


@click.command()
@click.option("--depth", type=int, help="Sum up folders of so many names.")
@click.option("--functions", is_flag=True, help="Print functions.")
@click.option("--most", default=40, show_default=True, help="How many lines.")
def main(depth: int | None, functions: bool, most: int) -> None:
    """Print what tests cost in the runs that out/costs.json holds; remove it before a run."""
    spent: Counter[str] = Counter()
    for name, seconds in map(json.loads, FILE.read_text("utf-8").splitlines()):
        file, function = name.partition("::")[0], name.partition("[")[0]
        part = function if functions else "/".join(file.split("/")[: depth or 99])
        spent[part or "collection"] += seconds
    for name, seconds in spent.most_common(most):
        click.echo(f"{seconds:8.2f} {name}")
    click.echo(f"{spent.total():8.2f} in all")


if __name__ == "__main__":
    main()
