"""The epilogue loop over a tile of finished sums."""

from __future__ import annotations

from anydim.base.dtypes import DType
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes, loop, quotient, round_down
from anydim.compiler.kernels.codegen.scalar_lowering import Context, ScalarLowering
from anydim.compiler.kernels.ir import constant, greatest, select, variable
from anydim.compiler.kernels.matmul.epilogue import PRODUCT, Output
from anydim.lang.tree import Read

EPILOGUE_SCALARS = ("sums_row", "out_at", "out_row", "row0", "rows", "column0", "columns")


def epilogue_function(
    outputs: tuple[Output, ...], dtype: DType, lanes: int, loops: tuple[str, ...], context: Context,
    pointers: tuple[ir.Pointer, ...],
) -> ir.Function:  # fmt: skip
    """Return the function that writes the outputs of one tile of sums.

    The tile is `rows` x `columns` from (row0, column0) on. `sums` and the outputs at `out_at` point
    to its first element. The parameters are the kernel's `pointers`, then the scalars of
    EPILOGUE_SCALARS, the loops and the sizes in use.

    A load stalls on a preceding masked store whose full vector overlaps it. Where rows end in a
    masked store, the loop therefore visits every `apart`-th row: consecutive rows are more than a
    vector from each other.
    """
    root = ScalarLowering(context, {name: variable(name) for name in loops})
    row = root.inner({"m": variable("row0") + variable("i")})

    def lane(name: str, mask: ir.Value | None) -> ScalarLowering:
        at = variable("i") * variable("sums_row") + variable(name)
        vector = ir.Type(dtype, lanes)

        def sums(read: Read) -> ir.Value | None:
            return ir.Load(vector, "sums", at, mask) if read.tensor == PRODUCT else None

        column = variable("column0") + variable(name)
        return row.inner({"n": column}, lane="n", lanes=lanes, mask=mask, local=sums)

    mask = ir.Var(ir.Type(ir.FLAG.dtype, lanes), "inside")
    whole, cut = lane("j0", None), lane("j1", mask)
    stores = [_stores(outputs, whole, "j0", None), _stores(outputs, cut, "j1", mask)]
    remaining = variable("columns") - variable("j1")
    columns = variable("columns")
    row_distance = quotient(constant(lanes), greatest(columns, 1)) + 2
    body = (
        ir.Let("whole", round_down(columns, lanes)),
        ir.Let("apart", select(variable("whole").equals(columns), 1, row_distance)),
        *root.steps,
        loop(
            "first", 0, variable("apart"), 1,
            loop(
                "i", variable("first"), variable("rows"), variable("apart"),
                *row.steps,
                loop("j0", 0, variable("whole"), lanes, *whole.steps, *stores[0]),
                loop(
                    "j1", variable("whole"), columns, lanes,
                    ir.Let("inside", first_lanes(remaining, lanes)), *cut.steps, *stores[1],
                ),
            ),
        ),
    )  # fmt: skip
    return ir.Function(
        "finish",
        (
            ir.Pointer("sums", dtype, alias=True),
            *pointers,
            *(ir.Scalar(n) for n in (*EPILOGUE_SCALARS, *loops, *context.sizes.names)),
        ),
        body,
    )


def _stores(
    outputs: tuple[Output, ...], lane: ScalarLowering, column: str, mask: ir.Value | None
) -> list[ir.Step]:
    """Compute all values before the stores: an output may reuse the memory of the sums."""
    row = variable("i") * variable("out_row")
    at = variable("out_at") + row + variable(column)
    types = lane.context.types
    values = [(o.tensor, lane.value(o.value, types[o.tensor].dtype)) for o in outputs]
    return [ir.Store(lane.context.buffers[name], at, value, mask) for name, value in values]
