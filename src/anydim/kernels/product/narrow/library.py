"""What no model changes of products with narrow weights: a few rows times a panel of columns.

    c[i, j] = sum over blocks of scale[block, j] * sum over k of the block of a[i, k] * w[k, j]

Weights become floats in registers: bytes by conversion, fields of 4 bits where they lie in their
word. Field f of a word is 16^f times its number there, so `a` comes divided by that (by a power of
two: exactly). It counts from 8, so 8 times the sum of `a` over the block is taken off.

Many rows have the weights made floats once, by `decode`, and read those: the same sums in the same
order. One set of sums serves all rows: their bits do not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from anydim.base.dtypes import float32, int8, int32
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.product.narrow.form import FIELDS
from anydim.kernels.write.arithmetic import compare, constant, loop, plus, times, variable
from anydim.kernels.write.values import number, operate, splat

SCALARS = ("groups", "block", "a_row", "sums_row", "more")
MIDDLE = 8  # what a field of 4 bits holds for 0
HIGHEST = FIELDS - 2  # the last field that is read where it lies: the next one has the sign


@dataclass(frozen=True)
class NarrowTile:
    """Weights of `bits`, panels of `vectors`; k in steps of `step`; heights of row tiles.

    `wide` are the heights of tiles that read weights as `decode` left them.
    """

    bits: int
    vectors: int
    lanes: int
    step: int
    heights: tuple[int, ...]
    wide: tuple[int, ...]

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    @property
    def prefix(self) -> str:
        return f"narrow{self.bits}_{self.vectors}x{self.lanes}_{self.step}"


def name_of(tile: NarrowTile, height: int, wide: bool = False) -> str:
    """The function for row tiles of a height."""
    return f"{tile.prefix}_{height}{'wide' if wide else 'rows'}"


def decode_name(tile: NarrowTile) -> str:
    """The function that makes floats of a part of a panel: (w, to, k)."""
    return f"{tile.prefix}_decode"


@lru_cache(maxsize=32)
def narrow_libraries(tile: NarrowTile) -> tuple[ir.Library, ...]:
    """A library for each height, so that threads share the compiling."""
    rows = [*((h, False) for h in tile.heights), *((h, True) for h in tile.wide)]
    made = {name_of(tile, *each): _Rows(tile, *each).function for each in rows}
    made[decode_name(tile)] = _Weights(tile).decode
    return tuple(
        ir.Library(name, partial(_functions, function), identity=name)
        for name, function in made.items()
    )


def _functions(function: Callable[[], ir.Function]) -> tuple[ir.Function, ...]:
    return (function(),)


@dataclass(frozen=True)
class _Weights:
    """Writes how weights become floats."""

    tile: NarrowTile

    @property
    def vector(self) -> ir.Type:
        return ir.Type(float32, self.tile.lanes)

    @property
    def whole(self) -> ir.Type:
        return ir.Type(int32, self.tile.lanes)

    def words(self) -> list[ir.Step]:
        """The words of step `at`, where a step is one."""
        if self.tile.bits != 4:
            return []
        first = times(variable("at"), self.tile.width // FIELDS)
        return [
            ir.Let(f"word{j}", ir.Load(self.whole, "w", plus(first, j * self.tile.lanes)))
            for j in range(self.tile.vectors)
        ]

    def weight(self, u: int, j: int) -> ir.Value:
        """Vector j of the weights of step at + u."""
        return ir.Convert(self.vector, self._integers(u, j))

    def _integers(self, u: int, j: int) -> ir.Value:
        lanes = self.tile.lanes
        if self.tile.bits == 8:
            return ir.Load(ir.Type(int8, lanes), "w", self._place(u, j))
        word: ir.Value = ir.Var(self.whole, f"word{j}")
        if u > HIGHEST:
            word = operate("shift_right", word, number(int32, 4 * (u - HIGHEST), lanes))
        mask = number(int32, 15 << 4 * min(u, HIGHEST), lanes)
        return operate("bit_and", word, mask)

    def _place(self, u: int, j: int) -> ir.Value:
        """Where vector j of step at + u is, of numbers that lie one by one."""
        row = times(plus(variable("at"), u), self.tile.width)
        return plus(row, j * self.tile.lanes)

    def decoded(self, u: int, j: int) -> ir.Value:
        """The vector as `decode` left it."""
        return ir.Load(self.vector, "w", self._place(u, j))

    def decode(self) -> ir.Function:
        """Weights as floats, where they lie in their words: a power of two for each field."""
        step = self.tile.step
        stores = [
            ir.Store("to", self._place(u, j), self.weight(u, j))
            for u in range(step)
            for j in range(self.tile.vectors)
        ]
        return ir.Function(
            decode_name(self.tile),
            (ir.Pointer("w", int8), ir.Pointer("to", float32), ir.Scalar("k")),
            (loop("at", 0, variable("k"), step, *self.words(), *stores),),
            public=True,
        )


@dataclass(frozen=True)
class _Rows:
    """Writes the function for a height; `wide`: of weights that `decode` has made floats."""

    tile: NarrowTile
    height: int
    wide: bool

    @property
    def vector(self) -> ir.Type:
        return ir.Type(float32, self.tile.lanes)

    def function(self) -> ir.Function:
        zero = number(float32, 0, self.tile.lanes)
        zeros = tuple(ir.Store("c", at, zero) for _, _, at in self._places())
        return ir.Function(
            name_of(self.tile, self.height, self.wide),
            (
                ir.Pointer("a", float32),
                ir.Pointer("sums", float32),
                ir.Pointer("w", float32 if self.wide else int8),
                ir.Pointer("s", float32),
                ir.Pointer("c", float32),
                *map(ir.Scalar, SCALARS),
            ),
            (
                ir.If(compare("equal", variable("more"), 0), zeros),
                loop(
                    "group", 0, variable("groups"), 1,
                    *(ir.Declare(f"t{i}_{j}", zero) for i, j, _ in self._places()),
                    ir.Let("first", times(variable("group"), variable("block"))),
                    loop("k", 0, variable("block"), self._step, *self._steps()),
                    *self._added(),
                ),
            ),
            public=True,
        )  # fmt: skip

    @property
    def _step(self) -> int:
        """Of decoded weights two at a time: LLVM moves loads up, and registers run out."""
        return min(self.tile.step, 4) if self.wide else self.tile.step

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
        weights = _Weights(self.tile)
        steps: list[ir.Step] = [ir.Let("at", plus(variable("first"), variable("k")))]
        steps += [] if self.wide else weights.words()
        for u in range(self._step):
            for j in range(self.tile.vectors):
                made = weights.decoded(u, j) if self.wide else weights.weight(u, j)
                steps.append(ir.Let(f"w{u}_{j}", made))
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
                own = plus(times(variable("sums_row"), i), variable("group"))
                rows = splat(ir.Load(ir.Type(float32), "sums", own), lanes)
                total = operate("fma", rows, number(float32, -MIDDLE, lanes), total)
            old = ir.Load(self.vector, "c", at)
            new = operate("fma", ir.Var(self.vector, f"s{j}"), total, old)
            steps.append(ir.Store("c", at, new))
        return steps
