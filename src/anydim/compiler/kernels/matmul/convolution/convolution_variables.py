"""The variables of a convolution's loops, and the parameters of functions that pack windows."""

from __future__ import annotations

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import variables


@dataclass(frozen=True)
class LoopVariables:
    """Variables of the loops; functions that are called there take those of the same names.

    `y_at` and `height` are of a strip of tiles, from row `m` of the weights on. See `images_of` for
    the images of a panel.
    """

    row0: ir.Var
    rows: ir.Var
    column0: ir.Var
    columns: ir.Var
    block_columns: ir.Var
    y_unit: ir.Var
    w_unit: ir.Var
    channel0: ir.Var
    channels: ir.Var
    first: ir.Var
    x_at: ir.Var
    column: ir.Var
    width: ir.Var
    image: ir.Var
    images: ir.Var
    place: ir.Var
    run: ir.Var
    x_image: ir.Var
    y_image: ir.Var
    k: ir.Var
    span: ir.Var
    row: ir.Var
    m: ir.Var
    height: ir.Var


LOOP = variables(LoopVariables)
LAST, JOINED = (ir.Var(ir.FLAG, name) for name in ("last", "joined"))


@dataclass(frozen=True)
class PackParameters:
    """Parameters of functions that pack windows: `width` columns of `channels` from `x_at` on.

    `images` and `x_image` are count and stride of images of `width` columns each; `seen` and
    `unseen` begin and end the valid taps along the outermost axis.
    """

    x_at: ir.Var
    column: ir.Var
    width: ir.Var
    channels: ir.Var
    images: ir.Var
    x_image: ir.Var
    seen: ir.Var
    unseen: ir.Var


PACK = variables(PackParameters)
VALID_TAPS = PACK.seen, PACK.unseen
