"""Promise: copies whose neighbours change places are right and touch nothing else."""

from __future__ import annotations

import itertools
import math

import numpy
import pytest

import anydim as ad
from anydim.base.dtypes import boolean, float16, float32, float64, int64, uint8
from anydim.compiler.kernels.ir_text import print_kernel
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.transpose import transpose_template as transposition
from anydim.compiler.targets.evaluated.evaluator import run
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size

SIZES = [(0, 3), (3, 0), (1, 1), (7, 9), (8, 8), (15, 17), (16, 16), (17, 15), (33, 64), (100, 65),
         (63, 129), (1, 50), (50, 1), (200, 3), (5, 600), (9, 333), (15, 1100), (2, 31), (130, 2),
         (3, 16), (3, 4200), (64, 4), (4, 63), (8, 200), (129, 8),
         (5, 33), (6, 100), (6, 15), (7, 333), (7, 64),
         (6143, 5), (10300, 33), (1023, 17), (1024, 33), (2049, 9)]  # fmt: skip
TEXTS = {
    "flat": ("def f(T(M,N) x) -> (y) { y(n,m) = x(m,n) }", lambda x: x.T),
    "reversed": (
        "def f(T(M,N) x) -> (y) { y(n,m) = x(M-1-m,n) where m in 0:M }", lambda x: x[::-1].T,
    ),
    "computed": (
        "def f(T(M,N) x) -> (y) { y(n,m) = max(x(m,n), 3) }", lambda x: numpy.maximum(x.T, 3),
    ),
    "padded": (
        "def f(T(M,N) x) -> (y) { y(n,m) = x(m,n) else 0 where n in 0:N, m in 0:M+19 }",
        lambda x: numpy.pad(x, ((0, 19), (0, 0))).T,
    ),
    "panels": (
        "def f(T(M,N) x) -> (y) { y(p,n,w) = x(p*24+w,n) else 0"
        " where p in 0:(M+23)//24, n in 0:N, w in 0:24 }",
        lambda x: numpy.pad(x, ((0, -len(x) % 24), (0, 0)))
        .reshape(-(-len(x) // 24), 24, x.shape[1]).transpose(0, 2, 1),
    ),
}  # fmt: skip


@pytest.mark.sampled(
    "panels-float64",
    "panels-float16",
    "computed-float16",
    "computed-uint8",
    "reversed-uint8",
    "padded-float16",
    most=8,
)
@pytest.mark.parametrize("dtype", [float32, float64, int64, uint8, float16], ids=str)
@pytest.mark.parametrize("name", TEXTS)
def test_transposed_copies(name, dtype):
    text, reference = TEXTS[name]
    function = ad.define(text).f
    for number, shape in enumerate(SIZES):
        x = numpy.random.default_rng(number).integers(-99, 99, shape).astype(dtype.numpy)
        numpy.testing.assert_array_equal(function(x), reference(x), err_msg=str(shape))


FLAGS = {
    "flat": (TEXTS["flat"][0].replace("T(", "bool("), lambda x: x.T),
    "padded": (TEXTS["padded"][0].replace("T(", "bool(").replace("else 0", "else false"),
               TEXTS["padded"][1]),
    "opposite": ("def f(bool(M,N) x) -> (y) { y(n,m) = !x(m,n) }", lambda x: ~x.T),
}  # fmt: skip


@pytest.mark.parametrize("name", FLAGS)
def test_flags_are_copied_as_bytes(name):
    text, reference = FLAGS[name]
    function = ad.define(text).f
    for number, shape in enumerate(SIZES):
        x = numpy.random.default_rng(number).random(shape) < 0.5
        found = function(x)
        assert found.dtype == bool
        numpy.testing.assert_array_equal(found, reference(x), err_msg=str(shape))
    types = (TensorType(boolean, (as_size("M"), as_size("N"))),)
    box, machine = Box.of(Dim("M"), Dim("N")), Machine(vector_bytes=64)
    group = instantiate(parse(text)["f"], types, {}, box)
    matched = transposition.TEMPLATE.match(group, box, machine, frozenset())
    assert (matched is not None) is (name != "opposite")


def test_inner_axes_change_places_with_outer_loops():
    function = ad.define("def f(float(B,C,H,W) x) -> (y) { y(b,h,w,c) = x(b,c,h,w) }").f
    for number, (m, n) in enumerate(SIZES):
        x = numpy.random.default_rng(number).random((2, m, 3, n)).astype(numpy.float32)
        numpy.testing.assert_array_equal(function(x), x.transpose(0, 2, 3, 1))


@pytest.mark.sampled(most=6)
@pytest.mark.parametrize("dtype", [float32, uint8], ids=str)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_axes_that_are_short_in_a_call(order, dtype):
    """1 and a few elements where others are many: other ways than squares take these."""
    names = [f"i{axis}" for axis in order]
    function = ad.define(f"def f(T(A,B,C) x) -> (y) {{ y({','.join(names)}) = x(i0,i1,i2) }}").f
    for shape in itertools.product((0, 1, 2, 3, 5, 40), repeat=3):
        x = numpy.arange(math.prod(shape)).reshape(shape).astype(dtype.numpy)
        numpy.testing.assert_array_equal(function(x), x.transpose(order), err_msg=str(shape))


def test_where_the_last_axis_is_one_element_the_one_before_has_the_lanes():
    """In squares, whoever takes which of the pieces."""
    (definition,) = parse("def f(uint8(A,B,C) x) -> (y) { y(c,b,a) = x(a,b,c) }").values()
    box, machine = Box.of(*map(Dim, "ABC")), Machine(vector_bytes=32)
    kind = TensorType(uint8, tuple(map(as_size, "ABC")))
    group = instantiate(definition, (kind,), {}, box)
    schedule = transposition.TEMPLATE.match(group, box, machine, frozenset())
    assert schedule is not None
    launch = transposition.TEMPLATE.lower(group, schedule, box, machine, frozenset())
    for b, c in ((1, 9), (40, 1), (127, 18), (128, 3), (131, 33)):
        x = numpy.random.default_rng(b).integers(0, 255, (1, b, c)).astype(numpy.uint8)
        y, env = numpy.full((c, b, 1), 255, numpy.uint8), {"A": 1, "B": b, "C": c}
        sizes = [size.evaluate(env) for size in launch.sizes]
        parallel = launch.parallel.evaluate(env)
        for part in range(3):
            ends = (parallel * number // 3 for number in (part, part + 1))
            run(launch.kernel, [x, y], sizes, *ends)
        numpy.testing.assert_array_equal(y, x.transpose(2, 1, 0))
    assert "& 255" in print_kernel(launch.kernel)


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("dtype", [float32, float16], ids=str)
@pytest.mark.parametrize("name", TEXTS)
def test_nothing_outside_is_touched(name, dtype):
    """The evaluator of loop IR checks every access."""
    text, reference = TEXTS[name]
    (definition,) = parse(text).values()
    box = Box.of(Dim("M"), Dim("N"))
    kind = TensorType(dtype, (as_size("M"), as_size("N")))
    group = instantiate(definition, (kind,), {}, box)
    machine = Machine(vector_bytes=32, permutes=True)
    schedule = transposition.TEMPLATE.match(group, box, machine, frozenset())
    assert schedule is not None
    launch = transposition.TEMPLATE.lower(group, schedule, box, machine, frozenset())
    for m, n in (
        (1, 1),
        (1, 70),
        (70, 1),
        (2, 9),
        (9, 2),
        (7, 9),
        (8, 8),
        (17, 5),
        (25, 70),
        (5, 90),
        (3, 23),
        (19, 3),
        (2, 33),
        (16, 4),
        (6, 70),
        (7, 70),
        (5, 32),
        (1023, 17),
    ):
        x = numpy.arange(m * n, dtype=dtype.numpy).reshape(m, n)
        right = reference(x)
        y = numpy.full(right.shape, numpy.nan, dtype.numpy)
        sizes = [size.evaluate({"M": m, "N": n}) for size in launch.sizes]
        parallel = launch.parallel.evaluate({"M": m, "N": n})
        run(launch.kernel, [x, y], sizes, 0, parallel)
        numpy.testing.assert_array_equal(y, right)


@pytest.mark.parametrize("width", [16, 64])
def test_functions_of_another_type(width):
    """Squares are of what is read, vectors of either type have as many lanes."""
    text = "def f(uint8(M,N) x) -> (y) { y(n,m) = cast<float>(x(m,n)) * 0.5 }"
    (definition,) = parse(text).values()
    box = Box.of(Dim("M"), Dim("N"))
    kind = TensorType(uint8, (as_size("M"), as_size("N")))
    group = instantiate(definition, (kind,), {}, box)
    machine = Machine(vector_bytes=width)
    schedule = transposition.TEMPLATE.match(group, box, machine, frozenset())
    assert schedule is not None and schedule.lanes == width // 4
    function = ad.define(text).f
    for number, shape in enumerate(SIZES):
        x = numpy.random.default_rng(number).integers(0, 255, shape).astype(numpy.uint8)
        numpy.testing.assert_array_equal(function(x), x.T * numpy.float32(0.5))


@pytest.mark.parametrize("dtype", [uint8, float32], ids=str)
def test_a_few_columns_go_together_in_whole_vectors(dtype):
    (definition,) = parse("def f(T(N,C,P) x) -> (y) { y(n,p,c) = x(n,c,p) }").values()
    box, machine = Box.of(Dim("N"), Dim("P")), Machine()
    kind = TensorType(dtype, (as_size("N"), as_size(3), as_size("P")))
    group = instantiate(definition, (kind,), {}, box)
    schedule = transposition.TEMPLATE.match(group, box, machine, frozenset())
    assert schedule is not None
    text = print_kernel(
        transposition.TEMPLATE.lower(group, schedule, box, machine, frozenset()).kernel
    )
    lanes = 32 // dtype.bytes
    assert text.count(f"; 0 {lanes} 0 1 {lanes + 1} 1 ") == 2  # whole vectors, and the last ones


def test_short_axes_are_left_to_other_templates():
    (definition,) = parse("def f(float(M,N) x) -> (y) { y(n,m) = x(m,n) }").values()
    box = Box.of(Dim("M"))
    kind = TensorType(float32, (as_size("M"), as_size(3)))
    group = instantiate(definition, (kind,), {}, box)
    assert transposition.TEMPLATE.match(group, box, Machine(), frozenset()) is None


def test_a_few_long_rows_are_pieces_for_threads():
    """A small image whose channels lie last and go first was one piece of work."""
    text = "def f(uint8(B,P,64) x) -> (y) { y(b,c,p) = x(b,p,c) }"
    (definition,) = parse(text).values()
    box, machine = Box.of(Dim("B"), Dim("P")), Machine(vector_bytes=32)
    kind = TensorType(uint8, tuple(map(as_size, ("B", "P", 64))))
    group = instantiate(definition, (kind,), {}, box)
    schedule = transposition.TEMPLATE.match(group, box, machine, frozenset())
    assert schedule is not None
    launch = transposition.TEMPLATE.lower(group, schedule, box, machine, frozenset())
    for places, pieces in ((1, 1), (4096, 1), (6143, 1), (6144, 2), (50176, 12)):
        dims = {"B": 1, "P": places}
        assert launch.parallel.evaluate(dims) == pieces
