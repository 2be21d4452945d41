"""Promise: sizes can be set, and bounds can be what is expected instead of what is possible."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import anydim as ad
from anydim.api.model import Model
from anydim.runtime.devices.cpu import CpuDevice


@pytest.fixture(scope="module")
def wide() -> Model:
    """n copies of exp(x); no input tells n."""
    g = ad.Builder("wide")
    n, m = g.dim("n", 0, 50), g.dim("m", 1, 9)
    x = g.input("x", ad.float32, (m,))
    g.output("y", g.exp(g.expand(g.reshape(x, shape=(1, m)), shape=(n, m))))
    return ad.compile(g)


def test_a_dim_that_no_input_tells_is_set(wide: Model, tmp_path: Path) -> None:
    x = np.arange(4, dtype=np.float32)
    wide.set_sizes()
    with pytest.raises(ad.DimError, match=r"dim 'n' has no size, and no input determines it"):
        wide(x=x)
    wide.save(tmp_path / "wide.anydim")
    for model in (wide, ad.load(tmp_path / "wide.anydim")):
        for n in (3, 0, 50):
            model.set_sizes(n=n)
            np.testing.assert_allclose(model(x=x)["y"], np.exp([x] * n).reshape(n, 4), rtol=1e-6)
            assert model.plan(m=4).output_bytes == 16 * n
    with pytest.raises(ad.OptionError, match="no input determines, and cannot be exported"):
        wide.export(tmp_path / "c")
    with pytest.raises(ad.OptionError, match="check cannot set dim 'n'"):
        wide.check()


@pytest.mark.parametrize("placed", [False, True])
def test_programs_of_regions_ask_too(placed: bool) -> None:
    """Beside sizes that data decides, and on devices."""
    g = ad.Builder("wide")
    n, m = g.dim("n", 0, 50), g.dim("m", 1, 9)
    x = g.input("x", ad.float32, (m,))
    g.output("y", g.exp(g.expand(g.reshape(x, shape=(1, m)), shape=(n, m))))
    g.output("found", g.nonzero(x))
    where = {"devices": {"a": CpuDevice()}, "placement": {"*": "a"}} if placed else {}
    model = ad.compile(g, **where)
    x0 = np.float32([0, 1, 2, 0])
    with pytest.raises(ad.DimError, match=r"dim 'n' has no size, and no input determines it"):
        model(x=x0)
    for size in (3, 0, 50, 3):
        model.set_sizes(n=size)
        for x1 in (x0, np.ones(7, np.float32), np.zeros(1, np.float32)):
            came = model(x=x1)
            np.testing.assert_allclose(
                came["y"], np.exp([x1] * size).reshape(size, len(x1)), rtol=1e-6
            )
            np.testing.assert_array_equal(came["found"].ravel(), np.flatnonzero(x1))
    with pytest.raises(ad.DimError, match="dim 'n' is set to 51"):
        model.set_sizes(n=51)


def test_what_is_set_has_to_fit(wide: Model) -> None:
    with pytest.raises(ad.DimError, match="dim 'n' is set to 51"):
        wide.set_sizes(n=51)
    with pytest.raises(ad.DimError, match="no dim 'k'"):
        wide.set_sizes(k=1)
    with pytest.raises(ad.DimError, match="expected an integer"):
        wide.set_sizes(n="3")  # type: ignore[arg-type]


def test_inputs_agree_with_what_is_set(wide: Model) -> None:
    wide.set_sizes(n=2, m=3)
    assert wide(x=np.ones(3, np.float32))["y"].shape == (2, 3)
    with pytest.raises(ad.DimError, match=r"axis 0 of input 'x' is 4, but m = 3 was set"):
        wide(x=np.ones(4, np.float32))
    assert wide.plan().sizes == {"n": 2, "m": 3}
    wide.set_sizes(n=2)
    assert wide(x=np.ones(4, np.float32))["y"].shape == (2, 4)


@pytest.mark.parametrize("found", [False, True])
def test_a_dim_that_nothing_uses_is_set_for_plans(found: bool) -> None:
    g = ad.Builder("idle")
    n, _ = g.dim("n", 0, 9), g.dim("idle", 1, 5)
    x = g.input("x", ad.float32, (n,))
    g.output("y", g.nonzero(x) if found else g.exp(x))
    model = ad.compile(g)
    model.set_sizes(idle=2)
    assert model(x=np.ones(3, np.float32))["y"].shape == ((1, 3) if found else (3,))
    assert model.plan(n=3).sizes["idle"] == 2
    with pytest.raises(ad.DimError, match="dim 'idle' is set to 6"):
        model.set_sizes(idle=6)


def test_one_of_two_dims_of_an_axis_is_set() -> None:
    g = ad.Builder("pairs")
    n, m = g.dim("n", 1, 20), g.dim("m", 1, 20)
    x = g.input("x", ad.float32, (n * m,))
    g.output("y", g.reduce_sum(g.reshape(x, shape=(n, m)), axes=(1,)))
    model = ad.compile(g)
    model.set_sizes(n=3)
    np.testing.assert_allclose(model(x=np.ones(12, np.float32))["y"], [4, 4, 4])
    with pytest.raises(ad.DimError, match="13"):
        model(x=np.ones(13, np.float32))


def test_data_decides_what_nobody_sets() -> None:
    g = ad.Builder("found")
    x = g.input("x", ad.float32, (g.dim("n", 0, 9),))
    g.output("y", g.nonzero(x))
    model = ad.compile(g)
    decided = next(name for name in model.dims.names if name != "n")
    with pytest.raises(ad.DimError, match="data decides the size"):
        model.set_sizes(**{decided: 1})
    model.set_sizes(n=2)
    with pytest.raises(ad.DimError, match="n = 2 was set"):
        model(x=np.ones(3, np.float32))


def grown(**options: object) -> Model:
    g = ad.Builder("grown")
    x = g.input("x", ad.float32, (g.dim("n"), 8))
    total = g.reduce_sum(x, axes=(1,), keepdims=True)
    g.output("y", g.matmul(g.softmax(x - total), g.constant(np.eye(8, dtype=np.float32))))
    return ad.compile(g, dims={"n": (0, 4)}, **options)


def test_sizes_above_the_bound_run_and_say_so_once() -> None:
    model, x = grown(on_overflow="grow"), np.ones((100, 8), np.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model(x=x[:4])
        assert not caught
        for rows in (5, 100):
            np.testing.assert_allclose(model(x=x[:rows])["y"], np.full((rows, 8), 0.125))
    assert len(caught) == 1
    assert "axis 0 of input 'x' is 5, above the expected bound 4" in str(caught[0].message)
    assert Path(caught[0].filename).name == Path(__file__).name
    assert model.executable.arena_bytes == model.plan(n=100).bytes > model.plan(n=4).bytes


def test_only_what_relied_on_no_bound_grows() -> None:
    g = ad.Builder("bounded")
    g.output("y", g.exp(g.input("x", ad.float32, (g.dim("n", 0, 4),))))
    with pytest.raises(ad.OptionError, match="has the bound 4 and cannot grow"):
        ad.compile(g, on_overflow="grow")
    with pytest.raises(ad.OptionError, match="on_overflow is 'shrink', expected"):
        ad.compile(g, on_overflow="shrink")
    with pytest.raises(ad.OptionError, match="dims were given for a graph"):
        grown()
