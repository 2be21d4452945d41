"""Promise: an option, a dim, a size or a cache folder that cannot be used is a UserError that says
so, before anything runs; what can only be meant in one way is taken."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import anydim as ad
from anydim.base import settings
from anydim.base.cache import DiskCache
from anydim.sizes import Dim
from tests.unit.compiler.frontends.models import model, node

RELU = model([node("y = Relu(x)")], ["x f[batch, 4]"], ["y"])


@pytest.fixture(scope="module")
def relu() -> ad.Model:
    return ad.compile(RELU, {"batch": (0, 64)})


# ---- dims --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "bounds"),
    [(3, (3, 3)), (np.int64(3), (3, 3)), ((1, 512), (1, 512)), ([1, None], (1, None)),
     (Dim(2), (2, None))],
)  # fmt: skip
def test_dims_are_sizes_pairs_or_dims(given, bounds):
    dim = ad.compile(RELU, {"batch": given}).dims.dim("batch")
    assert (dim.lo, dim.hi) == bounds


DIMS = {
    "no mapping": (5, "dims is 5, expected a mapping by name"),
    "a list": ([("batch", 3)], "expected a mapping by name"),
    "a text": ("batch", "dims is 'batch'"),
    "a name that is none": ({5: Dim(1, 2)}, "dims has 5 for a name"),
    "a size that is a text": ({"batch": "3"}, "dim 'batch' is given as '3'"),
    "half a size": ({"batch": 1.5}, "dim 'batch' is given as 1.5"),
    "true": ({"batch": True}, "dim 'batch' is given as True"),
    "nothing": ({"batch": None}, "without a lower bound"),
    "three bounds": ({"batch": (1, 2, 3)}, "given as (1, 2, 3)"),
    "bounds the wrong way round": ({"batch": (5, 2)}, "dim 'batch': the upper bound 2 is below"),
    "a negative size": ({"batch": -1}, "dim 'batch': the lower bound -1 is negative"),
    "a size beyond 64 bits": ({"batch": 2**70}, "does not fit 64 bits"),
    "a size of many digits": ({"batch": 10**5000}, "has 16610 bits"),
    "a dim that there is not": ({"bach": 3}, "did you mean 'batch'?"),
}


@pytest.mark.parametrize("case", DIMS)
def test_other_dims_are_refused(case):
    given, problem = DIMS[case]
    with pytest.raises(ad.OptionError) as caught:
        ad.compile(RELU, given)
    assert problem in str(caught.value)


# ---- sizes of plans ----------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["3", 1.5, None, True, [1], float("nan"), 2**70, -1, 65])
def test_a_plan_refuses_what_is_no_size(relu, value):
    with pytest.raises(ad.DimError, match="dim 'batch' is"):
        relu.plan(batch=value)


def test_a_plan_takes_integers_of_numpy(relu):
    assert relu.plan(batch=np.int32(3)) == relu.plan(batch=3)


# ---- threads -----------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, -1, 1025, 10_000, 2**70, 1.5, "2", None, True])
def test_a_number_of_threads_that_cannot_be_meant(threads):
    with pytest.raises(ad.OptionError, match="threads is"):
        ad.compile(RELU, threads=threads)


# ---- whatever else is wrong ----------------------------------------------------------------------


class Unhashable(str):
    """A text of a class that has no hash."""

    __hash__ = None


class Spiteful:
    """Raises for whatever is asked of it."""

    def __index__(self):
        raise ZeroDivisionError

    __repr__ = __iter__ = __fspath__ = __dlpack__ = __dlpack_device__ = __index__
    __array__ = __len__ = __getitem__ = __bool__ = __index__


def _cyclic():
    items = []
    items.append(items)
    return items


def _reduce(axes):
    g = ad.Builder()
    g.reduce_sum(g.input("x", ad.float32, (2,)), axes=axes)


def _find(name="trips", most=3):
    g = ad.Builder()
    g.find(g.input("x", ad.int64, ()), name, most=most)


POWER = "def f(float(N) x; int n = 1) -> (y) { y(i) = x(i) * n }"
TC = "def f(float(N) x) -> (y) { y(i) = x(i) }"
ONES = np.ones((2, 4), np.float32)
WRONG = {
    "ranges that are none": (lambda m: m.profile(batch=2, integers=5), "integers is 5"),
    "a seed below 0": (lambda m: m.profile(batch=2, seed=-1), "seed is -1"),
    "inputs without names": (lambda m: m.profile({1: ONES}), "inputs is"),
    "a dim that is no text": (lambda m: m.largest(3, memory=10**9), "the dim is 3"),
    "a dim that is an array": (lambda m: m.largest(ONES, memory=10**9), "the dim is a ndarray"),
    "a bar that is an array": (lambda m: m.map([ONES], memory=10**9, progress=ONES), "progress is"),
    "a window of no items": (lambda m: m.map([ONES], memory=10**9, window=0), "window is 0"),
    "a schedule that is none": (
        lambda m: ad.define(TC, options={"f": Spiteful()}), "a Spiteful is no schedule"),
    "a text of half letters": (lambda m: ad.define("\ud800"), "expected .def."),
    "a size that raises": (lambda m: _find(most=Spiteful()), "is no size"),
    "an axis without a hash": (
        lambda m: (g := ad.Builder()).reduce_sum(
            g.input("x", ad.float32, (2,)), axes=Unhashable("x")), "axes is 'x'"),
    "a flag that has no truth": (
        lambda m: (g := ad.Builder()).reduce_sum(
            g.input("x", ad.float32, (2,)), keepdims=np.array([1, 2])), "keepdims is array"),
    "a flag that is a size": (
        lambda m: (g := ad.Builder()).input("x", ad.float32, ("n",)).max(keepdims=g.dim("n")),
        "keepdims is Size"),
    "a size that is half": (
        lambda m: (g := ad.Builder()).tile(g.input("x", ad.float32, (2,)), repeats=(1.5,)),
        "repeats is"),
    "a size that is true": (
        lambda m: (g := ad.Builder()).split(g.input("x", ad.float32, (2,)), sizes=(True, 1)),
        "sizes is"),
    "fixed sizes that are an array": (
        lambda m: ad.define(TC).f.sizes((3,), fixed=ONES), "fixed is a ndarray"),
    "items that raise": (lambda m: m.map(Spiteful()), "expects a list or an iterator"),
    "a dim of many digits": (lambda m: m.map([ONES], batch=10**5000), "batch is an int"),
    "a fill that raises": (lambda m: m.map([ONES], pad={"x": Spiteful()}), "not of type float32"),
    "a check that is an array": (lambda m: m.map([ONES], check=ONES), "check is a ndarray"),
    "an array that raises": (lambda m: m(x=Spiteful()), "cannot be shared"),
    "an argument that raises": (lambda m: ad.define(TC).f(Spiteful()), "cannot be shared"),
    "an attribute that is an array": (
        lambda m: ad.define(POWER).f.model(ONES[0], n=ONES), "attribute 'n' is a ndarray"),
    "an attribute of many digits": (
        lambda m: ad.define(POWER).f.model(ONES[0], n=10**5000), "must be an int, not an int"),
    "threads that are records": (
        lambda m: ad.define(TC, threads=np.zeros(3, [("a", "f4")])), "threads is array"),
    "ragged dims that are an array": (lambda m: ad.compile(RELU, ragged=ONES), "ragged is a nd"),
    "a precision that is an array": (lambda m: ad.compile(RELU, precision=ONES), "precision is"),
    "a path that raises": (lambda m: ad.compile(Spiteful()), "source is a Spiteful"),
    "caches of a path that raises": (lambda m: ad.cached(Spiteful()), "source is a Spiteful"),
    "a path with a zero": (lambda m: ad.compile("a\0b"), "cannot be read"),
    "operators in themselves": (lambda m: ad.compile(RELU, operators=_cyclic()), "operators is"),
    "operators that raise": (lambda m: ad.compile(RELU, operators=Spiteful()), "expected a path"),
    "a setting that is records": (
        lambda m: ad.compile(RELU, external_data=np.zeros(3, [("a", "f4")])), "'external_data' is"),
    "an oracle that raises": (lambda m: m.check(against=Spiteful()), "against is a Spiteful"),
    "an oracle without a hash": (lambda m: m.check(against=Unhashable("x")), "no oracle or file"),
    "a type of many digits": (
        lambda m: ad.Builder().input("x", 10**5000, (2,)), "no element type an int"),
    "axes that are a number": (lambda m: _reduce(0.5), "operator 'reduce_sum': axes is 0.5"),
    "an axis of many digits": (lambda m: _reduce(10**5000), "axes is an int"),
    "axes of a number": (
        lambda m: (g := ad.Builder()).transpose(g.input("x", ad.float32, (2,)), perm=3),
        "perm is 3"),
    "a shape that is a number": (
        lambda m: (g := ad.Builder()).reshape(g.input("x", ad.float32, (2,)), shape=3), "shape is"),
    "records": (
        lambda m: ad.define(TC).f.model(np.zeros(3, [("a", "f4")])), "argument 'x' has elements"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_things_are_refused_in_our_words(relu, case):
    call, problem = WRONG[case]
    with pytest.raises(ad.UserError, match=problem):
        call(relu)


def test_names_without_a_hash_are_names():
    _find(Unhashable("trips"))
    assert "f" in ad.define(Unhashable(TC))
    g = ad.Builder()
    assert str(g.dim(Unhashable("n"), 0, 8)) == "n"


def test_more_memory_than_any_machine_has_is_a_limit_too(relu):
    (result,) = relu.map([{"x": ONES}], memory=10**5000)
    np.testing.assert_array_equal(result["y"], ONES)


# ---- inputs without strides --------------------------------------------------------------------


def test_inputs_without_strides_that_do_not_fit(relu):
    endless = np.broadcast_to(np.float32(1), (10**10, 4))
    with pytest.raises(ad.DimError, match=r"axis 0 is 10000000000, expected batch in 0\.\.64"):
        relu(x=endless)
    with pytest.raises(ad.OutOfMemoryError, match="a contiguous copy of 16000000000000000 byte"):
        ad.compile(RELU)(x=np.broadcast_to(np.float32(1), (10**15, 4)))
    swapped = np.broadcast_to(np.array(1, np.dtype(np.float32).newbyteorder()), (10**15, 4))
    with pytest.raises(ad.OutOfMemoryError, match="copy of 16000000000000000 bytes"):
        ad.compile(RELU)(x=swapped)
    assert (relu(x=np.broadcast_to(np.float32(1), (3, 4)))["y"] == 1).all()


# ---- the cache folder --------------------------------------------------------------------------


def test_an_entry_of_another_key_counts_as_missing(tmp_path):
    cache = DiskCache(tmp_path, 1 << 20)
    mine, other = "a" * 64, "b" * 64
    cache.put(mine, b"code")
    (tmp_path / other[:2]).mkdir()
    (tmp_path / mine[:2] / mine[2:]).rename(tmp_path / other[:2] / other[2:])
    assert cache.get(other) is None and cache.get(mine) is None


@pytest.mark.skipif(os.name != "posix", reason="needs named pipes")
def test_a_pipe_in_the_cache_folder_is_not_waited_for(tmp_path):
    cache, key = DiskCache(tmp_path, 1 << 20), "a" * 64
    (tmp_path / key[:2]).mkdir()
    os.mkfifo(tmp_path / key[:2] / key[2:])
    assert cache.get(key) is None
    cache.put(key, b"code")
    assert cache.get(key) == b"code"


def test_files_larger_than_the_cache_are_not_read(tmp_path):
    cache, key = DiskCache(tmp_path, 1 << 20), "a" * 64
    (tmp_path / key[:2]).mkdir()
    with open(tmp_path / key[:2] / key[2:], "wb") as file:
        file.truncate(1 << 40)  # a hole
    assert cache.get(key) is None


@pytest.mark.skipif(os.name != "posix", reason="homes of users are found otherwise")
def test_who_has_no_home_compiles_without_a_cache():
    code = (
        "import os, pwd\n"
        "os.environ.pop('HOME', None)\n"
        "def unknown(user): raise KeyError(user)\n"
        "pwd.getpwuid = unknown\n"
        "from anydim.base.cache import user_cache\n"
        "cache = user_cache()\n"
        "cache.put('a' * 64, b'code')\n"
        "assert cache.get('a' * 64) is None\n"
        "from anydim.base import settings\n"
        "from anydim import OptionError\n"
        "try:\n"
        "    with settings.override(cache_dir='~/cache'): pass\n"
        "except OptionError as error:\n"
        "    assert 'no home' in str(error)\n"
        "else:\n"
        "    raise AssertionError\n"
    )
    without = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
    subprocess.run([sys.executable, "-c", code], check=True, env=without)


@pytest.mark.parametrize("folder", ["", "a\0b", 5, None])
def test_a_cache_folder_that_is_no_path(folder):
    with (
        pytest.raises(ad.OptionError, match="expected a path"),
        settings.override(cache_dir=folder),
    ):
        pass


def test_operators_are_those_of_a_file():
    g = ad.Builder("g")
    g.output("y", g.relu(g.input("x", ad.float32, (g.dim("n"),))))
    for source in (g, g.graph()):
        with pytest.raises(ad.OptionError, match="the source is no ONNX model"):
            ad.compile(source, operators="nowhere.tc")


@pytest.mark.parametrize("dtype, number", [
    ("int32", 0.5), ("int64", float("nan")), ("uint8", 300), ("uint8", -1), ("int8", float("inf")),
    ("bool", 2), ("int64", 2**63), ("int32", 1e10),
])  # fmt: skip
def test_a_number_that_the_type_of_its_operand_does_not_hold(dtype: str, number: float) -> None:
    g = ad.Builder()
    x = g.input("x", dtype, ("n",))
    with pytest.raises(
        ad.GraphError, match=f"is no value of {dtype}, the type of the other operands"
    ):
        g.equal(x, number)


@pytest.mark.parametrize("dtype, number", [
    ("int32", 2.0), ("int32", True), ("uint8", 255), ("float16", 0.1), ("float32", float("nan")),
    ("bool", 1), ("float64", 2**70),
])  # fmt: skip
def test_a_number_takes_the_type_of_its_operand(dtype: str, number: float) -> None:
    g = ad.Builder()
    x = g.input("x", dtype, ("n",))
    g.equal(x, number)
    (constant,) = g._constants.values()
    assert constant.type.dtype.name == dtype
