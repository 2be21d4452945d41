"""The variables of a contraction's loops."""

from __future__ import annotations

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import variables


@dataclass(frozen=True)
class LoopVariables:
    """Variables of the loops, by name.

    Row tiles have `even` rows, the first `taller` ones one more. A block has the tiles from `tile0`
    to `tile1` and `width` columns from `column0` on; a group the tiles from `tile2` to `tile3`, a
    row tile `rows` rows from `row0` on. A piece of k has `length` steps from `k0` on, of which
    `steps` from `k_at` on are valid.
    """

    a_at: ir.Var
    b_at: ir.Var
    c_at: ir.Var
    chunk: ir.Var
    column0: ir.Var
    even: ir.Var
    first_row: ir.Var
    k0: ir.Var
    k_at: ir.Var
    length: ir.Var
    row0: ir.Var
    rows: ir.Var
    steps: ir.Var
    sums_at: ir.Var
    taller: ir.Var
    tile0: ir.Var
    tile1: ir.Var
    turn: ir.Var
    width: ir.Var


LOOP = variables(LoopVariables)
