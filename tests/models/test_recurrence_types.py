"""Promise: compiled recurrences of every element type have the type and the bits that they mean.

By `ad.define`, on the command line, as a node of a graph and from a saved file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  numpy knows bfloat16
import numpy as np
import pytest
from click.testing import CliRunner

import anydim as ad
from anydim.cli.app import main
from anydim.lang.surface.parser import parse
from anydim.lang.surface.printer import print_definition
from tests.fuzz.typed_texts import SHARES, means, same, values
from tests.unit.lang.recurrences import FORMS, TYPES, Form
from tests.unit.lang.test_recurrence_types import group_of

SIZES = (0, 1, 2, 7, 23, 61)
PLAIN = [form for form in FORMS if not (form.second or form.logic)]
SOME = [*((PLAIN[0], dtype) for dtype in TYPES), *zip(PLAIN[1:], (*TYPES, *TYPES))]
TEXT = "def f(T(N) x) -> (y) { for t in 0:N { y(t) = (y(t - 1) else 0) + x(t) } }"


def check_compiled(form: Form, *dtypes: str) -> None:
    definition = form.definition
    text = f"{form.more}\n{print_definition(definition)}"
    function = ad.define(text, threads=1)[form.name]
    group = group_of(definition, *dtypes)
    given = dict(zip("xz", dtypes))
    plane = any(len(dims) > 1 for dims in form.dims.values())
    for n in SIZES[: 4 if plane else None]:
        arrays = values(given, n, 0, "N")
        expected = means(definition, group, arrays, n)
        found = function(*arrays)
        for name, one, two in zip(
            form.results, found if len(form.results) > 1 else [found], expected
        ):
            share = SHARES.get(one.dtype.name, 0.0)
            assert same(one, two, share), (form.name, dtypes, name, n, one, two)


@pytest.mark.sampled(most=9)
@pytest.mark.parametrize("form, dtype", SOME, ids=[f"{f.name}-{d}" for f, d in SOME])
def test_some_ways_to_write_one(form: Form, dtype: str) -> None:
    check_compiled(form, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_all_ways_to_write_one(form: Form) -> None:
    for number, dtype in enumerate(["bool"] if form.logic else TYPES):
        check_compiled(form, dtype, *[TYPES[number - 3]] * form.second)


def running(x: np.ndarray) -> Any:
    return np.cumsum(x, dtype=x.dtype)


def drawn(n: int, dtype: str) -> np.ndarray:
    rng = np.random.default_rng(n)
    if dtype == "float64":
        return rng.standard_normal(n)
    ends = np.iinfo(dtype)
    return rng.integers(ends.min, ends.max, n, dtype, endpoint=True)


@pytest.mark.parametrize("dtype", ["int64", "float64", "uint8"])
def test_on_the_command_line(dtype: str, tmp_path: Path) -> None:
    (tmp_path / "running.tc").write_text(TEXT, "utf-8")
    for n in (0, 1, 13):
        x = drawn(n, dtype)
        np.save(tmp_path / "x.npy", x)
        path, out = tmp_path / "running.tc", tmp_path / "out.npz"
        words = ["run", str(path), "--input", f"x={tmp_path / 'x.npy'}", "--output", str(out)]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.output
        y = np.load(out)["y"]
        assert y.dtype == dtype
        np.testing.assert_allclose(y, running(x), rtol=0 if dtype != "float64" else 1e-12)


@pytest.mark.parametrize("dtype", ["int64", "float64", "uint8"])
def test_as_a_node_and_in_a_file(dtype: str, tmp_path: Path) -> None:
    g = ad.Builder("sums")
    x = g.input("x", dtype, ("n",))
    y = g.call(parse(TEXT)["f"], x)
    assert y.dtype.name == dtype
    g.output("y", y + x)
    model = ad.compile(g.graph())
    model.save(tmp_path / "sums.anydim")
    loaded = ad.load(tmp_path / "sums.anydim")
    for n in (0, 1, 5, 47):
        x = drawn(n, dtype)
        with np.errstate(over="ignore"):
            expected = running(x) + x
        for result in (model(x)["y"], loaded(x)["y"]):
            assert result.dtype == dtype
            np.testing.assert_allclose(result, expected, rtol=0 if dtype != "float64" else 1e-12)
