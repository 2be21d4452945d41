"""Promise: a call like an earlier one gives the same bits, errors and references as a first one."""

from __future__ import annotations

import collections
import ctypes
import gc
import mmap
import signal
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.runtime import arena, invoke, straight
from anydim.runtime.executable import UNLIMITED
from anydim.runtime.invoke import POSSIBLE
from anydim.runtime.threads import Pool
from tests.unit.runtime.tensors import Tensor

KINDS = [
    pytest.param(True, marks=pytest.mark.skipif(not POSSIBLE, reason="no such Python")), False
]  # fmt: skip


@pytest.fixture(scope="module", params=KINDS, ids=["repeated", "always as a first call"])
def model(request: pytest.FixtureRequest) -> ad.Model:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(straight, "POSSIBLE", request.param)
        g = ad.Builder("f")
        n, m, k = g.dim("n", 0, 4096), g.dim("m", 0, 64), g.dim("k", 0, 64)
        a, b = g.input("a", "float32", (n, m)), g.input("b", "float32", (n, m))
        i = g.input("i", "int64", (k,))
        g.output("y", a + b * 3.0)
        g.output("z", g.gather(a, i, axis=0))
        g.output("s", g.matmul(g.transpose(a, perm=(1, 0)), g.exp(b)))
        return ad.compile(g, threads=1)


