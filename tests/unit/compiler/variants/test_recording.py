"""Promise: sizes that came are written down, whatever happens to the file, and tuned for."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

import anydim as ad
from anydim.cli.sizes import sizes as show
from anydim.runtime.program.recording import Recorded, read_recorded
from tests.unit.compiler.variants.models import Here, depthwise, here, image

__all__ = ["here"]


def test_sizes_are_counted(tmp_path: Path) -> None:
    model, path = depthwise("generic"), tmp_path / "sizes.jsonl"
    with model.record(path):
        for height in (3, 4, 3, 3):
            model(x=image(height))
        with pytest.raises(ad.OptionError, match="already in progress"):
            model.record(path)
    model(x=image(9))
    with model.record(path):
        model(x=image(4))
    rows = {row.dims["h"]: row for row in read_recorded([path])}
    assert {height: row.count for height, row in rows.items()} == {3: 3, 4: 2}
    assert all(row.dims == {"b": 1, "h": height, "q": 10} for height, row in rows.items())
    assert all(0 < row.least <= row.seconds / row.count for row in rows.values())


def test_a_file_that_was_cut_off_loses_what_was_cut(tmp_path: Path) -> None:
    row = Recorded("m", {"n": 3}, 2, 0.5, 0.2)
    text = f"{row.line()}\n{Recorded('m', {'n': 4}, 1, 0.1, 0.1).line()}\n"
    path = tmp_path / "sizes.jsonl"
    for end in range(len(text)):
        path.write_text(text[:end], "utf-8")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = read_recorded([path])
        assert len(found) <= 2 and all(each in (row, *found[1:]) for each in found[:1])
        assert len(said) == (len(found) < len(text[:end].splitlines()))
    wrong = [
        "[1, 2]",
        "null",
        "{}",
        '{"model": "m", "dims": {"n": -1}}',
        "\0" * 70_000,
        "[" * 50_000,
    ]
    endless = Recorded("m", {"n": 3}, 2, float("inf"), 0.2).line()
    path.write_text(
        text + "\n".join([*wrong, endless, endless.replace("Infinity", "1" * 400)]) + "\n" + text,
        "utf-8",
    )
    with pytest.warns(RuntimeWarning, match="lines say no sizes") as told:
        assert read_recorded([path])[0] == Recorded("m", {"n": 3}, 4, 1.0, 0.2)
    assert len(told) == 1


def test_what_follows_a_line_that_was_cut_off_is_whole(tmp_path: Path) -> None:
    model, path = depthwise("generic"), tmp_path / "sizes.jsonl"
    for cut in (0, 1, 30):
        with model.record(path):
            model(x=image(3))
        path.write_bytes(path.read_bytes()[: -cut or None])
    with model.record(path):
        model(x=image(3))
    with pytest.warns(RuntimeWarning, match="1 of 4 lines"):
        assert [row.count for row in read_recorded([path])] == [3]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is full")
def test_sizes_that_cannot_be_written_are_warned_of_once() -> None:
    model = depthwise("generic")
    wanted = model(x=image(3))["y"].tobytes()
    with (
        pytest.warns(RuntimeWarning, match="not written") as said,
        model.record("/dev/full") as kept,
    ):
        for _ in range(3):
            assert model(x=image(3))["y"].tobytes() == wanted
            kept._write()
    assert len(said) == 1


@pytest.mark.parametrize("path", ["no/folder/sizes.jsonl", "."])
def test_a_file_that_cannot_be_used_is_an_error(path: str, tmp_path: Path) -> None:
    model = depthwise("generic")
    with pytest.raises(ad.OptionError, match="cannot be written"):
        model.record(tmp_path / path)
    with pytest.raises(ad.OptionError, match="cannot be read"):
        model.tune(tmp_path / path)


def test_recorded_sizes_are_shown_and_merged(tmp_path: Path) -> None:
    path, both = tmp_path / "sizes.jsonl", tmp_path / "both.jsonl"
    lines = [Recorded("m", {"n": n}, n, float(n), 0.5).line() for n in (1, 2, 3)]
    path.write_text("\n".join(lines), "utf-8")
    done = CliRunner().invoke(show, [str(path), str(path), "-o", str(both), "--top", "2"])
    assert done.exit_code == 0 and "3 sizes, 12 calls" in done.output
    assert done.output.index("n=3") < done.output.index("n=2") and "n=1" not in done.output
    assert [row.count for row in read_recorded([both])] == [6, 4, 2]


def test_bodies_are_found_for_recorded_sizes(here: Here, tmp_path: Path) -> None:
    model, path = depthwise("generic"), tmp_path / "sizes.jsonl"
    with model.record(path):
        for _ in range(3):
            model(x=image(9))
        model(x=image(4))
    here.ratio, told = 0.5, []
    found = model.tune(path, 60.0, lambda *given: told.append(given))
    assert (found.tried, found.found, found.left) == (6, 4, 0) and not found.whole
    assert [done for done, _, _ in told] == [1, 2, 1, 2, 3, 4]
    assert found.curve[-1][1] == pytest.approx(0.5)
    assert found.saved == pytest.approx(found.seconds / 2) and "50.0 %" in str(found)
    first = here.orders[-1]
    assert first.sizes in {o.sizes for o in here.orders if o.recipe == first.recipe}
    assert len(model.variants()) == 4
    again = depthwise("adaptive")
    here.orders.clear()
    assert again.prepare_recorded(path) == 4
    assert all(order.most is None and order.schedule for order in here.orders)
    none = model.tune(path, 0.0)
    assert (none.tried, none.left) == (0, 6)


def test_sizes_of_another_model_are_no_help(tmp_path: Path) -> None:
    path = tmp_path / "sizes.jsonl"
    path.write_text(Recorded("m", {"n": 3}, 2, 0.5, 0.2).line(), "utf-8")
    with pytest.raises(ad.OptionError, match="no sizes"):
        depthwise("adaptive").prepare_recorded(path)
