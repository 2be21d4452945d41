"""Promise: the finder of cliffs looks at every operator; what it says follows from its times."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from anydim.compiler.frontends.table import read
from anydim.compiler.graph.nodes import Graph
from bench.cliffs.families import families
from bench.cliffs.family import Family, at, grid, typed
from bench.cliffs.machine import Limits
from bench.cliffs.page import page
from bench.cliffs.running import Found
from bench.cliffs.summary import even, explained, jumps, mean, share
from bench.cliffs.threaded import Pair, earlier, pairs
from tests.ops.cases import CASES

UNSEEN = {
    "steps of training, for which there is no peer here": ("adagrad", "adam", "momentum"),
    "parts of other operators, and never alone": (
        "bit_cast", "cast_exponent", "cast_saturated", "clip", "floor_div", "not_equal",
        "size_tensor", "unpack_bits",
    ),
    "of newer opsets than the peer's": ("cum_prod", "tensor_scatter"),
    "tables of strings, words and trees; bench/trees.py has these": (
        "find_keys", "ngram_counts", "tree_ensemble", "pairwise_coupling",
    ),
    "of com.microsoft or the library alone": ("cached_rows", "inverse", "put", "sort"),
    "once in a model, of numbers alone": ("mel_weights",),
    "of torch and Builders, without an operator of ONNX": (
        "atan2", "erfc", "expm1", "log1p", "nextafter", "rsqrt", "sign_bit", "trunc",
    ),
    "of recursions; bench/structures.py has these": ("call_levels",),
}  # fmt: skip


def used(graph: Graph) -> set[str]:
    """The operators of a graph and of those that its nodes hold."""
    found = {node.operator for node in graph.nodes}
    for node in graph.nodes:
        if node.region is not None:
            found.update(*(used(held) for held in node.region.held.values()))
    return found


def found(name: str, n: int, ours: float, theirs: float, limit: float) -> Found:
    return Found("area", name, {"n": n}, 1, "peer", ours, theirs, ours / theirs, limit, 0, 0)


@pytest.mark.slow
def test_every_operator_is_in_a_family() -> None:
    seen = set().union(*(used(read(family.model())) for family in families()))
    without = {name for names in UNSEEN.values() for name in names}
    assert set(CASES) - seen == without


def test_names_and_sizes_are_told_apart() -> None:
    names = [family.name for family in families()]
    assert len(names) == len(set(names))
    for family in families():
        assert len({tuple(sizes.items()) for sizes in family.sizes}) == len(family.sizes)


def test_types_and_numbers_are_written_into_the_text() -> None:
    (family,) = typed(
        Family("f", "k := T {3} y = Add (x, k)", ("T[n,2] x",), grid(n=(1, 4))), "int64"
    )
    graph = read(family.model())
    assert str(graph.types["x"]) == "int64[n, 2]"
    feeds = family.feeds({"n": 4})
    assert feeds["x"].shape == (4, 2) and feeds["x"].ctypes.data % 64 == 0
    assert at("a b", (1, 2)) == ({"a": 1, "b": 2},)


def test_jumps_are_between_neighbours_that_take_long_enough() -> None:
    rows = [found("f", 1, 5, 5, 1), found("f", 2, 40, 20, 10), found("f", 3, 400, 100, 20),
            found("f", 4, 800, 200, 4000)]  # fmt: skip
    (jump,) = jumps(rows)  # a call of nothing takes 5
    assert (jump.slow.sizes, jump.fast.sizes) == ({"n": 3}, {"n": 2})
    assert jump.ratio == pytest.approx((400 - 5) / 20 / ((40 - 5) / 10))
    assert even([jump]) == 0 and even([replace(jump, ratio=1.5), jump]) == 0.5
    assert mean(rows) == pytest.approx(32 ** (1 / 4))
    assert share(rows) == 0.25


def test_what_a_call_costs_is_that_of_its_family() -> None:
    rows = [found("f", 1, 5, 5, 0.1), found("g", 1, 9, 5, 0.1), found("g", 2, 19, 20, 10),
            found("g", 3, 39, 20, 20),
            found("h", 1, 12, 9, 1), found("h", 2, 12, 9, 2)]  # fmt: skip
    (other, own) = jumps(rows)
    assert own.slow.family == "g" and own.ratio == pytest.approx((39 - 9) / 20 / ((19 - 9) / 10))
    assert other.ratio == pytest.approx(2)  # 12 - 5 of each


@pytest.mark.parametrize("theirs, own", [((10, 20), True), ((10, 70), False), ((6, 5), True)])
def test_a_jump_is_ours_where_the_peer_has_none(theirs: tuple[float, float], own: bool) -> None:
    rows = [found("f", 1, 5, 5, 0.1), found("f", 2, 25, theirs[0], 10),
            found("f", 3, 125, theirs[1], 20)]  # fmt: skip
    (jump,) = jumps(rows)
    assert jump.ratio == pytest.approx(3) == jump.sure
    assert jump.own is own and explained([jump]) == 1 - own


def test_a_jump_that_another_cost_of_a_call_takes_away_is_no_sure_one() -> None:
    """What the smallest size takes may be work; then a tenth is left of the other one."""
    rows = [found("e", 1, 3, 3, 0.1), found("f", 1, 11, 5, 0.2), found("f", 2, 12, 6, 10),
            found("f", 3, 30, 8, 20)]  # fmt: skip
    (jump,) = jumps(rows)
    assert jump.ratio == pytest.approx((30 - 11) / 20 / (1.2 / 10))
    assert jump.sure == pytest.approx((30 - 3) / 20 / ((12 - 3) / 10)) and not jump.own


def test_constants_are_bytes_that_a_call_reads() -> None:
    family = Family(
        "f", "y = MatMul (x, w)", ("float[n,3] x",), (), "", ("float16[3,5] w", "int8[7] b")
    )
    assert family.kept == 2 * 15 + 7


def test_limits_lie_between_those_measured() -> None:
    limits = Limits(1e9, ((1 << 10, 1e9), (1 << 12, 4e9), (1 << 14, 1e9)))
    assert limits.rate(1) == limits.rate(1 << 11) == 4e9  # a small copy is no slower
    assert limits.rate(1 << 13) == pytest.approx(2.5e9)
    assert limits.rate(1 << 20) == 1e9
    assert limits.seconds(0, 1 << 14) == pytest.approx((1 << 14) / 1e9)
    assert limits.seconds(10**6, 1) == pytest.approx(1e-3)
    assert limits.seconds(0, 0, steps=7) == pytest.approx(7e-9)


def test_the_page_needs_nothing_else_and_escapes_what_it_shows() -> None:
    text = page([found("<f>", 1, 5, 5, 1), found("<f>", 2, 10, 5, 1)], "a & b")
    assert "<f>" not in text and "&lt;f&gt;" in text and "a &amp; b" in text
    assert "http" not in text and "<script" not in text


def test_threads_are_measured_where_one_takes_long_and_again_where_two_gained_little() -> None:
    family = Family("add", "y = Add (x, x)", ("float[n] x",), at("n", (3,), (5,)), "elements")
    limits = Limits(1.0, ((1, 1e9), (1 << 20, 1e9)))
    first = list(pairs(family, limits, 0.0, 0.001, {}))
    assert [one.sizes for one in first] == ["n=3", "n=5"]
    assert all(one.alike and one.one > 0 and one.faster == one.one / one.two for one in first)
    assert first[1].memory == pytest.approx(1e6 * 40 / 1e9)
    assert not list(pairs(family, limits, 1e9, 0.001, {}))
    known = {("add", "n=3"): replace(first[0], two=first[0].one / 1.5),
             ("add", "n=5"): replace(first[1], two=first[1].one / 1.9)}  # fmt: skip
    assert [one.sizes for one in pairs(family, limits, 0.0, 0.001, known)] == ["n=3"]


def test_an_earlier_run_is_read_by_family_and_sizes(tmp_path: Path) -> None:
    case = Pair("rows", "sum", "n=3", 200.0, 100.0, 50.0, True)
    path = tmp_path / "threads.json"
    path.write_text(json.dumps([asdict(case)]), "utf-8")
    assert earlier(path) == {("sum", "n=3"): case}
