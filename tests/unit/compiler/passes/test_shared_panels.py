"""Promise: a matrix that is gathered by rows and multiplied by is held once, in the same bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy
import pytest

import anydim as ad
from anydim.base.dtypes import float32, int64
from anydim.compiler.frontends.builder import Builder
from anydim.compiler.passes import shared_panels

DEPTH = 32


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_panels, "LEAST", 0)


def tied(rows: int, kind: str, is_tied: bool = True) -> tuple[Any, numpy.ndarray]:
    """A graph of a gather and a product of one table, and the table in float32."""
    random = numpy.random.default_rng(rows)
    g = Builder("tied")
    ids = g.input("ids", int64, (g.dim("n"),))
    x = g.input("x", float32, (g.dim("m"), DEPTH))
    if kind == "float32":
        table = random.normal(size=(rows, DEPTH)).astype(numpy.float32)
        held = g.constant(table)
        other = held if is_tied else g.constant(table.copy())
        g.output("rows", g.gather(held, ids, axis=0))
        g.output("y", g.matmul(x, g.transpose(other)))
        return g.graph(), table
    most = 8 if kind == "int4" else 128
    codes = random.integers(-most, most, (rows, DEPTH)).astype(numpy.int8)
    scales = random.uniform(0.5, 1.5, (rows, DEPTH // 16)).astype(numpy.float32)
    given = codes.astype(ml_dtypes.int4) if kind == "int4" else codes
    pairs = [(g.constant(given), g.constant(scales))] * 2
    if not is_tied:
        pairs[1] = g.constant(given.copy()), g.constant(scales.copy())
    (q, s), (q2, s2) = pairs
    own = g.gather(s, ids, axis=0)
    wide = g.reshape(
        g.expand(g.unsqueeze(own, axes=(-1,)), shape=(*own.shape, 16)), shape=(own.shape[0], DEPTH)
    )
    g.output("rows", g.cast(g.gather(q, ids, axis=0), to=float32) * wide)
    g.output("y", g.matmul(x, g.transpose(g.dequantize(q2, s2, axis=1, block=16))))
    return g.graph(), codes.astype(numpy.float32) * numpy.repeat(scales, 16, axis=1)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ("float32", "int8", "int4"))
@pytest.mark.parametrize("rows", (1, 2, 15, 63, 64, 65, 257))
def test_rows_and_products_have_their_bits(rows: int, kind: str) -> None:
    random = numpy.random.default_rng(0)
    (graph, table), (apart, _) = tied(rows, kind), tied(rows, kind, False)
    model, other = ad.compile(graph, threads=1), ad.compile(apart, threads=1)
    for count in (0, 1, 5, 130):
        given = {
            "ids": random.integers(-rows, rows, count),
            "x": random.normal(size=(3, DEPTH)).astype(numpy.float32),
        }
        found, expected = model(**given), other(**given)
        assert numpy.array_equal(found["rows"], table[given["ids"]])
        assert found["y"].tobytes() == expected["y"].tobytes()
    held, both = model.executable.constant_bytes, other.executable.constant_bytes
    if rows >= 257:
        assert held <= 0.6 * both


@pytest.mark.parametrize("wrong", (65, -66, 1 << 40))
def test_rows_that_are_missing_are_errors(wrong: int) -> None:
    given = {"ids": numpy.array([0, wrong]), "x": numpy.zeros((1, DEPTH), numpy.float32)}
    texts = []
    for is_tied in (True, False):
        with pytest.raises(ad.InputError) as caught:
            ad.compile(tied(65, "float32", is_tied)[0], threads=1)(**given)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_what_is_saved_has_the_matrix_once(tmp_path: Any) -> None:
    graph, table = tied(257, "float32")
    model = ad.compile(graph, threads=1)
    model.save(tmp_path / "tied.anydim")
    loaded = ad.load(tmp_path / "tied.anydim", threads=1)
    assert loaded.executable.constant_bytes < 1.3 * table.nbytes
    assert (tmp_path / "tied.anydim").stat().st_size < 2 * table.nbytes + 100_000
    given = {"ids": numpy.array([256, 0, -1]), "x": table[:4]}
    for name, array in model(**given).items():
        assert array.tobytes() == loaded(**given)[name].tobytes()
