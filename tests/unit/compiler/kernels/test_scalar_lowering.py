"""Expressions become loop IR: where values are computed, how reads are addressed and guarded."""

from __future__ import annotations

import pytest

from anydim.base.dtypes import DType, boolean, float32, float64, int8, int32, int64, uint8, uint64
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.scalar_lowering import Context, ScalarLowering, SizeParameters
from anydim.compiler.kernels.inference import common_dtype, dtype_of, free_axes, linear
from anydim.compiler.kernels.launch import Machine
from anydim.lang.tree import Apply, Cast, Expr, Index, Literal, Read, SizeTerm, TensorType
from anydim.sizes import Size, as_size

M, N = Size.symbol("M"), Size.symbol("N")
TYPES = {
    "x": TensorType(float32, (M, N)),
    "g": TensorType(float32, (N,)),
    "w": TensorType(float32, (M,)),
    "at": TensorType(int64, (M,)),
    "one": TensorType(float32, (as_size(1),)),
    "k": TensorType(int32, (N,)),
}
R, C = Index("r"), Index("c")
X = Read("x", (R, C))


def levels(
    lanes: int = 8, running: bool = False, mask: bool = False
) -> tuple[ScalarLowering, ScalarLowering, ScalarLowering]:
    """Function, row and lane level of a loop nest over r and c."""
    context = Context(TYPES, SizeParameters(), Machine(), running=running)
    kernel = ScalarLowering(context)
    row = kernel.inner({"r": ir.Var(ir.INDEX, "r")})
    lane_mask = ir.Var(ir.Type(boolean, lanes), "m") if mask else None
    lane = row.inner({"c": ir.Var(ir.INDEX, "c")}, lane="c", lanes=lanes, mask=lane_mask)
    return kernel, row, lane


def lets(elements: ScalarLowering, kind: type) -> list[ir.Value]:
    return [
        step.value
        for step in elements.steps
        if isinstance(step, ir.Let) and isinstance(step.value, kind)
    ]


def op(function: str, *arguments: Expr) -> Apply:
    return Apply(function, arguments)


@pytest.mark.parametrize(("lanes", "dtype"), [(16, int32), (64, int8)])
def test_positions_are_compared_in_one_register(lanes: int, dtype: DType) -> None:
    _, _, lane = levels(lanes)
    beyond = op("less_equal", op("sub", C, R), SizeTerm(N))
    lane.value(op("and", beyond, op("greater", C, Literal(2))))
    masks = [v for v in lets(lane, ir.Op) if v.type.dtype == boolean and v.type.lanes == lanes]
    assert {side.type.dtype for mask in masks[:2] for side in mask.arguments} == {dtype}
    data = levels(lanes)[2]
    data.value(op("less", C, Read("at", (R,))))  # any number may stand there
    (mask,) = [v for v in lets(data, ir.Op) if v.type.dtype == boolean]
    assert mask.arguments[0].type.dtype == int64


def test_contiguous_reads_are_vector_loads_with_the_mask() -> None:
    _, row, lane = levels(mask=True)
    value = lane.value(X)
    (load,) = lets(lane, ir.Load)
    assert value.type == ir.Type(float32, 8) == load.type
    assert load.mask == lane.mask
    assert lets(row, ir.Op)  # r * N is computed once per row


def test_reads_without_the_lane_axis_are_scalar_loads_outside_the_loop() -> None:
    _, row, lane = levels(mask=True)
    assert lane.value(Read("w", (R,))).type.lanes == 8
    (load,) = lets(row, ir.Load)
    assert load.type.lanes == 1 and load.mask is None
    assert not lets(lane, ir.Load)


def test_strided_reads_are_gathers() -> None:
    _, _, lane = levels()
    lane.value(Read("x", (C, R)))
    (gather,) = lets(lane, ir.Gather)
    assert gather.offsets.type == ir.Type(int64, 8)


def test_shared_parts_are_computed_once() -> None:
    _, _, lane = levels()
    e = op("exp", X)
    lane.value(op("add", op("max", e, X), op("min", e, X)))
    assert len(lets(lane, ir.Load)) == 1
    assert [v.function for v in lets(lane, ir.Op)].count("exp") == 1


def test_what_depends_on_no_loop_is_computed_at_function_level() -> None:
    kernel, row, lane = levels()
    lane.value(op("mul", X, op("div", Literal(1.0, float32), Cast(float32, SizeTerm(N)))))
    assert [v.function for v in lets(kernel, ir.Op)] == ["div"]
    assert "div" not in [v.function for v in (*lets(row, ir.Op), *lets(lane, ir.Op))]


def test_reads_leave_loops_only_when_they_cannot_stray() -> None:
    last = Read("g", (op("sub", SizeTerm(N), Literal(1, int64)),))
    kernel, _, lane = levels()
    lane.value(op("add", X, last))
    assert not lets(kernel, ir.Load)
    kernel, _, lane = levels(running=True)
    lane.value(op("add", X, last))
    assert lets(kernel, ir.Load)


