"""Promise: memory is known by formula, is what is taken, and stays within its limit."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.api.model import Model
from anydim.sizes import Dim


def sums(high: int | None, seq: int | None = 64, least: int = 0, **options: object) -> Model:
    """Two values between kernels; 4*batch*seq bytes each."""
    g = ad.Builder("sums")
    batch, seq_size = g.dim("batch", least, high), g.dim("seq", 1, seq)
    x = g.input("x", ad.float32, (batch, seq_size))
    total = g.reduce_sum(x, axes=(1,), keepdims=True)
    g.output("y", g.matmul(g.transpose(g.softmax(x - total), perm=(1, 0)), x))
    return ad.compile(g, **options)


def feed(batch: int, seq: int) -> np.ndarray:
    return np.ones((batch, seq), np.float32)


def test_formula_plan_and_arena_are_one_figure() -> None:
    model = sums(100)
    for batch, seq in ((1, 1), (7, 3), (100, 64), (33, 17)):
        model.trim()
        model(x=feed(batch, seq))
        planned = model.plan(batch=batch, seq=seq)
        assert planned.bytes == model.memory.at(batch=batch, seq=seq) > 0
        assert model.executable.arena_bytes == planned.bytes
        assert model.memory.inputs.evaluate({"batch": batch, "seq": seq}) == planned.input_bytes
        assert model.memory.outputs.evaluate({"batch": batch, "seq": seq}) == planned.output_bytes
    assert model.memory.bound == model.plan(batch=100, seq=64).bytes
    assert model.memory.devices == {"cpu": model.memory.bytes}


def test_a_model_of_one_size_says_so() -> None:
    g = ad.Builder("fixed")
    x = g.input("x", ad.float32, (3, 4))
    g.output("y", x + x)
    model = ad.compile(g)
    assert str(model.memory) == "0 bytes, at most 0 bytes for its only size"
    assert "dims      none" in model.explain()


def test_a_model_above_its_limit_is_refused_when_it_is_compiled() -> None:
    bound = sums(100).memory.bound
    assert bound is not None
    assert sums(100, memory_limit=bound).memory_limit == bound
    with pytest.raises(ad.MemoryLimitError) as caught:
        sums(100, memory_limit=bound - 1)
    text = str(caught.value)
    assert f"sums: a call may take {bound} bytes" in text
    assert f"above the memory limit of {bound - 1} bytes" in text
    assert "up to batch = " in text and "up to seq = " in text and "per_call=True" in text


def test_a_limit_per_call_refuses_the_calls_that_need_more() -> None:
    limit = sums(100).memory.at(batch=10, seq=64)
    model = sums(100, memory_limit=ad.MemoryLimit(limit, per_call=True))
    model(x=feed(10, 64))
    with pytest.raises(ad.MemoryLimitError) as caught:
        model(x=feed(100, 64))
    text = str(caught.value)
    needed = model.memory.at(batch=100, seq=64)
    assert f"a call at batch = 100, seq = 64 takes {needed} bytes" in text
    assert "most lives at 'sums: " in text and "softmax" in text
    assert "up to batch = 10 fits at the other sizes" in text
    assert model.executable.highest_arena_bytes <= limit
    assert np.isfinite(model(x=feed(10, 64))["y"]).all()


def test_without_bounds_calls_are_refused() -> None:
    model = sums(None, None, memory_limit="64 KiB")
    model(x=feed(8, 8))
    with pytest.raises(ad.MemoryLimitError, match="64 KiB"):
        model(x=feed(400, 80))
    with pytest.raises(ad.MemoryLimitError, match="a call at batch = 9, seq = 1"):
        sums(None, None, 9, memory_limit=64)


def test_the_largest_size_that_fits() -> None:
    model = sums(None, 512)
    for limit in (100_000, 1 << 20, 1 << 24):
        found = model.largest("batch", seq=77, memory=limit)
        assert found is not None
        assert model.plan(batch=found, seq=77).bytes <= limit
        assert model.plan(batch=found + 1, seq=77).bytes > limit
    assert model.largest("seq", batch=0, memory="1 GiB") == 512
    assert model.largest("batch", memory="1 MiB") == model.largest("batch", "1 MiB", seq=512)
    with pytest.raises(ad.MemoryLimitError, match="no size of 'seq' fits in 1 bytes"):
        model.largest("seq", batch=1000, memory=1)
    with pytest.raises(ad.DimError, match="did you mean 'batch'"):
        model.largest("batc", memory=1)
    with pytest.raises(ad.DimError, match="'batch' has no size and no upper bound"):
        model.largest("seq", memory="1 MiB")
    with pytest.raises(ad.OptionError, match="there is no limit"):
        model.largest("batch", seq=3)


def test_no_size_is_too_large_for_what_takes_nothing() -> None:
    g = ad.Builder("copy")
    x = g.input("x", ad.float32, (g.dim("n"),))
    g.output("y", g.exp(x))
    assert ad.compile(g).largest("n", memory=0) is None


def test_a_program_of_regions_stays_within_its_limit() -> None:
    g = ad.Builder("found")
    n = g.dim("n", 0, 10_000)
    x = g.input("x", ad.float32, (n,))
    places = g.nonzero(x)
    g.output("y", g.exp(g.gather(x, g.reshape(places, shape=(-1,)), axis=0)))
    model = ad.compile(g, memory_limit=ad.MemoryLimit("8 KiB", per_call=True))
    few, many = np.zeros(400, np.float32), np.ones(5000, np.float32)
    few[7] = 1.0
    np.testing.assert_allclose(model(x=few)["y"], [np.e], rtol=1e-6)
    with pytest.raises(ad.MemoryLimitError, match=r"may take .* above the memory limit of 8192"):
        model(x=many)
    np.testing.assert_allclose(model(x=few)["y"], [np.e], rtol=1e-6)


def test_loaded_models_keep_the_same_limits(tmp_path: object) -> None:
    path = f"{tmp_path}/sums.anydim"
    model = sums(100)
    model.save(path)
    loaded = ad.load(path, memory_limit=model.memory.bound)
    assert loaded.memory == model.memory
    assert loaded.largest("batch", seq=3) == 100
    with pytest.raises(ad.MemoryLimitError, match="a call may take"):
        ad.load(path, memory_limit="1 KiB")
    limit = model.memory.at(batch=10, seq=64)
    limited = ad.load(path, memory_limit=ad.MemoryLimit(limit, per_call=True))
    with pytest.raises(ad.MemoryLimitError, match="a call at batch = 11, seq = 64 takes"):
        limited(x=feed(11, 64))
    assert Dim("batch", 0, 100) in limited.dims.dims
