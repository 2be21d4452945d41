"""Equal sizes are one object in all threads, and nothing is kept of those that nobody uses."""

import copy
import gc
import os
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from hypothesis import given

from anydim.base.errors import DimError
from anydim.sizes import Atom, Size, as_size, interned, maximum, minimum, normal_form
from anydim.sizes.interned import Results, forget_results
from anydim.sizes.printing import LONGEST_TEXT
from tests.unit.sizes.strategies import checked, sizes

a, b, n = map(Size.symbol, "abn")


@checked
@given(sizes(8), sizes(8))
def test_equal_sizes_are_one_object(x: Size, y: Size) -> None:
    forget_results()
    before = (x + y) * 3
    forget_results()
    assert x * 3 + y * 3 is before
    assert pickle.loads(pickle.dumps(x)) is x
    assert copy.deepcopy(x) is x
    assert as_size(str(x)) is x


def test_equal_atoms_are_one_object() -> None:
    assert (n // 3).atom is ((n + 3) // 3 - 1).atom
    assert minimum(a, b).atom is minimum(b, a).atom
    assert maximum(a, b).atom is not minimum(a, b).atom


def test_terms_have_one_order_whatever_was_first() -> None:
    for first, second in ((a, b), (b, a)):
        forget_results()
        assert [*(first + second + 1).coefficients] == [("a",), ("b",), ()]


def test_results_stay_right_when_they_are_forgotten() -> None:
    kept = [(a + number) * b // 4 for number in range(20)]
    forget_results()
    assert [(a + number) * b // 4 for number in range(20)] == kept
    assert len(set(kept)) == 20


def _compiled(number: int) -> Size:
    """The sizes of a small model with a dim of its own."""
    size = Size.symbol(f"h{number}")
    for level in range(4):
        size = minimum((size + 1) // 2 * number, size + level)
    return size


def test_ten_thousand_models_leave_nothing() -> None:
    counts = []
    for number in range(10_000):
        _compiled(number)
        forget_results()
        if number % 5_000 == 100:
            gc.collect()
            counts.append(len(normal_form._FORMS))
    gc.collect()
    assert len(normal_form._FORMS) <= min(counts) + 10


def test_results_have_a_limit_without_being_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interned, "_MOST_RESULTS", 100)
    for number in range(500):
        _compiled(number)
    assert all(len(results) <= 100 for results in interned._ALL)


def test_threads_make_the_same_objects() -> None:
    start = Barrier(8)

    def work(_: int) -> list[Size]:
        start.wait()
        return [_compiled(number) for number in range(200)]

    with ThreadPoolExecutor(8) as pool:
        first, *others = pool.map(work, range(8))
    for other in others:
        assert all(one is two for one, two in zip(first, other))


def _doubling(levels: int) -> Size:
    """A size of few atoms whose text doubles at each level."""
    size = n
    for level in range(levels):
        size = size // (b + level) + size % (b + level + 1)
    return size


def test_a_size_that_doubles_is_refused_before_its_text_is_made() -> None:
    deep = _doubling(8)
    assert len(str(deep)) < LONGEST_TEXT
    assert deep.evaluate({"n": 1000, "b": 7}) == _doubled(1000, 7, 8)
    assert deep.substitute({"b": 7}).evaluate({"n": 1000}) == _doubled(1000, 7, 8)
    with pytest.raises(DimError, match=r"a size of b, n has \d+ characters and is nested"):
        _doubling(60)


def _doubled(value: int, b: int, levels: int) -> int:
    for level in range(levels):
        value = value // (b + level) + value % (b + level + 1)
    return value


def test_atoms_are_ordered_by_text_among_symbols() -> None:
    atoms = [atom for atom in ((n // 2).atom, "a", minimum(a, b).atom, "z") if atom is not None]
    assert sorted(atoms) == sorted(atoms, key=str)
    assert isinstance(atoms[0], Atom)
    assert atoms[0] < "z"
    assert atoms[0] >= "("


def test_nesting_has_a_limit() -> None:
    size = n
    with pytest.raises(DimError, match="nested 1025 deep"):
        for _ in range(1100):
            size = size // b


def test_results_are_a_mapping() -> None:
    results: Results[int] = Results()
    assert results.keep((1, 2), 7) == 7
    assert results[1, 2] == 7
    forget_results()
    assert not results


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_of_a_fork_makes_sizes_though_a_thread_was_making_one() -> None:
    with interned._LOCK:
        forked: list[int] = []
        thread = threading.Thread(target=lambda: forked.append(os.fork() or _make_and_exit()))
        thread.start()
        thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(forked[0], 0)[1]) == 0


def _make_and_exit() -> int:
    signal.alarm(10)  # ends a child that waits
    Size.symbol("of_the_child")
    os._exit(0)