def test_products_and_sums_fuse() -> None:
    _, _, lane = levels()
    lane.value(op("sub", op("mul", X, X), Read("g", (C,))))
    assert "fma" in [v.function for v in lets(lane, ir.Op)]
    assert "mul" not in [v.function for v in lets(lane, ir.Op)]


def test_integers_do_not_fuse() -> None:
    _, _, lane = levels()
    k = Read("k", (C,))
    lane.value(op("add", op("mul", k, k), k))
    assert [v.function for v in lets(lane, ir.Op)] == ["mul", "add"]


def test_guarded_reads_are_masked_and_selected() -> None:
    _, _, lane = levels()
    shifted = op("sub", C, Literal(1, int64))
    lane.value(Read("x", (R, shifted), default=Literal(7.0, float32)))
    (load,) = lets(lane, ir.Load)
    assert load.mask is not None and load.mask.type == ir.Type(boolean, 8)
    assert lets(lane, ir.Op)[-1].function == "select"


def test_indirect_reads_are_masked() -> None:
    _, row, lane = levels()
    lane.value(Read("x", (Read("at", (R,)), C)))
    (load,) = lets(lane, ir.Load)
    assert load.mask is not None
    (inside,) = (v for v in lets(row, ir.Op) if v.function == "less")
    assert {v.type for v in inside.arguments} == {ir.Type(uint64)}  # below 0 is a large number


def test_scalars_when_there_are_no_lanes() -> None:
    context = Context(TYPES, SizeParameters(), Machine())
    point = ScalarLowering(context, {n: ir.Var(ir.INDEX, n) for n in ("r", "c")})
    assert point.value(op("exp", X)).type == ir.Type(float32)


def test_local_reads_are_answered_by_the_template() -> None:
    _, row, _ = levels()
    register = ir.Var(ir.Type(float32, 8), "register")
    lane = row.inner(
        {"c": ir.Var(ir.INDEX, "c")},
        lane="c",
        lanes=8,
        local=lambda read: register if read.tensor == "x" else None,
    )
    assert lane.value(X) == register
    assert lane.value(Read("g", (C,))) != register


def test_scalar_refuses_what_differs_from_lane_to_lane() -> None:
    _, _, lane = levels()
    with pytest.raises(InternalError, match="lane to lane"):
        lane.scalar(X)


def test_offsets_are_affine_forms_at_lane_zero() -> None:
    from anydim.lang.tree.affine import address

    _, _, lane = levels()
    form = address(X, TYPES["x"].shape)
    assert form is not None
    offset = lane.offset(form)
    assert offset.type == ir.INDEX
    assert lane.offset(form) == offset


def test_parameters_are_numbered_by_first_use() -> None:
    sizes = SizeParameters()
    assert sizes.value(as_size(3)) == ir.Const(ir.INDEX, 3)
    assert [sizes.value(s) for s in (N, M, N)] == [
        ir.Var(ir.INDEX, name) for name in ("p0", "p1", "p0")
    ]
    assert sizes.sizes == (N, M) and sizes.names == ("p0", "p1")


@pytest.mark.parametrize(
    ("expr", "dtype"),
    [
        (Literal(2), None),
        (op("add", X, Literal(2)), float32),
        (op("add", Read("k", (C,)), Literal(2)), int32),
        (op("mul", Read("k", (C,)), X), float64),
        (op("less", X, Literal(0)), boolean),
        (op("select", op("less", X, Literal(0)), Literal(1), X), float32),
        (Cast(float32, C), float32),
        (C, int64),
    ],
)
def test_types(expr: Expr, dtype: object) -> None:
    assert dtype_of(expr, TYPES) == dtype


def test_common_type_of_literals_is_open() -> None:
    assert common_dtype((Literal(1), Literal(2.5)), TYPES) is None


def test_linear_forms() -> None:
    quotient = op("floordiv", C, Literal(3, int64))
    form = linear(op("add", op("mul", quotient, SizeTerm(N)), op("sub", R, Literal(2, int64))))
    assert form.affine.stride("r") == 1 and form.affine.constant == -2
    assert form.atoms == ((quotient, N),)
    assert free_axes(quotient) == {"c"}


def limited(low: float, high: float, to: object = int32) -> Expr:
    inner = op("max", X, Literal(low, float32))
    return Cast(to, op("min", inner, Literal(high, float32)))  # type: ignore[arg-type]


def test_a_limited_number_is_converted_without_questions() -> None:
    for expr, fits in (
        (limited(0.0, 255.0), True), (limited(-128.0, 127.0, int8), True),
        (limited(0.0, 255.0, int8), False), (limited(-1.0, 7.0, uint8), False),
        (limited(0.0, 2.0**31), False),
    ):  # fmt: skip
        _, _, lane = levels()
        lane.value(expr)
        (convert,) = lets(lane, ir.Convert)
        assert isinstance(convert, ir.Convert) and convert.fits == fits