def feeds(n: int, m: int, k: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(seed)
    a, b = (numbers.standard_normal((n, m)).astype(np.float32) for _ in range(2))
    return {"a": a, "b": b, "i": numbers.integers(0, max(n, 1), k if n else 0)}


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return list(left) == list(right) and all(
        left[name].tobytes() == right[name].tobytes() and left[name].shape == right[name].shape
        for name in left
    )


SIZES = [(0, 3), (1, 1), (7, 0), (31, 5), (1, 64), (997, 3)]


@pytest.mark.parametrize("n, m", SIZES)
def test_again_and_again(model: ad.Model, n: int, m: int) -> None:
    given = feeds(n, m)
    first = model(**given)
    kept = {name: array.copy() for name, array in first.items()}
    np.testing.assert_array_equal(first["y"], given["a"] + given["b"] * np.float32(3))
    for seed in (1, 0):
        again = model(**feeds(n, m, seed=seed))
        assert not any(np.shares_memory(again[name], first[name]) for name in again)
    assert same(again, kept) and same(first, kept)


def test_sizes_in_turns(model: ad.Model) -> None:
    known = [(given, model(**given)) for given in (feeds(n, m) for n, m in SIZES)]
    for _ in range(3):
        assert all(same(model(**given), results) for given, results in known)


def binds_of(model: ad.Model, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collects a number for each time that a call computes sizes."""
    run, came = model.executable, []
    bind = run._bind

    def counted(words: int) -> int:
        came.append(words)
        return bind(words)

    monkeypatch.setattr(run, "_bind", counted)
    return came


@pytest.mark.skipif(not POSSIBLE, reason="no such Python")
@pytest.mark.parametrize("form", [dict, lambda given: tensors(given)], ids=["arrays", "tensors"])
def test_sizes_of_earlier_calls_are_not_computed_again(
    monkeypatch: pytest.MonkeyPatch, form: Any
) -> None:
    model = doubled()
    came = binds_of(model, monkeypatch)
    known = [(form({"x": np.ones(n, np.float32)}), n) for n in (3, 5, 0, 7)]
    counts = []
    for _ in range(4):
        for given, n in known:
            found = model(**given)["y"]
            assert getattr(found, "array", found).tolist() == [2.0] * n
        counts.append(len(came))
    assert counts == [4, 8, 8, 8]


@pytest.mark.skipif(not POSSIBLE, reason="no such Python")
def test_a_frame_keeps_few_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(straight, "_MOST_KNOWN", 2)
    monkeypatch.setattr(straight, "_MOST_SEEN", 3)
    model = doubled()
    came = binds_of(model, monkeypatch)
    for n in (1, 2, 1, 2, 1, 2, 3, 3, 1, 2, 4, 5, 6, 2, 2, 1):
        assert model(x=np.ones(n, np.float32))["y"].tolist() == [2.0] * n
    (frame,) = model.executable._frames.free()
    assert len(frame.known) <= 2 and len(frame.seen) <= 3 and 8 <= len(came) < 16


def test_many_threads(model: ad.Model) -> None:
    known = [(given, model(**given)) for given in (feeds(n, m) for n, m in SIZES)]

    def work(seed: int) -> bool:
        order = np.random.default_rng(seed).integers(0, len(known), 200)
        return all(same(model(**known[at][0]), known[at][1]) for at in order)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def misaligned(array: np.ndarray) -> np.ndarray:
    room = np.zeros(array.nbytes + 1, np.uint8)
    found = room[1:].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


class Named(np.ndarray):
    """An array of another type that is one."""


def named(array: np.ndarray) -> np.ndarray:
    return array.view(Named)


FITTING = {
    "strided": lambda a: np.concatenate([a, a], 1)[:, : a.shape[1]],
    "transposed": lambda a: np.asfortranarray(a),
    "misaligned": misaligned,
    "byte order": lambda a: a.astype(">f4"),
    "subclass": named,
    "lists": lambda a: a.tolist(),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "DLPack": lambda a: Tensor(a),
}


@pytest.mark.parametrize("kind", FITTING)
def test_what_fits_in_another_form(model: ad.Model, kind: str) -> None:
    given = feeds(5, 4)
    expected = model(**given)
    for _ in range(2):
        found = model(**{**given, "a": FITTING[kind](given["a"])})
        found = {name: getattr(each, "array", each) for name, each in found.items()}
        assert same(found, expected)
        assert same(model(**given), expected)


WRONG = {
    "type": lambda given: {**given, "a": given["a"].astype(np.float64)},
    "other size": lambda given: {**given, "a": given["a"][:-1]},
    "rank": lambda given: {**given, "a": given["a"][0]},
    "masked": lambda given: {**given, "a": np.ma.masked_array(given["a"])},
    "missing": lambda given: {"a": given["a"], "i": given["i"]},
    "extra": lambda given: {**given, "c": given["a"]},
    "misnamed": lambda given: {"a": given["a"], "c": given["b"], "i": given["i"]},
    "text": lambda given: {**given, "a": "x"},
    "nothing": lambda given: {**given, "a": None},
    "index": lambda given: {**given, "i": np.array([0, 99])},
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_refused_as_at_first(model: ad.Model, kind: str) -> None:
    given = feeds(5, 4)
    expected = model(**given)
    errors = []
    for _ in range(3):
        with pytest.raises(ad.InputError) as caught:
            model(**WRONG[kind](given))
        errors.append(str(caught.value))
        assert same(model(**given), expected)
    assert len(set(errors)) == 1


def test_mappings_of_other_types(model: ad.Model) -> None:
    given = feeds(5, 4)
    expected, run = model(**given), model.executable
    for kind in (collections.UserDict, collections.OrderedDict, collections.ChainMap):
        assert same(run(kind(given)), expected)
    for key in (1, None, ("a",)):
        with pytest.raises(ad.InputError):
            run({"a": given["a"], "b": given["b"], key: given["i"]})


def test_out(model: ad.Model) -> None:
    given = feeds(5, 4)
    expected = model(**given)
    out = {name: np.empty_like(array) for name, array in expected.items()}
    for _ in range(3):
        for array in out.values():
            array[...] = 0
        found = model(**given, out=out)
        assert all(found[name] is out[name] for name in out) and same(out, expected)
        found = model(**given, out=[out["y"], None, None])
        assert found["y"] is out["y"] and same(found, expected)
    wrong = (out["y"][:-1], out["y"].astype(np.float64), out["y"].T, out["y"][..., None])
    for array in (*wrong, np.frombuffer(out["y"].tobytes(), np.float32).reshape(5, 4)):
        with pytest.raises(ad.InputError):
            model(**given, out={"y": array})
    own = given["b"].copy()
    assert model(**{**given, "b": own}, out={"y": own})["y"] is own
    assert own.tobytes() == expected["y"].tobytes()


def doubled(**options: Any) -> ad.Model:
    g = ad.Builder("f")
    g.output("y", g.input("x", "float32", (g.dim("n", 0, 1 << 20),)) * 2.0)
    return ad.compile(g, threads=1, **options)


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_first_call_after_ones_that_were_refused(calls: int) -> None:
    """Their sizes were bound, but no call had filled the block."""
    model, x = doubled(), np.arange(5, dtype=np.float32)
    for _ in range(calls):
        with pytest.raises(ad.InputError, match="has shape"):
            model(x=x, out=np.zeros(4, np.float32))
    for _ in range(3):
        np.testing.assert_array_equal(model(x=x)["y"], 2 * x)


def test_a_first_call_after_ones_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = doubled(), np.arange(5, dtype=np.float32)
    full = True

    def make(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        if full:
            raise MemoryError
        return np.empty(shape, dtype)

    monkeypatch.setattr(model.executable._new, "makers", lambda shapes, kinds: [make])
    with pytest.raises(ad.OutOfMemoryError):  # tried twice
        model(x=x)
    full = False
    for _ in range(3):
        np.testing.assert_array_equal(model(x=x)["y"], 2 * x)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_signal_while_an_array_for_a_result_is_made(error: type[BaseException]) -> None:
    """What its handler raises is raised, as it is in a first call."""
    model, x = doubled(), np.ones(1 << 19, np.float32)
    for _ in range(3):
        model(x=x)
    came = []

    def raises(*_: Any) -> None:
        raise error

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == "allocate_aligned":
            sys.setprofile(None)
            came.append(event)
            signal.raise_signal(signal.SIGUSR1)

    before, watching = signal.signal(signal.SIGUSR1, raises), sys.getprofile()
    count = sys.getrefcount(x)
    try:
        sys.setprofile(profile)
        with pytest.raises(error):
            model(x=x)
    finally:
        sys.setprofile(watching)
        signal.signal(signal.SIGUSR1, before)
    gc.collect()
    assert came and sys.getrefcount(x) == count
    np.testing.assert_array_equal(model(x=x)["y"], 2 * x)


@pytest.mark.skipif(sys.platform != "linux" or not POSSIBLE, reason="protects a page")
def test_nothing_is_read_behind_an_object_that_is_no_array() -> None:
    """A plain object, two words, that ends where memory begins that nobody may read."""
    model, x = doubled(), np.ones(5, np.float32)
    for _ in range(3):
        model(x=x)
    protect, page = ctypes.CDLL(None).mprotect, mmap.PAGESIZE
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    memory = mmap.mmap(-1, 2 * page)
    edge = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + page
    assert protect(edge, page, 0) == 0
    head = (ctypes.c_int64 * 2).from_address(edge - 16)
    head[0], head[1] = 1 << 20, id(object)
    with pytest.raises(ad.InputError, match="Python objects"):
        model(x=ctypes.cast(edge - 16, ctypes.py_object).value)
    gc.collect()
    assert head[0] == 1 << 20
    assert protect(edge, page, mmap.PROT_READ | mmap.PROT_WRITE) == 0


def test_the_builtin_function_keeps_its_definition() -> None:
    """It reads its PyMethodDef when the garbage collector looks at it, and when it goes."""
    model, x = doubled(), np.ones(5, np.float32)
    for _ in range(3):
        model(x=x)
    (frame,) = model.executable._frames.free()
    if frame.invoke is not None:
        words, at = frame.table._words, ctypes.c_void_p.from_address(id(frame.invoke) + 16).value
        assert frame.invoke.__self__ is words and frame.invoke.__name__ == "invoke"
        assert 0 <= at - words.ctypes.data < words.nbytes


@pytest.mark.parametrize("regions", [False, True])
def test_a_signal_while_threads_are_taken_leaves_them_to_the_next_call(
    monkeypatch: pytest.MonkeyPatch, regions: bool
) -> None:
    g = ad.Builder("f")
    x = g.input("x", "float32", (g.dim("n", 0, 1 << 20),))
    g.output("y", g.exp(g.sin(x)))
    if regions:
        g.output("places", g.nonzero(x))
    model, given = ad.compile(g, threads=2), np.ones(1 << 17, np.float32)
    expected = model(x=given)
    for _ in range(2):
        model(x=given)
    pool = model.executable._pool
    assert pool is not None and model.executable.direct is not regions
    take = Pool.take

    def interrupted(pool: Pool, call: object) -> bool:
        assert take(pool, call)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Pool, "take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model(x=given)
    assert not pool.taken
    other = object()
    assert pool.take(other) and same(model(x=given), expected)  # without them
    assert pool.taken == {0: other}
    pool.taken.clear()
    assert same(model(x=given), expected) and not pool.taken


def test_limits(model: ad.Model) -> None:
    given = feeds(997, 3)
    expected = model(**given)
    needed = model.plan(n=997, m=3, k=2).bytes
    if needed:
        model.limit_memory(ad.MemoryLimit(needed - 1, per_call=True))
        with pytest.raises(ad.MemoryLimitError):
            model(**given)
    model.limit_memory(ad.MemoryLimit(max(needed, 1), per_call=True))
    model.limit_time(100.0)
    assert same(model(**given), expected) and same(model(**given), expected)
    model.limit_time(None)
    model.executable.most_bytes = UNLIMITED
    model.set_sizes(n=5)
    with pytest.raises(ad.DimError):
        model(**given)
    model.set_sizes()
    assert same(model(**given), expected)


def test_an_arena_that_has_moved_is_found(model: ad.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    small = feeds(31, 5)
    expected = model(**small)
    model(**feeds(4000, 60))
    for _ in range(3):
        assert same(model(**small), expected)
    (frame, *_) = model.executable._frames.free()
    monkeypatch.setattr(arena, "_remap", lambda memory, size: False)
    blocker, before = [], frame.address
    for kept in (frame.bytes - 4096, frame.bytes // 2):
        frame.keep(max(kept, frame.bound.asked_for))
        blocker.append(np.ones(1 << 20))
    assert frame.address != before or not frame.bound.asked_for
    assert same(model(**small), expected)


def test_references_and_memory_stay(model: ad.Model) -> None:
    given = feeds(31, 5)
    wrong = [make(given) for kind, make in WRONG.items() if kind not in ("text", "nothing")]
    out = {name: np.empty_like(array) for name, array in model(**given).items()}
    watched = [*given.values(), *out.values(), given["a"].dtype, "a", None, False, dict, np.ndarray]

    def calls(count: int) -> None:
        for _ in range(count):
            model(**given)
            model(**given, out=out)
            for each in wrong:
                with pytest.raises(ad.InputError):
                    model(**each)

    def moves() -> bool:
        """Whether 50 calls of a kind change the count of an object by about as much."""
        before = [sys.getrefcount(each) for each in watched]
        calls(50)
        gc.collect()
        after = [sys.getrefcount(each) for each in watched]
        return any(abs(left - right) >= 40 for left, right in zip(before, after))

    calls(40)
    gc.collect()
    tracemalloc.start()
    try:
        calls(10)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        calls(50)
        gc.collect()
        more = tracemalloc.get_traced_memory()[0] - held
    finally:
        tracemalloc.stop()
    assert more < 10_000
    # what other tests left running holds None and types, and ends at some time
    assert not all(moves() for _ in range(3))


# ---- tensors of other libraries --------------------------------------------------------------


def tensors(given: dict[str, np.ndarray]) -> dict[str, Tensor]:
    return {name: Tensor(array) for name, array in given.items()}


def plain(results: dict[str, Any]) -> dict[str, np.ndarray]:
    assert all(type(each) is Tensor for each in results.values())
    return {name: each.array for name, each in results.items()}


@pytest.mark.parametrize("n, m", SIZES)
def test_tensors(model: ad.Model, n: int, m: int) -> None:
    given = feeds(n, m)
    expected = model(**given)
    gc.collect()
    wrapped, alive = Tensor.wrapped, Tensor.alive
    for _ in range(3):
        results = model(**tensors(given))
        assert same(plain(results), expected)
        assert same(model(**given), expected)
    if model.executable._slots:
        assert Tensor.wrapped >= wrapped + 6 and Tensor.alive == alive + 3
        del results
        gc.collect()
        assert Tensor.alive == alive


def test_tensors_that_are_refused(model: ad.Model) -> None:
    given = feeds(5, 4)
    expected = model(**given)
    for _ in range(2):
        assert same(plain(model(**tensors(given))), expected)
        with pytest.raises(ad.InputError, match="another device"):
            model(**{**tensors(given), "a": Tensor(given["a"], device=2)})
        for array in (given["a"].astype(np.float64), given["a"][0], given["a"][:-1]):
            with pytest.raises(ad.InputError):
                model(**{**tensors(given), "a": Tensor(array)})
        strided = Tensor(np.asfortranarray(given["a"]))
        assert same(plain(model(**{**tensors(given), "a": strided})), expected)
        assert same(plain(model(**{**given, "i": Tensor(given["i"])})), expected)


@pytest.mark.parametrize("kind", ["int4", "float4_e2m1fn"])
def test_results_of_types_that_dlpack_does_not_have(kind: str) -> None:
    g = ad.Builder("f")
    x = g.input("x", "float32", (g.dim("n", 0, 64),))
    g.output("y", g.cast(x, to=kind))
    g.output("z", x + 1.0)
    model, x = ad.compile(g, threads=1), np.arange(5, dtype=np.float32)
    expected, wrapped = model(x=x), Tensor.wrapped
    for _ in range(3):
        found = model(x=Tensor(x))
        assert type(found["y"]) is np.ndarray and type(found["z"]) is Tensor
        assert same({"y": found["y"], "z": found["z"].array}, expected)
    assert Tensor.wrapped == wrapped
    takes = [frame.table._words[invoke.TENSOR] for frame in model.executable._frames.free()
             if frame.table is not None]  # fmt: skip
    assert not any(takes)


def test_tensors_that_stand_for_their_negative(model: ad.Model) -> None:
    given = feeds(5, 4)
    expected = model(**given)
    for _ in range(3):
        assert same(plain(model(**tensors(given))), expected)
        negated = Tensor(-given["a"])
        negated.negated = True
        assert same(plain(model(**{**tensors(given), "a": negated})), expected)
    out = Tensor(np.zeros((5, 4), np.float32))
    out.negated = True
    with pytest.raises(ad.InputError, match="negative bit"):
        model(**given, out={"y": out})


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    g = ad.Builder("f")
    x = g.input("x", "float32", (g.dim("n", 0, 64), 4))
    g.output("y", g.exp(x))
    g.output("count", g.cast(x, to=ad.int64))
    model = ad.compile(g, threads=1)
    for n in (3, 3, 0, 0, 64, 64, 3):
        tensor = torch.arange(4.0 * n).reshape(n, 4) / 100
        expected = model(x=tensor.numpy())
        results = model(x=tensor)
        assert all(isinstance(each, torch.Tensor) for each in results.values())
        assert same({name: each.numpy() for name, each in results.items()}, expected)
    turned = torch.arange(12.0).reshape(4, 3).T
    negative = torch.view_as_complex(torch.ones(3, 4, 2)).conj().imag
    for _ in range(2):
        for odd in (turned, negative, turned.contiguous()[None][0], torch.nn.Parameter(turned)):
            with torch.no_grad():
                want = model(x=odd.detach().resolve_neg().contiguous().numpy())
                found = model(x=odd)
            np.testing.assert_array_equal(found["y"].numpy(), want["y"])
        leaf = torch.ones(3, 4, requires_grad=True)
        with pytest.raises(ad.InputError, match="gradients"):
            model(x=leaf)
        with torch.no_grad():
            assert model(x=leaf)["y"].requires_grad is False
