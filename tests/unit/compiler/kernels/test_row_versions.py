"""Versions of row kernels: each has the same results wherever it is right.

Reductions add in another order for short rows, so sums are compared with a tolerance and maxima,
elementwise results and long rows bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy
import pytest

from anydim.base.dtypes import float32, int64
from anydim.base.errors import OptionError
from anydim.compiler.kernels.rows import pointwise, row_template
from anydim.compiler.targets.llvm.host import machine as host_machine
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import Group, TensorType
from anydim.sizes import Box, Dim, parse
from tests.unit.compiler.kernels.launching import Prepared, once_for_each_target

BOX = Box.of(Dim("R", 0, 5000), Dim("C", 0, 300000), Dim("S", 1, 5000))
TEMPLATES = [row_template.TEMPLATE, pointwise.TEMPLATE]
TEXTS = {
    "largest": ("def f(float(R,C) x) -> (y) { y(r) max=! x(r,c) }", ("R C",)),
    "scaled": ("def f(float(R,C) x, float(R) s) -> (y) { y(r,c) = x(r,c) * s(r) }", ("R C", "R")),
    "down": ("def f(float(S,C) x) -> (y) { y(c) max=! x(s,c) }", ("S C",)),
    "looked_up": (
        "def f(float(R,C) x, int64(R,C) i) -> (y) { y(r,c) = x(r,i(r,c)) where r in 0:R }",
        ("R C", "R C"),
    ),
}  # fmt: skip
LENGTHS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 65, 300)


def group_of(name: str) -> Group:
    text, shapes = TEXTS[name]
    types = [TensorType(float32, tuple(map(parse, shape.split()))) for shape in shapes]
    if name == "looked_up":
        types[1] = TensorType(int64, types[1].shape)
    return instantiate(parse_definition(text, "f"), types, box=BOX)


@once_for_each_target
def _prepared(name: str, version: str = "any") -> Prepared:
    plain = Prepared(group_of(name), TEMPLATES, BOX, host_machine())
    forced = replace(plain.schedule, version=version)  # type: ignore[type-var]
    return Prepared(plain.group, TEMPLATES, BOX, host_machine(), schedule=forced)


def _arrays(name: str, sizes: Mapping[str, int]) -> list[numpy.ndarray]:
    random = numpy.random.default_rng(4)
    shapes = [[sizes[dim] for dim in shape.split()] for shape in TEXTS[name][1]]
    if name == "looked_up":
        indices = random.integers(0, max(sizes["C"], 1), shapes[1])
        return [random.standard_normal(shapes[0]).astype("f4"), indices]
    return [random.standard_normal(shape).astype("f4") for shape in shapes]


def _names(way: Prepared) -> list[str]:
    return [name for name, _ in way.launch.versions]


def test_versions_of_eachgroup_of() -> None:
    lanes = host_machine().lanes(float32)
    assert _names(_prepared("largest"))[-2:] == ["transposed", "vectors"]
    names = [name for name in _names(_prepared("scaled")) if name != "nontemporal"]
    assert names[-2:] == [f"vector{min(lanes, 16)}", "vectors"]
    assert "unit" in _names(_prepared("scaled"))
    assert _names(_prepared("down")) == ["few_columns", "vectors"]


@pytest.mark.parametrize("name", TEXTS)
def test_versions_have_the_same_bits_wherever_they_are_right(name: str) -> None:
    plain = _prepared(name)
    names = [each for each in _names(plain) if each != "shared"]
    assert len(names) > 1
    for length in LENGTHS:
        sizes = {"R": 7, "C": length, "S": 11}
        arrays = _arrays(name, sizes)
        expected = plain.outputs(arrays, sizes, 2, True)
        for version in names:
            way = _prepared(name, version)
            assert _names(way)[0] == version
            found = way.outputs(arrays, sizes, 2, True)
            for one, other in zip(found, expected):
                assert one.tobytes() == other.tobytes(), (version, length)


def test_a_forced_version_is_taken_wherever_it_is_right() -> None:
    assert _names(_prepared("largest", "vectors")) == ["vectors"]
    (name, when), *_ = _prepared("largest", "transposed").launch.versions
    assert name == "transposed" and when.holds({"C": 2}) and not when.holds({"C": 999})


def test_sharing_rows_is_a_version() -> None:
    plain = _prepared("scaled")
    assert "shared" not in _names(plain)
    group, machine = group_of("largest"), host_machine()
    proposed = row_template.match(group, BOX, machine, frozenset())
    assert proposed is not None
    counts = {}
    for version in ("any", "shared", "vectors"):
        own = replace(proposed, version=version)
        counts[version] = len(list(row_template.before(group, own, BOX, machine)))
        launch = row_template.lower(group, own, BOX, machine, frozenset())
        assert launch.parallel.evaluate({"R": 3, "C": 9000}) == (0 if version == "shared" else 3)
    assert counts == {"any": 2, "shared": 2, "vectors": 0}


def test_an_unknown_version() -> None:
    for version in ("quick", "shared"):
        with pytest.raises(OptionError, match=f"this kernel has no version '{version}'"):
            _prepared("scaled", version)
