"""Limits of a machine select versions: no code changes between two records."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy
import pytest

import anydim as ad
from anydim.api import calibration
from anydim.api.calibration_probes import probes
from anydim.base import settings
from anydim.base.cache_folder import limits_path, limits_text
from anydim.base.errors import OptionError
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.limits import DEFAULTS, RANGES, Limits, limits_in_use, parse_limits
from anydim.compiler.passes.recipes import machine_text, parse_machine
from anydim.compiler.targets.processor import describe_processor
from anydim.compiler.targets.targets import target
from tests.unit.compiler.kernels.launching import Prepared
from tests.unit.compiler.kernels.test_row_versions import BOX, TEMPLATES, group_of


def test_limits_print_and_parse() -> None:
    assert str(DEFAULTS) == "" and parse_limits("") == DEFAULTS
    other = replace(DEFAULTS, part_work=100000, few_byte_rows=3)
    assert str(other) == "part_work=100000, few_byte_rows=3"
    assert parse_limits(f" {other} ") == other


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("part_wrok=3", "there is no limit 'part_wrok'\n  did you mean 'part_work'?"),
        ("part_work=0", "limit part_work is '0'\n  give a whole number from 65536 to 1048576"),
        ("part_work", "limit part_work is ''\n  give a whole number from 65536 to 1048576"),
        ("part_work=1e5", "limit part_work is '1e5'\n  give a whole number from 65536 to 1048576"),
        (
            "merged_window_rows=6",
            "limit merged_window_rows is '6'\n  give a whole number from 2 to 3",
        ),
    ],
)
def test_errors_of_limits(text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_limits(text)
    assert str(caught.value) == message


def test_limits_of_a_file_are_moved_into_their_ranges() -> None:
    """A file that another version of the package kept is no error."""
    kept = parse_limits("merged_window_rows=99, gone=3, few_byte_rows=x, part_work=1", kept=True)
    assert kept == Limits(merged_window_rows=3, part_work=RANGES["part_work"][0])


def test_defaults_are_in_their_ranges() -> None:
    assert RANGES.keys() == asdict(DEFAULTS).keys()
    assert all(low <= getattr(DEFAULTS, name) <= high for name, (low, high) in RANGES.items())


def test_probes_are_of_limits_and_their_sizes_lie_on_both_sides() -> None:
    every = probes(target().machine)
    for probe in every:
        usual = getattr(DEFAULTS, probe.limit)
        assert len({probe.first(value, size) for value in (usual, *RANGES[probe.limit])
                    for size in probe.sizes}) == 2, probe.limit  # fmt: skip
    assert RANGES.keys() > {probe.limit for probe in every}


def test_a_machine_prints_its_own_limits() -> None:
    plain, other = Machine(), Machine(limits=Limits(part_work=7, few_byte_rows=3))
    assert "part_work" not in machine_text(plain)
    assert machine_text(other).endswith("part_work=7, few_byte_rows=3")
    for machine in (plain, other):
        assert parse_machine(machine_text(machine)) == machine


def _pool() -> ad.Builder:
    g = ad.Builder("net")
    h, w = g.dim("h", 3, 512), g.dim("w", 3, 512)
    x = g.input("x", ad.float32, (1, 4, h, w))
    g.output("y", g.max_pool(x, kernel=(3, 3), pads=(1, 1, 1, 1)))
    return g


def _version(limits: str, **sizes: int) -> str:
    with settings.override(limits=limits):
        return ad.compile(_pool(), strategy="generic()").plan(**sizes).launches[0].version


def test_limits_of_the_settings_select_versions() -> None:
    wide = {"h": 2 * 256, "w": target().machine.lanes_of(4) // 2}
    usual = _version("", **wide)
    assert _version("merged_window_rows=2", **wide) == "merged_rows" != usual
    assert _version("merged_window_rows=2, single_window_rows=4", h=4, w=300) == "single_rows"
    assert _version("", h=4, w=300) == "rows"


def test_a_processor_level_selects_other_versions() -> None:
    """Rows of 30 elements are short for AVX-512 and long for AVX2: the same code, two records."""
    found = {}
    for name in ("x86-64-v3", "x86-64-v4"):
        launch = Prepared(
            group_of("largest"), TEMPLATES, BOX, describe_processor(name).machine
        ).launch
        found[name] = next(
            version for version, when in launch.versions if when.holds({"R": 3, "C": 30})
        )
    assert found == {"x86-64-v3": "vectors", "x86-64-v4": "transposed"}


def test_calibration_keeps_limits_for_later_compilations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if settings.target != "llvm":
        pytest.skip("limits are those of a processor, not of a target")
    monkeypatch.setattr(calibration, "_ROUNDS", 1)
    with settings.override(cache_dir=str(tmp_path)):
        assert limits_text() == ""
        found = calibration.calibrate_machine()
        assert {each.name for each in found} >= {"few_byte_rows", "merged_window_rows", "part_work"}
        assert all(each.found >= 1 and 0 <= each.saved < 1 for each in found)
        own = parse_limits(limits_text())
        assert own == Limits(**{each.name: each.found for each in found})
        assert target().machine.limits == own
        with settings.override(limits="part_work=99000"):
            assert target().machine.limits == Limits(part_work=99000)
    with settings.override(use_cache=False):
        assert limits_path() is None
        with pytest.raises(OptionError, match="the cache is off"):
            calibration.calibrate_machine()


def test_results_do_not_depend_on_limits() -> None:
    x = numpy.random.default_rng(0).standard_normal((1, 4, 4, 9)).astype("f4")
    outputs = set()
    for limits in ("", "merged_window_rows=2, single_window_rows=4", "single_window_rows=1"):
        with settings.override(limits=limits):
            outputs.add(ad.compile(_pool(), strategy="generic()")(x=x)["y"].tobytes())
    assert len(outputs) == 1


def test_a_program_on_disk_belongs_to_its_limits(tmp_path: Path) -> None:
    """A second compile of the same graph with other limits is another program."""
    found = []
    with settings.override(cache_dir=str(tmp_path), keep_programs=True, use_cache=True):
        for limits in ("", "single_window_rows=4", ""):
            with settings.override(limits=limits):
                model = ad.compile(_pool(), strategy="generic()")
                found.append((model.plan(h=4, w=300).launches[0].version, model.report.seconds))
    assert [version for version, _ in found] == ["rows", "single_rows", "rows"]
    loaded = settings.target == "llvm"  # programs of other targets are not kept
    assert ["load" in seconds for _, seconds in found] == [False, False, loaded]


def test_limits_in_use_are_valid(tmp_path: Path) -> None:
    with settings.override(cache_dir=tmp_path, use_cache=True):
        path = limits_path()
        assert path is not None
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        for kept in (b"few_byte_rows=0, gone=2", b"\xff\xfe=1"):
            Path(path).write_bytes(kept)
            assert limits_in_use() == parse_limits(kept.decode("ascii", "replace"), kept=True)
            assert parse_limits(str(limits_in_use())) == limits_in_use()
    with settings.override(limits="part_work=1"), pytest.raises(OptionError, match="part_work"):
        limits_in_use()
