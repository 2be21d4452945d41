"""What no model changes of products with narrow weights: a few rows times a panel of columns.

    c[i, j] = sum over blocks of scale[block, j] * sum over k of the block of a[i, k] * w[k, j]

Weights become floats in registers: bytes by conversion, fields of 4 bits where they lie in their
word. Field f of a word is 16^f times its number there, so `a` comes divided by that (by a power of
two: exactly). It counts from 8, so 8 times the sum of `a` over the block is taken off.

One set of sums serves all rows: their bits do not depend on how many there are.
"""

from __future__ import annotations

from functools import lru_cache, partial

from anydim.base.dtypes import float32, int8, int32
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.product.narrow.form import FIELDS
from anydim.kernels.write.arithmetic import constant, loop, plus, times, variable
from anydim.kernels.write.values import number, operate, splat

SCALARS = ("groups", "block", "a_row")
MIDDLE = 8  # what a field of 4 bits holds for 0
HIGHEST = FIELDS - 2  # the last field that is read where it lies: the next one has the sign


@dataclass(frozen=True)
class NarrowTile:
    """Weights of `bits`, panels of `vectors`; k in steps of `step`; heights of row tiles."""

    bits: int
    vectors: int
    lanes: int
    step: int
    heights: tuple[int, ...]

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    @property
    def prefix(self) -> str:
        return f"narrow{self.bits}_{self.vectors}x{self.lanes}_{self.step}"


def name_of(tile: NarrowTile, height: int) -> str:
    """The function for row tiles of a height."""
    return f"{tile.prefix}_{height}rows"


@lru_cache(maxsize=32)
def narrow_libraries(tile: NarrowTile) -> tuple[ir.Library, ...]:
    """A library for each height, so that threads share the compiling."""
    return tuple(
        ir.Library(name, partial(_functions, tile, height), identity=name)
        for height, name in ((height, name_of(tile, height)) for height in tile.heights)
    )


def _functions(tile: NarrowTile, height: int) -> tuple[ir.Function, ...]:
    return (_Rows(tile, height).function(),)


@dataclass(frozen=True)
class _Rows:
    """Writes the function for a height."""

    tile: NarrowTile
    height: int

    @property
    def vector(self) -> ir.Type:
        return ir.Type(float32, self.tile.lanes)

    def function(self) -> ir.Function:
        zero = number(float32, 0, self.tile.lanes)
        step = self.tile.step
        return ir.Function(
            name_of(self.tile, self.height),
            (
                ir.Pointer("a", float32),
                ir.Pointer("sums", float32),
                ir.Pointer("w", int8),
                ir.Pointer("s", float32),
                ir.Pointer("c", float32),
                *map(ir.Scalar, SCALARS),
            ),
            (
                *(ir.Store("c", at, zero) for _, _, at in self._places()),
                loop(
                    "group", 0, variable("groups"), 1,
                    *(ir.Declare(f"t{i}_{j}", zero) for i, j, _ in self._places()),
                    ir.Let("first", times(variable("group"), variable("block"))),
                    loop("k", 0, variable("block"), step, *self._steps()),
                    *self._added(),
                ),
            ),
            public=True,
        )  # fmt: skip

    def _places(self) -> list[tuple[int, int, ir.Value]]:
        """Rows, vectors and where they lie in c."""
        width, lanes = self.tile.width, self.tile.lanes
        return [
            (i, j, constant(i * width + j * lanes))
            for i in range(self.height)
            for j in range(self.tile.vectors)
        ]

    def _steps(self) -> list[ir.Step]:
        """Steps of k from `k` on."""
        steps: list[ir.Step] = [ir.Let("at", plus(variable("first"), variable("k")))]
        if self.tile.bits == 4:
            words = times(variable("at"), self.tile.width // FIELDS)
            steps += [
                ir.Let(f"word{j}", ir.Load(self._whole, "w", plus(words, j * self.tile.lanes)))
                for j in range(self.tile.vectors)
            ]
        for u in range(self.tile.step):
            for j in range(self.tile.vectors):
                steps.append(ir.Let(f"w{u}_{j}", ir.Convert(self.vector, self._weight(u, j))))
            for i in range(self.height):
                at = plus(times(variable("a_row"), i), variable("at"), u)
                a = ir.Splat(self.vector, ir.Load(ir.Type(float32), "a", at))
                steps.append(ir.Let(f"a{u}_{i}", a))
                for j in range(self.tile.vectors):
                    total = operate(
                        "fma", ir.Var(self.vector, f"a{u}_{i}"), ir.Var(self.vector, f"w{u}_{j}"),
                        ir.Get(self.vector, f"t{i}_{j}"),
                    )  # fmt: skip
                    steps.append(ir.Assign(f"t{i}_{j}", total))
        return steps

    @property
    def _whole(self) -> ir.Type:
        return ir.Type(int32, self.tile.lanes)

    def _weight(self, u: int, j: int) -> ir.Value:
        """Vector j of the weights of step u, as integers."""
        lanes = self.tile.lanes
        if self.tile.bits == 8:
            row = times(plus(variable("at"), u), self.tile.width)
            return ir.Load(ir.Type(int8, lanes), "w", plus(row, j * lanes))
        word: ir.Value = ir.Var(self._whole, f"word{j}")
        if u > HIGHEST:
            word = operate("shift_right", word, number(int32, 4 * (u - HIGHEST), lanes))
        mask = number(int32, 15 << 4 * min(u, HIGHEST), lanes)
        return operate("bit_and", word, mask)

    def _added(self) -> list[ir.Step]:
        """The sums of a block, scaled, added to c."""
        steps: list[ir.Step] = []
        lanes = self.tile.lanes
        for j in range(self.tile.vectors):
            at = plus(times(variable("group"), self.tile.width), j * lanes)
            steps.append(ir.Let(f"s{j}", ir.Load(self.vector, "s", at)))
        for i, j, at in self._places():
            total: ir.Value = ir.Get(self.vector, f"t{i}_{j}")
            if self.tile.bits == 4:
                own = plus(times(variable("groups"), i), variable("group"))
                rows = splat(ir.Load(ir.Type(float32), "sums", own), lanes)
                total = operate("fma", rows, number(float32, -MIDDLE, lanes), total)
            old = ir.Load(self.vector, "c", at)
            new = operate("fma", ir.Var(self.vector, f"s{j}"), total, old)
            steps.append(ir.Store("c", at, new))
        return steps
