"""Contractions agree with float64 numpy at every size, however operands lie in memory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import numpy
import pytest

from anydim.base.dtypes import DType, float32, float64, int32, int64
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.contraction.contraction_template import TEMPLATE
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import Cast, Expr, Group, Index, Read, SizeTerm, Statement, TensorType
from anydim.sizes import as_size, parse
from tests.unit.compiler.kernels.contraction_cases import (
    BOX,
    Compiled,
    apply,
    axes,
    compiled,
    matmul,
    product_statement,
    read,
    tensor,
    tolerance,
)
from tests.unit.compiler.kernels.launching import Prepared

ROWS = (0, 1, 2, 3, 5, 6, 7, 11, 12, 13, 25, 97)
DEPTHS_AND_WIDTHS = (
    (0, 5), (1, 1), (1, 47), (2, 16), (3, 130), (4, 9), (5, 3), (15, 17), (16, 48), (17, 49),
    (33, 97), (97, 31), (390, 33), (801, 65), (1024, 33),
)  # fmt: skip
AVX2 = Machine(32, 16)
SSE = Machine(16, 16, 32 * 1024, 64 * 1024)


def numbers(*shape: int, dtype: DType = float32, seed: int = 0) -> numpy.ndarray:
    rng = numpy.random.default_rng([seed, *shape])
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    return rng.integers(-1000, 1000, shape).astype(dtype.numpy)


def check(found: numpy.ndarray, a: numpy.ndarray, b: numpy.ndarray, expected=None) -> None:
    exact = a.astype(numpy.float64) @ b.astype(numpy.float64) if expected is None else expected
    assert found.shape == exact.shape
    assert (numpy.abs(found - exact) <= tolerance(a, b)).all()


# ---- sizes -------------------------------------------------------------------------------------


@pytest.mark.sampled(most=18)
@pytest.mark.parametrize("machine", [None, AVX2, SSE], ids=["host", "avx2", "sse"])
@pytest.mark.parametrize("depth, width", DEPTHS_AND_WIDTHS)
def test_run_time_operands(depth: int, width: int, machine: Machine | None) -> None:
    kernel = compiled(matmul(), machine=machine)
    for rows in ROWS:
        a, b = numbers(rows, depth), numbers(depth, width, seed=1)
        found = kernel.run({"M": rows, "K": depth, "N": width}, {"a": a, "b": b})
        check(found["c"], a, b)


@pytest.mark.sampled(most=12)
@pytest.mark.parametrize("machine", [None, SSE], ids=["host", "sse"])
@pytest.mark.parametrize("depth, width", DEPTHS_AND_WIDTHS)
def test_a_constant_operand_is_packed(depth: int, width: int, machine: Machine | None) -> None:
    kernel = compiled(matmul(k=str(depth), n=str(width)), frozenset({"b"}), machine)
    for rows in ROWS:
        a, b = numbers(rows, depth), numbers(depth, width, seed=1)
        check(kernel.run({"M": rows}, {"a": a, "b": b})["c"], a, b)


@pytest.mark.parametrize("rows", [0, 1, 13, 97])
@pytest.mark.parametrize("parts", [1, 3])
def test_every_other_iteration_of_a_loop_goes_backwards(rows: int, parts: int) -> None:
    small = Machine(16, 16, 4 * 1024, 16 * 1024)  # its blocks are small, so that there are many
    straight = compiled(matmul(), machine=small)
    turning = replace(straight, launch=straight.launch.in_loop("t"))
    a, b = numbers(rows, 65), numbers(65, 197, seed=1)
    env = {"M": rows, "K": 65, "N": 197, "t": 4}
    assert straight.launch.parallel.evaluate(env) > 3 or not rows
    for t in (4, 5):
        found = turning.run({**env, "t": t}, {"a": a, "b": b}, parts)["c"]
        assert turning.launch.sizes[turning.launch.order].evaluate({"t": t}) == t % 2
        assert numpy.array_equal(found, straight.run(env, {"a": a, "b": b}, parts)["c"])
        check(found, a, b)


def test_long_sums_are_cut() -> None:
    kernel = compiled(matmul(k="801", n="65"), frozenset({"b"}), SSE)
    assert "block_k=" in kernel.launch.schedule
    a, b = numbers(97, 801), numbers(801, 65, seed=1)
    for parts in (1, 2):
        check(kernel.run({"M": 97}, {"a": a, "b": b}, parts)["c"], a, b)


@pytest.mark.parametrize("constants", [frozenset(), frozenset({"b"})], ids=["packed", "constant"])
def test_no_rows_or_columns_do_nothing(constants: frozenset[str]) -> None:
    for rows, depth, width in ((0, 0, 0), (0, 3, 4), (4, 3, 0)):
        group = matmul(k=str(depth), n=str(width)) if constants else matmul()
        kernel = compiled(group, constants)
        if kernel is None:
            continue
        a, b = numbers(rows, depth), numbers(depth, width)
        found = kernel.run({"M": rows, "K": depth, "N": width}, {"a": a, "b": b})
        assert found["c"].shape == (rows, width)


@pytest.mark.parametrize("constants", [frozenset(), frozenset({"b"})], ids=["packed", "constant"])
def test_parts_of_the_parallel_range_make_the_whole(constants: frozenset[str]) -> None:
    kernel = compiled(matmul(k="70", n="331"), constants)
    for rows in (1, 13, 400):
        a, b = numbers(rows, 70), numbers(70, 331, seed=1)
        whole = kernel.run({"M": rows}, {"a": a, "b": b})["c"]
        for parts in (2, 3, 7):
            cut = kernel.run({"M": rows}, {"a": a, "b": b}, parts)["c"]
            assert numpy.array_equal(whole, cut)


@pytest.mark.parametrize("dtype", [float64, int32, int64], ids=str)
def test_element_types(dtype: DType) -> None:
    kernel = compiled(matmul(dtype=dtype))
    for rows, depth, width in ((1, 5, 9), (7, 33, 25), (19, 130, 51)):
        a, b = numbers(rows, depth, dtype=dtype), numbers(depth, width, dtype=dtype, seed=1)
        found = kernel.run({"M": rows, "K": depth, "N": width}, {"a": a, "b": b})["c"]
        if dtype.is_float:
            check(found, a, b)
        else:
            assert numpy.array_equal(found, a @ b)


# ---- layouts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("a_turned", [False, True])
@pytest.mark.parametrize("b_turned", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_transposed_operands(a_turned: bool, b_turned: bool, constant: bool) -> None:
    depth, width = ("37", "61") if constant else ("K", "N")
    statement = product_statement(
        "c",
        read("a", "k", "i") if a_turned else read("a", "i", "k"),
        read("b", "j", "k") if b_turned else read("b", "k", "j"),
        axes(i="M", j=width),
        axes(k=depth),
    )
    group = Group(
        (
            tensor("a", f"{depth} M" if a_turned else f"M {depth}"),
            tensor("b", f"{width} {depth}" if b_turned else f"{depth} {width}"),
        ),
        (tensor("c", f"M {width}"),),
        (statement,),
    )
    kernel = compiled(group, frozenset({"b"}) if constant else frozenset())
    for rows in (0, 1, 8, 15, 33, 100):
        for k, n in ((37, 61),) if constant else ((1, 1), (16, 16), (37, 61), (64, 130)):
            a, b = numbers(rows, k), numbers(k, n, seed=1)
            inputs = {
                "a": numpy.ascontiguousarray(a.T) if a_turned else a,
                "b": numpy.ascontiguousarray(b.T) if b_turned else b,
            }
            check(kernel.run({"M": rows, "K": k, "N": n}, inputs)["c"], a, b)


def test_a_turned_result_swaps_the_operands() -> None:
    statement = product_statement(
        "c", read("a", "i", "k"), read("b", "k", "j"), axes(j="N", i="M"), axes(k="K")
    )
    group = Group((tensor("a", "M K"), tensor("b", "K N")), (tensor("c", "N M"),), (statement,))
    kernel = compiled(group)
    a, b = numbers(33, 20), numbers(20, 7, seed=1)
    found = kernel.run({"M": 33, "K": 20, "N": 7}, {"a": a, "b": b})["c"]
    check(found.T, a, b)


@pytest.mark.parametrize("constant", [False, True])
def test_batches(constant: bool) -> None:
    """scores[b, h, s, t] = sum q[b, s, h, d] k[b, t, h, d]: batch axes on both sides."""
    sizes = {"M": 3, "H": 5, "N": 19, "K": 24}
    h, n, k = ("5", "19", "24") if constant else ("H", "N", "K")
    b_shape = f"{n} {h} {k}" if constant else f"M {n} {h} {k}"
    b_read = read("b", "t", "h", "d") if constant else read("b", "i", "t", "h", "d")
    statement = product_statement(
        "c", read("a", "i", "s", "h", "d"), b_read, axes(i="M", h=h, s="N", t=n), axes(d=k)
    )
    group = Group(
        (tensor("a", f"M N {h} {k}"), tensor("b", b_shape)),
        (tensor("c", f"M {h} N {n}"),),
        (statement,),
    )
    kernel = compiled(group, frozenset({"b"}) if constant else frozenset())
    a = numbers(3, 19, 5, 24)
    b = numbers(*((19, 5, 24) if constant else (3, 19, 5, 24)), seed=1)
    subscripts = "bshd,thd->bhst" if constant else "bshd,bthd->bhst"
    exact = numpy.einsum(subscripts, a.astype(float), b.astype(float))
    for parts in (1, 4):
        found = kernel.run(sizes, {"a": a, "b": b}, parts)["c"]
        assert numpy.abs(found - exact).max() < 1e-4


def test_axes_that_lie_behind_one_another_are_one() -> None:
    """y[b, s, h, d] = sum x[b, s, k] w[k, h, d] is one matrix product without loops."""
    statement = product_statement(
        "c",
        read("a", "i", "s", "k"),
        read("b", "k", "h", "d"),
        axes(i="M", s="N", h="3", d="8"),
        axes(k="16"),
    )
    group = Group(
        (tensor("a", "M N 16"), tensor("b", "16 3 8")), (tensor("c", "M N 3 8"),), (statement,)
    )
    kernel = compiled(group, frozenset({"b"}))
    assert "loop" not in kernel.launch.reason
    a, b = numbers(4, 9, 16), numbers(16, 3, 8, seed=1)
    found = kernel.run({"M": 4, "N": 9}, {"a": a, "b": b})["c"]
    check(found.reshape(36, 24), a.reshape(36, 16), b.reshape(16, 24))


def test_heads_written_apart_become_a_loop() -> None:
    """y[b, h, s, d] = sum x[b, s, k] w[k, h, d]: columns of different heads are far apart."""
    statement = product_statement(
        "c",
        read("a", "i", "s", "k"),
        read("b", "k", "h", "d"),
        axes(i="M", h="3", s="N", d="20"),
        axes(k="16"),
    )
    group = Group(
        (tensor("a", "M N 16"), tensor("b", "16 3 20")), (tensor("c", "M 3 N 20"),), (statement,)
    )
    a, b = numbers(4, 9, 16), numbers(16, 3, 20, seed=1)
    exact = numpy.einsum("bsk,khd->bhsd", a.astype(float), b.astype(float))
    for constants in (frozenset({"b"}), frozenset()):
        found = compiled(group, constants).run({"M": 4, "N": 9}, {"a": a, "b": b}, 3)["c"]
        assert numpy.abs(found - exact).max() < 1e-4


def test_a_vector_times_a_matrix() -> None:
    statement = product_statement(
        "c", read("a", "k"), read("b", "k", "j"), axes(j="N"), axes(k="K")
    )
    group = Group((tensor("a", "K"), tensor("b", "K N")), (tensor("c", "N"),), (statement,))
    kernel = compiled(group)
    for depth, width in ((1, 1), (40, 100)):
        a, b = numbers(depth), numbers(depth, width, seed=1)
        found = kernel.run({"K": depth, "N": width}, {"a": a, "b": b})["c"]
        check(found[None], a[None], b)


# ---- a matrix and a vector ---------------------------------------------------------------------

LENGTHS = (0, 1, 2, 15, 16, 17, 48, 65, 400)


def _run_part(
    kernel: Compiled, arrays: tuple[numpy.ndarray, ...], turned: tuple[bool, bool], parts: int,
    low: int = 0, high: int = 9999,
) -> numpy.ndarray:  # fmt: skip
    """Some of the rows."""
    a, b, bias, column = arrays
    env = {"M": len(a[low:high]), "K": len(b), "N": len(bias)}
    a, b = (x.T if flip else x for x, flip in zip((a[low:high], b), turned))
    given = {
        "a": numpy.ascontiguousarray(a), "b": numpy.ascontiguousarray(b), "bias": bias,
        "column": column[low:high],
    }  # fmt: skip
    return kernel.run(env, given, parts)["y"]


def test_every_access_of_a_row_or_a_column_is_inside() -> None:
    for a_turned, b_turned in ((False, False), (True, False), (False, True), (True, True)):
        shapes = "KM" if a_turned else "MK", "NK" if b_turned else "KN"
        (a0, a1), (b0, b1) = (shape.lower() for shape in shapes)
        parameters = (f"float({x},{y}) {name}" for name, (x, y) in zip("ab", shapes))
        text = f"def f({', '.join(parameters)}) -> (c) {{ c(m,n) +=! a({a0},{a1}) * b({b0},{b1}) }}"
        types = [TensorType(float32, tuple(map(as_size, shape))) for shape in shapes]
        group = instantiate(parse_definition(text), types, box=BOX)
        made = Prepared(group, (TEMPLATE,), BOX, AVX2)
        for rows, depth, width in (
            (1, 9, 19), (5, 33, 1), (1, 17, 1), (1, 0, 3), (2, 0, 1), (7, 3, 11), (2, 291, 17),
            (3, 19, 129),
        ):  # fmt: skip
            a, b = numbers(rows, depth), numbers(depth, width, seed=1)
            given = [numpy.ascontiguousarray(x.T if flip else x)
                     for x, flip in ((a, a_turned), (b, b_turned))]  # fmt: skip
            env = {"M": rows, "K": depth, "N": width}
            (found,) = made.outputs(given, env, 2, False)
            check(found, a, b)


@pytest.mark.sampled(most=5)
@pytest.mark.parametrize("machine", [None, AVX2, SSE], ids=["host", "avx2", "sse"])
@pytest.mark.parametrize("dtype", [float32, float64, int32], ids=str)
@pytest.mark.parametrize("a_turned", [False, True])
@pytest.mark.parametrize("b_turned", [False, True])
@pytest.mark.parametrize("result", [None, float64, float32], ids=["same", "wider", "narrower"])
def test_one_row_or_one_column(
    a_turned: bool, b_turned: bool, dtype: DType, machine: Machine | None, result: DType | None
) -> None:
    """Nothing is packed; a row has its bits in any batch, and whatever part it is in: long rows by
    a b that is turned as well, which are added up in turns.

    Results of another type hold no sums: those are in scratch.
    """
    if result == dtype or (result and machine == AVX2):
        pytest.skip("seen in the others")
    a_indices, a_shape = ("k i", "K M") if a_turned else ("i k", "M K")
    b_indices, b_shape = ("j k", "N K") if b_turned else ("k j", "K N")
    statement = product_statement(
        "t", read("a", *a_indices.split()), read("b", *b_indices.split()),
        axes(i="M", j="N"), axes(k="K"),
    )  # fmt: skip
    total = apply("add", read("t", "i", "j"), read("bias", "j"))
    most: Expr = apply("max", total, read("column", "i"))
    after = Statement("y", axes(i="M", j="N"), most if result is None else Cast(result, most))
    group = Group(
        (
            tensor("a", a_shape, dtype), tensor("b", b_shape, dtype), tensor("bias", "N", dtype),
            tensor("column", "M", dtype),
        ),
        (tensor("y", "M N", result or dtype),), (statement, after), (tensor("t", "M N", dtype),),
    )  # fmt: skip
    kernel = compiled(group, machine=machine)
    sizes = [(1, k, n) for k in LENGTHS for n in (1, 17, 2100)]
    sizes += [(m, k, 1) for k in LENGTHS for m in (0, 2, 9, 30)]
    sizes += [(3, k, n) for k in LENGTHS for n in (5, 33)]
    sizes += [(m, k, 130) for k in (287, 288, 515, 1031) for m in (1, 2, 9)]  # in turns
    for rows, depth, width in sizes:
        a, b = numbers(rows, depth, dtype=dtype), numbers(depth, width, dtype=dtype, seed=1)
        bias = numbers(width, dtype=dtype, seed=2)
        column = numbers(rows, dtype=dtype, seed=3)

        run = partial(_run_part, kernel, (a, b, bias, column), (a_turned, b_turned))
        found = run(1)
        exact = a.astype(numpy.float64) @ b.astype(numpy.float64) + bias
        exact = numpy.maximum(exact, column[:, None])
        assert (numpy.abs(found - exact) <= tolerance(a, b) + 1e-6 * numpy.abs(exact)).all()
        assert run(3).tobytes() == found.tobytes()
        for row in {0, rows - 1} if rows else ():
            assert run(1, row, row + 1).tobytes() == found[row : row + 1].tobytes()


# ---- many small matrices -----------------------------------------------------------------------


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize("machine", [None, SSE], ids=["host", "sse"])
@pytest.mark.parametrize("dtype", [float32, int32], ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_small_matrices_in_a_loop(turned: bool, dtype: DType, machine: Machine | None) -> None:
    """Pairs that go side by side have the bits of pairs and rows that go alone."""
    b_indices, b_shape = ("h j k", "H N K") if turned else ("h k j", "H K N")
    statement = product_statement(
        "c", read("a", "h", "i", "k"), read("b", *b_indices.split()),
        axes(h="H", i="M", j="N"), axes(k="K"),
    )  # fmt: skip
    group = Group(
        (tensor("a", "H M K", dtype), tensor("b", b_shape, dtype)),
        (tensor("c", "H M N", dtype),), (statement,),
    )  # fmt: skip
    kernel = compiled(group, machine=machine)
    for depth in (0, 3, 16, 17):
        for width in (1, 3, 8, 16, 17):
            a = numbers(5, 11, depth, dtype=dtype)
            b = numbers(5, depth, width, dtype=dtype, seed=1)
            given = numpy.ascontiguousarray(numpy.swapaxes(b, 1, 2)) if turned else b
            exact = numpy.matmul(a.astype(numpy.float64), b.astype(numpy.float64))
            env = {"H": 5, "K": depth, "N": width}
            whole = kernel.run({**env, "M": 11}, {"a": a, "b": given})["c"]
            assert numpy.abs(whole - exact).max() < 1e-4
            for rows in (1, 4):
                few = {"a": numpy.ascontiguousarray(a[:, :rows]), "b": given}
                for parts in (1, 3):
                    found = kernel.run({**env, "M": rows}, few, parts)["c"]
                    assert found.tobytes() == whole[:, :rows].tobytes()


def test_every_access_of_small_matrices_is_inside() -> None:
    for b_shape in ("HKN", "HNK"):
        text = f"""def f(float(H,M,K) a, float({",".join(b_shape)}) b) -> (c) {{
            c(h,m,n) +=! a(h,m,k) * b({",".join(b_shape.lower())})
        }}"""
        types = [TensorType(float32, tuple(map(as_size, shape))) for shape in ("HMK", b_shape)]
        group = instantiate(parse_definition(text), types, box=BOX)
        made = Prepared(group, (TEMPLATE,), BOX, AVX2)
        for count, rows, depth, width in ((3, 2, 3, 3), (2, 5, 1, 8), (4, 2, 0, 3), (1, 3, 5, 2)):
            env = {"H": count, "M": rows, "K": depth, "N": width}
            a, b = (numbers(*(env[letter] for letter in shape)) for shape in ("HMK", b_shape))
            (found,) = made.outputs([a, b], env, 2, False)
            exact = numpy.einsum(f"hmk,{b_shape.lower()}->hmn", a.astype(float), b.astype(float))
            assert numpy.allclose(found, exact, atol=1e-5)


# ---- sums over two axes that lie apart ---------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("a_order", ["HMK", "HKM", "MHK"])
@pytest.mark.parametrize("b_order", ["HKN", "HNK", "KHN"])
def test_sums_over_two_axes(a_order: str, b_order: str, constant: bool) -> None:
    """c[m, n] = sum over h, k; either operand may have m, n or nothing between h and k."""
    if constant:
        fixed = {"H": "3", "K": "21", "N": "50"}
        b_shape = " ".join(fixed[axis] for axis in b_order)
    else:
        fixed, b_shape = {axis: axis for axis in "HKN"}, " ".join(b_order)
    a_shape = " ".join(fixed.get(axis, axis) for axis in a_order)
    names = {"H": "h", "K": "k", "M": "i", "N": "j"}
    statement = product_statement(
        "c", read("a", *(names[x] for x in a_order)), read("b", *(names[x] for x in b_order)),
        axes(i="M", j=fixed["N"]), axes(h=fixed["H"], k=fixed["K"]),
    )  # fmt: skip
    group = Group(
        (tensor("a", a_shape), tensor("b", b_shape)), (tensor("c", f"M {fixed['N']}"),),
        (statement,),
    )  # fmt: skip
    kept = frozenset({"b"} if constant else ())
    kernel = compiled(group, kept)
    assert kernel is not None
    sizes = [(3, m, 21, 50) for m in (0, 1, 7, 13)]
    if not constant:
        sizes += [(2, 31, 17, 1), (5, 9, 1, 16), (1, 6, 33, 49), (0, 3, 4, 5), (4, 3, 0, 5)]
    for count, rows, depth, width in sizes:
        env = {"H": count, "M": rows, "K": depth, "N": width}
        a, b = numbers(count, rows, depth), numbers(count, depth, width, seed=1)
        given = {
            "a": numpy.ascontiguousarray(a.transpose(*("HMK".index(x) for x in a_order))),
            "b": numpy.ascontiguousarray(b.transpose(*("HKN".index(x) for x in b_order))),
        }
        whole = a.transpose(1, 0, 2).reshape(rows, count * depth), b.reshape(count * depth, width)
        found = kernel.run(env, given)["c"]
        check(found, *whole)
        assert kernel.run(env, given, 3)["c"].tobytes() == found.tobytes()


def test_every_access_of_pieces_is_inside() -> None:
    for a_shape, b_shape in (("HMK", "HKN"), ("HKM", "HNK"), ("MHK", "KHN")):
        given = [f"float({','.join(x)}) {n}" for n, x in (("a", a_shape), ("b", b_shape))]
        reads = (f"{n}({','.join(x.lower())})" for n, x in (("a", a_shape), ("b", b_shape)))
        text = f"def f({', '.join(given)}) -> (c) {{ c(m,n) +=! {' * '.join(reads)} }}"
        types = [TensorType(float32, tuple(map(as_size, x))) for x in (a_shape, b_shape)]
        group = instantiate(parse_definition(text), types, box=BOX)
        made = Prepared(group, (TEMPLATE,), BOX, AVX2)
        for env in ({"H": 2, "M": 5, "K": 9, "N": 17}, {"H": 3, "M": 1, "K": 1, "N": 1}):
            arrays = [numbers(*(env[x] for x in shape)) for shape in (a_shape, b_shape)]
            (found,) = made.outputs(arrays, env, 2, False)
            left, right = (x.astype(numpy.float64) for x in arrays)
            expected = numpy.einsum(f"{a_shape},{b_shape}->MN".lower(), left, right)
            assert numpy.allclose(found, expected, rtol=0, atol=1e-4)


# ---- epilogues ---------------------------------------------------------------------------------


def fused(*after: Statement, outputs: str, dtype: DType = float32, k: str = "K") -> Group:
    """t = a b, then statements over (i, j) that may read bias[N], other[M, N], column[M]."""
    product = product_statement(
        "t", read("a", "i", "k"), read("b", "k", "j"), axes(i="M", j="N"), axes(k=k)
    )
    made = {statement.target: tensor(statement.target, "M N") for statement in after}
    made["t"] = tensor("t", "M N")
    if dtype != float32:
        made[outputs] = tensor(outputs, "M N", dtype)
    kept = outputs.split()
    return Group(
        (
            tensor("a", f"M {k}"), tensor("b", f"{k} N"), tensor("bias", "N"),
            tensor("other", "M N"), tensor("column", "M"),
        ),
        tuple(made[name] for name in kept),
        (product, *after),
        tuple(made[name] for name in made if name not in kept),
    )  # fmt: skip


def then(target: str, body) -> Statement:
    return Statement(target, axes(i="M", j="N"), body)


T, BIAS, OTHER = read("t", "i", "j"), read("bias", "j"), read("other", "i", "j")
SIZES = [(0, 3, 4), (1, 7, 1), (5, 0, 33), (9, 20, 48), (17, 33, 50), (30, 400, 70)]


def run_fused(group: Group, rows: int, depth: int, width: int) -> tuple[dict, dict]:
    inputs = {
        "a": numbers(rows, depth), "b": numbers(depth, width, seed=1),
        "bias": numbers(width, seed=2), "other": numbers(rows, width, seed=3),
        "column": numbers(rows, seed=4),
    }  # fmt: skip
    env = {"M": rows, "K": depth, "N": width}
    exact = {name: value.astype(float) for name, value in inputs.items()}
    exact["t"] = exact["a"] @ exact["b"]
    return compiled(group).run(env, inputs), exact


@pytest.mark.parametrize("rows, depth, width", SIZES)
def test_a_bias_is_where_the_sums_start(rows: int, depth: int, width: int) -> None:
    group = fused(then("y", apply("add", T, BIAS)), outputs="y")
    found, exact = run_fused(group, rows, depth, width)
    assert numpy.allclose(found["y"], exact["t"] + exact["bias"], atol=3e-4)
    assert len(compiled(group).launch.kernel.functions) == 1


@pytest.mark.parametrize("rows, depth, width", SIZES)
def test_bias_residual_and_activation(rows: int, depth: int, width: int) -> None:
    total = apply("add", OTHER, apply("add", BIAS, T))
    activation = apply("max", read("u", "i", "j"), read("column", "i"))
    group = fused(then("u", total), then("y", activation), outputs="y")
    found, exact = run_fused(group, rows, depth, width)
    expected = exact["t"] + exact["bias"] + exact["other"]
    assert numpy.allclose(found["y"], numpy.maximum(expected, exact["column"][:, None]), atol=3e-4)


@pytest.mark.parametrize("rows, depth, width", SIZES)
def test_several_outputs_and_the_sums_themselves(rows: int, depth: int, width: int) -> None:
    group = fused(
        then("y", apply("mul", T, OTHER)), then("z", apply("neg", read("y", "i", "j"))),
        outputs="t y z",
    )  # fmt: skip
    found, exact = run_fused(group, rows, depth, width)
    assert numpy.allclose(found["t"], exact["t"], atol=3e-4)
    assert numpy.allclose(found["y"], exact["t"] * exact["other"], atol=2e-3)
    assert numpy.array_equal(found["z"], -found["y"])


@pytest.mark.parametrize("rows, depth, width", SIZES)
def test_sums_of_another_type_than_the_output(rows: int, depth: int, width: int) -> None:
    group = fused(then("y", Cast(float64, apply("add", T, BIAS))), outputs="y", dtype=float64)
    found, exact = run_fused(group, rows, depth, width)
    assert found["y"].dtype == numpy.float64
    assert numpy.allclose(found["y"], exact["t"] + exact["bias"], atol=3e-4)


def test_rows_of_few_steps_and_few_columns_have_their_bits_in_any_batch() -> None:
    """Up to four steps go row by row; what follows a row that ends in part of a vector waits."""
    activation = apply("max", apply("mul", T, BIAS), read("column", "i"))
    kernel = compiled(fused(then("y", activation), outputs="y"))
    for depth, width in product((1, 2, 3, 4, 5), (1, 3, 15, 16, 17, 33)):
        given = {
            "a": numbers(61, depth), "b": numbers(depth, width, seed=1),
            "bias": numbers(width, seed=2), "other": numbers(61, width),
            "column": numbers(61, seed=4),
        }  # fmt: skip
        exact = given["a"].astype(float) @ given["b"] * given["bias"]
        whole = kernel.run({"M": 61, "K": depth, "N": width}, given)["y"]
        assert numpy.allclose(whole, numpy.maximum(exact, given["column"][:, None]), atol=3e-5)
        for low, high, parts in ((0, 61, 3), (7, 8, 1), (50, 61, 1)):
            some = {n: x[low:high] if len(x) == 61 else x for n, x in given.items()}
            found = kernel.run({"M": high - low, "K": depth, "N": width}, some, parts)["y"]
            assert found.tobytes() == whole[low:high].tobytes()


@pytest.mark.parametrize("per_column", [False, True])
def test_what_follows_many_rows_of_few_columns(per_column: bool) -> None:
    """It is computed for many row tiles at once, for whole rows where columns do not matter."""
    body = apply("max", apply("mul", T, BIAS if per_column else T), T)
    kernel = compiled(fused(then("y", body), outputs="y"))
    for rows, depth, width in product((0, 7, 9, 700), (1, 5, 17, 300), (1, 3, 16, 17)):
        given = {
            "a": numbers(rows, depth), "b": numbers(depth, width, seed=1),
            "bias": numbers(width, seed=2), "other": numbers(rows, width),
            "column": numbers(rows),
        }  # fmt: skip
        exact = given["a"].astype(float) @ given["b"]
        exact = numpy.maximum(exact * (given["bias"] if per_column else exact), exact)
        whole = kernel.run({"M": rows, "K": depth, "N": width}, given)["y"]
        assert numpy.allclose(whole, exact, atol=3e-4, rtol=1e-4)
        for low, high in ((0, 1), (6, 9), (450, 700)) if rows == 700 else ():
            some = {n: x[low:high] if len(x) == rows else x for n, x in given.items()}
            found = kernel.run({"M": high - low, "K": depth, "N": width}, some, 2)["y"]
            assert found.tobytes() == whole[low:high].tobytes()


def test_indices_and_sizes_as_values() -> None:
    place = apply("add", apply("mul", Index("i"), SizeTerm(parse("N"))), Index("j"))
    group = fused(then("y", apply("add", T, Cast(float32, place))), outputs="y")
    found, exact = run_fused(group, 13, 9, 37)
    assert numpy.allclose(found["y"], exact["t"] + numpy.arange(13 * 37).reshape(13, 37), atol=1e-3)


def test_an_operand_of_the_product_may_be_read_again() -> None:
    group = fused(then("y", apply("add", apply("mul", T, T), read("a", "i", "j"))), outputs="y")
    inputs = {"a": numbers(11, 11), "b": numbers(11, 11, seed=1)}
    inputs |= {"bias": numbers(11), "other": numbers(11, 11), "column": numbers(11)}
    group = Group(
        (tensor("a", "M M"), tensor("b", "M N"), *group.inputs[2:]),
        group.outputs,
        (
            product_statement(
                "t", read("a", "i", "k"), read("b", "k", "j"), axes(i="M", j="N"), axes(k="M")
            ),
            *group.statements[1:],
        ),
        group.temporaries,
    )
    found = compiled(group).run({"M": 11, "N": 11}, inputs)["y"]
    exact = (inputs["a"] @ inputs["b"]) ** 2 + inputs["a"]
    assert numpy.allclose(found, exact, rtol=1e-4, atol=1e-4)


# ---- what it leaves to others --------------------------------------------------------------------


def test_other_forms_are_left_alone() -> None:
    no_column = product_statement(
        "c", read("a", "i", "k"), read("v", "k"), axes(i="M"), axes(k="K")
    )
    plain = Group((tensor("a", "M K"), tensor("v", "K")), (tensor("c", "M"),), (no_column,))
    assert compiled(plain) is None
    total = Statement("c", axes(i="M"), read("a", "i", "k"), "add", axes(k="K"))
    assert compiled(Group((tensor("a", "M K"),), (tensor("c", "M"),), (total,))) is None
    mirrored = apply("sub", SizeTerm(parse("M - 1")), Index("i"))
    turned = fused(then("y", Read("t", (mirrored, Index("j")))), outputs="y")
    assert compiled(turned) is None
