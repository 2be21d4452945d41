"""Promise: a process that makes bodies may die or fail at any moment; every order is answered."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from anydim.compiler.variants import workers
from anydim.compiler.variants.workers import Order, Workers
from tests.unit.compiler.variants.models import generic_program


def orders(*heights: int) -> list[Order]:
    """Bodies of one site at these sizes."""
    program = generic_program()
    site, recipe = program.sites[0], program.recipes[0]
    some = [{"b": 1, "h": height, "q": 10} for height in heights]
    wanted = (*site.sizes, site.parallel)
    keys = [tuple(size.evaluate(dims) for size in wanted) for dims in some]
    return [Order(recipe, key, "llvm") for key in keys]


def test_a_process_that_dies_is_started_again() -> None:
    made, some = Workers(1), orders(3, 4, 5)
    first = made.submit(some[0]).result(60)
    assert first.made is not None and first.problem == ""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for order in some[1:]:
            made.processes()[0].kill()
            again = made.submit(order).result(60)
            assert again.made is not None and again.made.symbol != first.made.symbol
    assert len(said) <= 1  # it may have been seen before anybody asked
    wrong = made.submit(Order(some[0].recipe, (1,), "llvm")).result(60)
    assert wrong.made is None and wrong.problem == ""
    made.close()


def test_processes_that_die_of_an_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_MAIN", "import os; os.kill(os.getpid(), 9) # {}")
    made, some = Workers(1), orders(3)
    with pytest.warns(RuntimeWarning, match="-9") as said:
        replies = [made.submit(some[0]).result(60) for _ in range(4)]
    assert len(said) == 1 and all(reply.made is None and reply.problem for reply in replies)
    assert not made.processes()


def test_a_bug_in_a_process_is_told_with_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
import sys; sys.path[:] = {}
from anydim.compiler.variants import candidates, worker
def planted(*given): assert False, "planted"
worker.size_site = planted
worker.main(tied)
"""
    monkeypatch.setattr(workers, "_MAIN", text)
    made = Workers(1)
    with pytest.warns(RuntimeWarning, match="AssertionError: planted") as said:
        replies = [made.submit(order).result(60) for order in orders(3, 4)]
    assert len(said) == 1 and "please report it" in str(said[0].message)
    assert all("planted" in reply.bug and reply.problem == reply.bug for reply in replies)
    assert len(made.processes()) == 1  # it goes on
    made.close()


def test_a_process_that_answers_what_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in ("[]", "{{}}", "no json", "\\xff", "[" * 100_000):
        text = f"import sys; sys.stdin.readline(); print('{answer}', flush=True) # {{}}"
        monkeypatch.setattr(workers, "_MAIN", text)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nobody is there to catch it
            assert Workers(1).submit(orders(3)[0]).result(60).made is None


def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/absent/python")
    made, some = Workers(1), orders(3)
    with pytest.warns(RuntimeWarning, match="can be started") as said:
        replies = [made.submit(some[0]).result(60) for _ in range(3)]
    assert len(said) == 1 and all(reply.made is None for reply in replies)


def test_what_lies_in_the_folder_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    made = Workers(1)
    assert made.submit(orders(3)[0]).result(60).made is not None
    made.close()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_no_process_is_left_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_BETWEEN", 0.05)
    made = Workers(1)
    made.submit(orders(3)[0]).result(60)
    (process,) = made.processes()
    process.kill()
    end = time.monotonic() + 30
    while Path(f"/proc/{process.pid}").exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert not Path(f"/proc/{process.pid}").exists()
    while process.stdin is not None and not process.stdin.closed and time.monotonic() < end:
        time.sleep(0.02)
    assert process.stdin is not None and process.stdin.closed


def test_a_thread_that_cannot_be_started_costs_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    made, some = Workers(1), orders(3)

    def none(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as now, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        now.setattr(threading.Timer, "start", none)
        assert made.submit(some[0]).result(60).made is None
    assert made.submit(some[0]).result(60).made is not None
    made.close()
