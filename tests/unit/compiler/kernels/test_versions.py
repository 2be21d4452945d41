"""Versions: the first whose condition holds runs; a schedule forces one where it is right.

Maxima have the same bits in all versions (`test_options_force_a_version`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest

import anydim as ad
import anydim.compiler.ops
from anydim.base.dtypes import float32
from anydim.base.errors import InternalError, OptionError
from anydim.compiler.graph.operator import operator
from anydim.compiler.kernels.schedule import (
    FORMER_NAMES,
    by_current_name,
    parse_options,
    parse_schedule,
    print_schedule,
)
from anydim.compiler.kernels.versions import Version, versioned_launch
from anydim.compiler.kernels.window_reduction import window_template as sliding
from anydim.compiler.kernels.window_reduction.window_template import WindowReduction
from anydim.compiler.targets.llvm.host import machine as host_machine
from anydim.lang.tree import TensorType
from anydim.sizes import NEVER, Box, Condition, Dim, at_most
from anydim.sizes import parse as size
from tests.unit.compiler.kernels.convolution_cases import convolved
from tests.unit.compiler.kernels.launching import Prepared

BOX = Box.of(Dim("n", 0, 64), Dim("h", 0, 512), Dim("v", 0, 512))
EDGES = (
    (0, 2), (1, 1), (3, 3), (4, 4), (5, 7), (7, 5), (2, 9), (1, 17), (16, 2), (33, 1), (3, 512),
)  # fmt: skip


def _prepared(version: str) -> Prepared:
    shapes = ("n 17 h v", "17 1 3 3", "17")
    types = [TensorType(float32, tuple(map(size, shape.split()))) for shape in shapes]
    attributes = {"groups": 17, "pads": (1, 1, 1, 1)}
    group = operator("conv").instantiate(types, attributes, BOX)
    plain = Prepared(group, [sliding.TEMPLATE], BOX, host_machine())
    assert isinstance(plain.schedule, WindowReduction)
    forced = replace(plain.schedule, version=version)
    return Prepared(group, [sliding.TEMPLATE], BOX, host_machine(), schedule=forced)


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("version", ["any", "strips", "merged_rows", "single_rows", "rows"])
def test_each_version_of_windows_is_right_at_edges(version: str) -> None:
    """Strips add in another order, so the last bit may differ: each is compared with numpy."""
    way, random = _prepared(version), numpy.random.default_rng(3)
    for height, width in EDGES:
        sizes = {"n": 3, "h": height, "v": width}
        x = random.standard_normal((3, 17, height, width)).astype("f4")
        w, b = (random.standard_normal(s).astype("f4") for s in ((17, 1, 3, 3), (17,)))
        exact = convolved(x, w, b, groups=17, pads=(1, 1, 1, 1))
        (found,) = way.outputs([x, w, b], sizes, 2, True)
        numpy.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4)


def test_a_forced_version_runs_wherever_it_is_right() -> None:
    names = {
        name: [n for n, _ in _prepared(name).launch.versions]
        for name in ("strips", "rows", "single_rows", "merged_rows")
    }
    assert names == {
        "strips": ["strips", "merged_rows", "single_rows", "rows"], "rows": ["rows"],
        "single_rows": ["single_rows"], "merged_rows": ["merged_rows", "single_rows", "rows"],
    }  # fmt: skip
    (_, when), *_ = _prepared("strips").launch.versions
    (_, chosen), *_ = _prepared("any").launch.versions
    wide = {"n": 3, "h": 200, "v": 100}
    assert when.holds(wide) and not chosen.holds(wide)
    assert not when.holds({"n": 3, "h": 8, "v": 513})


def test_a_version_that_there_is_not() -> None:
    with pytest.raises(OptionError) as caught:
        _prepared("tiles")
    assert str(caught.value) == (
        "this kernel has no version 'tiles'\n  its versions are "
        "'strips', 'merged_rows', 'single_rows', 'rows'"
    )


def test_the_last_version_serves_all_sizes() -> None:
    def version(when: Condition) -> Version:
        return Version("some", when, WindowReduction(8, 1), lambda _: pytest.fail("is not lowered"))

    for when in (NEVER, at_most(size("n"), 3)):
        with pytest.raises(InternalError, match="serves all sizes"):
            versioned_launch([version(when)], WindowReduction(8, 1))


def test_a_schedule_names_a_version_only_if_it_forces_one() -> None:
    assert print_schedule(WindowReduction(8, 2)) == "window_reduction(lanes=8, vectors=2)"
    forced = WindowReduction(8, 2, "rows")
    assert print_schedule(forced) == "window_reduction(lanes=8, vectors=2, version=rows)"
    assert parse_schedule(print_schedule(forced)) == forced


POOL = """def pool(float(N,C,H,W) x) -> (y) {
  y(n,c,h,v) max=! x(n,c,h + a,v + b) where a in 0:3, b in 0:3
}"""


@pytest.mark.parametrize("version", ["strips", "merged_rows", "single_rows", "rows"])
def test_options_force_a_version(version: str) -> None:
    pool = ad.define(POOL, options={"pool": f"window_reduction(version={version})"}).pool
    for shape in ((2, 16, 5, 6), (1, 16, 3, 3), (1, 16, 9, 70), (0, 16, 4, 4), (1, 3, 4, 600)):
        x = numpy.random.default_rng(1).standard_normal(shape).astype("f4")
        windows = numpy.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
        numpy.testing.assert_array_equal(pool(x), windows.max((-1, -2)))


def test_explain_and_plan_name_the_version() -> None:
    g = ad.Builder("net")
    n, h, w = g.dim("n", 0, 8), g.dim("h", 3, 512), g.dim("w", 3, 512)
    x = g.input("x", ad.float32, (n, 16, h, w))
    g.output("y", g.max_pool(x, kernel=(3, 3)))
    model = ad.compile(g)
    assert "  version rows: elsewhere" in model.explain(details=True)
    assert "  version strips: where " in model.explain(details=True)
    (small,), (large,) = (model.plan(n=1, h=h, w=h).launches for h in (5, 500))
    assert (small.version, small.because) == ("strips", "")
    assert large.version == "rows" and large.because.startswith("strips is for ")
    assert ": rows, since strips is for " in str(model.plan(n=1, h=500, w=500))


@pytest.mark.parametrize("name", sorted(FORMER_NAMES))
def test_former_names_of_schedules_are_accepted_with_a_warning(name: str) -> None:
    text = f"{name}(lanes=4)"
    with pytest.warns(DeprecationWarning, match=f"'{name}' is named '{FORMER_NAMES[name]}'"):
        assert by_current_name(text) == f"{FORMER_NAMES[name]}(lanes=4)"
    assert parse_options(f"{name}()") == parse_options(f"{FORMER_NAMES[name]}()")  # saved recipes


def test_options_accept_a_former_name_of_a_schedule() -> None:
    text = "def turned(float(N,M) x) -> (y) { y(j,i) = x(i,j) }"
    with pytest.warns(DeprecationWarning, match="'transposition' is named 'transpose'"):
        turned = ad.define(text, options={"turned": "transposition(lanes=1)"}).turned
        found = turned(numpy.arange(6, dtype="float32").reshape(2, 3))
    assert found.tolist() == [[0, 3], [1, 4], [2, 5]]
