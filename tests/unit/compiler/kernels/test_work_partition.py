"""Promise: however a product is shared, every tile is done once, and no thread gets much more."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.base.dtypes import int64, uint8
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import loop
from anydim.compiler.kernels.ir import variable
from anydim.compiler.kernels.limits import DEFAULTS
from anydim.compiler.kernels.matmul.work_partition import WorkPartition, work_of
from anydim.compiler.targets.evaluated.evaluator import run
from anydim.sizes import NEVER, Size, as_size, parse, parse_condition
from bench.cliffs.family import Family, at

WIDTH, LANES = 12, 4  # of a panel, of a vector
TILES_AND_COLUMNS = [(0, 9), (5, 0), (1, 1), (1, 61), (7, 12), (5, 25), (40, 49)]


class Counting:
    """A kernel that counts the visits of every [outer, inner, tile, panel]."""

    def __init__(self, whole: str) -> None:
        loops = tuple((name, parse(f"{name}_n")) for name in ("outer", "inner"))
        tiles, columns = parse("tiles"), parse("columns")
        work = work_of(parse("outer_n*inner_n"), 6 * tiles, tiles, columns, parse("9"))
        self.sharing = WorkPartition(
            loops, tiles, columns, WIDTH, LANES, parse_condition(whole), work
        )
        self.sizes: dict[str, Size] = {}
        at: ir.Value = variable("outer")
        extents = {"inner": "inner_extent", "tile": "tiles", "panel": "panels"}
        for name, extent in extents.items():
            at = at * variable(extent) + variable(name)
        count = ir.Store("y", at, ir.Load(ir.INDEX, "y", at) + 1)
        panels = loop("panel", variable("first_panel"), variable("stop_panel"), 1, count)
        visit = loop("tile", variable("first_tile"), variable("stop_tile"), 1, panels)
        body = self.sharing.rectangles(self._value, [visit])
        scalars = map(ir.Scalar, (*self.sizes, "start", "stop"))
        parameters = (ir.Pointer("y", int64), *scalars, ir.Pointer("scratch", uint8))
        main = ir.Function("main", parameters, body)
        operands = (ir.Operand("y", int64, written=True),)
        self.kernel = ir.Kernel("counting", operands, tuple(self.sizes), (main,))

    def _value(self, name: str, size: Size) -> ir.Value:
        self.sizes[name] = size
        return variable(name)

    def visits(self, dims: dict[str, int], parts: int) -> list[numpy.ndarray]:
        """Of each part, by [outer, inner, tile, panel]."""
        found = []
        steps = self.sharing.steps.evaluate(dims)
        for part in range(parts):
            panels = self.sharing.panels.evaluate(dims)
            y = numpy.zeros((dims["outer_n"], dims["inner_n"], dims["tiles"], panels), numpy.int64)
            sizes = [size.evaluate(dims) for size in self.sizes.values()]
            start, stop = part * steps // parts, (part + 1) * steps // parts
            run(self.kernel, [y], sizes, start, stop)
            found.append(y)
        return found


@pytest.mark.parametrize("whole", ["never", "always"])
@pytest.mark.parametrize("loops", [(1, 1), (2, 3)])
@pytest.mark.parametrize("tiles, columns", TILES_AND_COLUMNS)
def test_every_tile_is_visited_once(
    whole: str, loops: tuple[int, int], tiles: int, columns: int
) -> None:
    counting = Counting(whole)
    dims = {"outer_n": loops[0], "inner_n": loops[1], "tiles": tiles, "columns": columns}
    for parts in (1, 2, 3, 5, 16):
        visits = sum(counting.visits(dims, parts))
        assert (visits == 1).all()
    assert counting.sharing.steps.evaluate(dims) > 0 or tiles * columns == 0


@pytest.mark.parametrize("tiles, columns", [(1, 61), (40, 49), (3, 1000), (7, 120)])
def test_parts_have_about_as_many_columns(tiles: int, columns: int) -> None:
    counting = Counting("never")
    dims = {"outer_n": 1, "inner_n": 1, "tiles": tiles, "columns": columns}
    widths = numpy.minimum(columns - numpy.arange(0, columns, WIDTH), WIDTH)
    for parts in (2, 3):
        work = [float((visits * widths).sum()) for visits in counting.visits(dims, parts)]
        assert max(work) - min(work) <= 2 * WIDTH + LANES * tiles


@pytest.mark.parametrize("loops, rows, columns, k, least", [
    (4000, 3, 3, 3, 2 * DEFAULTS.product_steps), (1000, 8, 1, 1, 2 * DEFAULTS.product_steps),
    (1, 3, 3, 3, 1),
    (1, 512, 512, 512, 2500),
])  # fmt: skip
def test_many_tiny_products_are_worth_threads(
    loops: int, rows: int, columns: int, k: int, least: int
) -> None:
    tiles = -(-rows // 8)
    work = work_of(*map(as_size, (loops, rows, tiles, columns, k)))
    sharing = WorkPartition((), as_size(tiles), as_size(columns), WIDTH, LANES, NEVER, work)
    assert sharing.steps.evaluate({}) >= least
    for nothing in ((loops, rows, tiles, 0, k), (loops, 0, 0, columns, k), (0, rows, tiles, 1, k)):
        assert work_of(*map(as_size, nothing)).evaluate({}) == 0


def test_elements_that_are_looked_up_are_worth_threads() -> None:
    """128,000 elements at some 0.5 ns each; they counted as operations that vectors do."""
    family = Family(
        "looked up", "y = GatherElements <axis=0> (x, i)", ("float[n,m] x", "int64[k,m] i"),
        at("n m k", (500, 64, 2000)),
    )  # fmt: skip
    model = ad.compile(family.model(), threads=2)
    ((site,),) = (segment.sites for segment in model.program.segments)
    dims = family.sizes[0]
    assert site.parallel.evaluate(dims) >= 8 * as_size(site.grain).evaluate(dims)


def test_a_few_windows_of_a_convolution_have_the_same_bits_however_they_are_shared() -> None:
    """49 windows are a panel and one more, whose sums are added up in another order than others."""
    family = Family(
        "", "y = Conv <pads=[1,1,1,1]> (x, w)", ("float[n,64,h,h] x",), at("n h", (2, 28)), "",
        ("float[64,64,3,3] w",),
    )  # fmt: skip
    feeds = family.feeds(family.sizes[0])
    one, two = (ad.compile(family.model(), threads=threads) for threads in (1, 2))
    expected = one(**feeds)["y"]
    assert numpy.array_equal(two(**feeds)["y"], expected)
    for model in (one, two):
        assert numpy.array_equal(model(feeds["x"][:1])["y"], expected[:1])


def test_scratch_of_threads_lies_apart() -> None:
    """What one core writes was fetched ahead by the other one, which read the lines before it."""
    convolution = "y = Conv <group=8, pads=[1,1,1,1]> (x, w)"
    family = Family("", convolution, ("float[n,16,h,h] x",), (), "", ("float[16,2,3,3] w",))
    found = {}
    for threads in (1, 2):
        program = ad.compile(family.model(), threads=threads).program
        ((site,),) = (segment.sites for segment in program.segments)
        found[threads] = site.scratch.evaluate({"n": 1, "h": 20})
    assert found[2] >= found[1] + 1024 and found[1] > 0
