"""Promise: under `pad` a model gives what it gives without, at every size, and says what it did."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.compiler.variants.strategies import Pad, strategy_of
from tests.unit.compiler.passes.test_pad import GRAPHS, dense

SIZES = [(2, 0), (0, 3), (1, 1), (2, 3), (3, 16), (1, 17), (2, 31), (2, 32), (1, 2)]


def builder(name: str) -> ad.Builder:
    g = ad.Builder(name)
    b, s = g.dim("b", 0, 4), g.dim("s", 0, 32)
    x, ids = g.input("x", ad.float32, (b, s, 8)), g.input("ids", ad.int64, (b, s))
    if name == "running":
        y = dense(g, g.cum_sum(dense(g, dense(g, x)), axis=1), 1)
    else:
        y = GRAPHS[name](g, x, ids)
    g.output("y", y)
    return g


def arrays(b: int, s: int) -> dict[str, numpy.ndarray]:
    random = numpy.random.default_rng(100 * b + s)
    ids = random.integers(0, 11, (b, s))
    return {"x": random.standard_normal((b, s, 8), numpy.float32), "ids": ids}


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize(
    ("name", "rule"),
    [("scores", 16), ("scores", "pow2"), ("scores", "bound"), ("looked_up", 16),
     ("running", 16), ("strange_numbers", "bound"), ("merged_rows", "pow2")],
)  # fmt: skip
def test_results_are_those_of_generic_code(name: str, rule: int | str) -> None:
    plain = ad.compile(builder(name), threads=2)
    model = ad.compile(builder(name), threads=2, strategy=Pad({"s": rule}))
    assert model.strategy == Pad({"s": rule})
    for b, s in SIZES:
        given = arrays(b, s)
        came, wanted = model(**given)["y"], plain(**given)["y"]
        assert came.shape == wanted.shape and came.flags.c_contiguous
        # a row alone may be computed in another order
        numpy.testing.assert_allclose(came, wanted, 1e-5, 1e-6)


def test_explain_says_what_is_padded_and_what_is_left() -> None:
    text = ad.compile(builder("looked_up"), strategy="pad(s=16)").explain(details=True)
    assert "pad: s runs to 16*((s + 15)//16) in 1 of 3 launches" in text
    assert "pad: padded copies are made of" in text
    assert "pad: not padded along s, its indices depend on data: looked_up: gather" in text


def test_an_index_out_of_its_table_is_an_error_still() -> None:
    model = ad.compile(builder("looked_up"), strategy="pad(s=16)")
    given = arrays(2, 5)
    given["ids"][1, 4] = 11
    with pytest.raises(ad.InputError, match="11"):
        model(**given)
    given["ids"][1, 4] = 10
    assert model(**given)["y"].shape == (2, 5, 8)


def test_what_lies_behind_the_last_row_is_no_index() -> None:
    """Indices that are computed: of rows of zeros they would be outside of the table."""
    g = ad.Builder("g")
    x = g.input("x", ad.float32, (g.dim("s", 0, 32), 8))
    sums = g.matmul(g.exp(x), g.constant(numpy.ones((8, 8), numpy.float32)))  # 8 where x is 0
    chosen = g.cast(g.reduce_max(sums, axes=(1,)), to="int64")
    table = g.constant(numpy.ones((8, 8), numpy.float32))
    g.output("y", dense(g, dense(g, g.gather(table, chosen)), 1))
    model = ad.compile(g, strategy="pad(s=16)")
    assert model(x=numpy.full((5, 8), -100, numpy.float32))["y"].shape == (5, 8)
    with pytest.raises(ad.InputError, match="8"):
        model(x=numpy.zeros((5, 8), numpy.float32))


def test_a_saved_model_is_padded_too(tmp_path) -> None:  # type: ignore[no-untyped-def]
    model = ad.compile(builder("scores"), threads=1, strategy="pad(s=16)")
    model.save(tmp_path / "m.anydim")
    given, loaded = arrays(2, 7), ad.load(tmp_path / "m.anydim")
    assert numpy.array_equal(loaded(**given)["y"], model(**given)["y"])
    assert loaded.plan(b=2, s=7).arena_bytes == model.plan(b=2, s=7).arena_bytes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pad(t=16)", "pad names dim 't'"),
        ("pad(b=0)", "the pad of 'b' is 0"),
        ("pad(b='pow3')", "the pad of 'b' is 'pow3'"),
        ("pad()", "pad of no dim"),
        ("pad(s=1.5)", "the pad of 's' is 1.5"),
    ],
)
def test_wrong_pads_say_what_is_right(text: str, words: str) -> None:
    with pytest.raises(ad.OptionError) as raised:
        ad.compile(builder("chain"), strategy=text)
    assert words in str(raised.value)


def test_a_bound_has_to_be_there() -> None:
    g = ad.Builder("g")
    x = g.input("x", ad.float32, (g.dim("s", 0), 8))
    g.output("y", dense(g, dense(g, x)))
    with pytest.raises(ad.OptionError, match=r"(?s)'s' has no upper bound to pad to.*dims="):
        ad.compile(g, strategy='pad(s="bound")')


@pytest.mark.parametrize(
    "made", [Pad({"s": 16}), Pad({"s": "pow2", "b": "bound"}), Pad({"x.2": 8})], ids=str
)
def test_a_pad_is_what_it_prints(made: Pad) -> None:
    assert strategy_of(str(made)) == made
    assert hash(made) == hash(strategy_of(str(made)))


def test_a_padded_model_may_have_bodies_beside() -> None:
    model = ad.compile(builder("scores"), threads=1, strategy="pad(s=16)")
    wanted = model(**arrays(2, 7))["y"]
    with pytest.raises(ad.OptionError, match="applies to a whole model"):
        model.serve_by("pad(s=8)")
    model.serve_by("pad(s=16)")
    assert numpy.array_equal(model(**arrays(2, 7))["y"], wanted)
