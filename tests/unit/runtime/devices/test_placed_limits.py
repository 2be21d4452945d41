"""Promise: what a call takes on devices counts against its limit, also where data decides sizes."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad

COLUMNS, ROWS = 256, 64
LITTLE = 8192  # bytes of indices
SLICE = 4 * COLUMNS * ROWS  # bytes of a value


def found(devices: dict[str, str], there: str) -> ad.Model:
    """Rows that are not 0: results of the same size on the host and on a device."""
    g = ad.Builder("found")
    x = g.input("x", ad.float32, (g.dim("n"), COLUMNS))
    places = g.reshape(g.nonzero(g.reduce_max(x, axes=(1,))), shape=(-1,))
    rows = g.gather(x, places, axis=0)
    g.output("here", g.neg(rows))
    with g.on(there):
        for number in range(3):
            rows = g.exp(rows)
            g.output(f"there{number}", rows)
    return ad.compile(g, devices=devices)


def given(rows: int, of: int = 1000) -> dict[str, numpy.ndarray]:
    x = numpy.zeros((of, COLUMNS), numpy.float32)
    x[:rows] = 1e-3
    return {"x": x}


@pytest.mark.parametrize("device", ["cpu:1", "null"])
def test_devices_count_in_the_middle_of_a_call(device: str) -> None:
    """At the peak, four values are on the host, results among them, and one is on the device."""
    model = found({"accel": device}, "accel")
    model.limit_memory(ad.MemoryLimit(4 * SLICE + SLICE // 2, per_call=True))
    with pytest.raises(ad.MemoryLimitError, match="above the memory limit"):
        model(**given(ROWS))
    came = model(**given(3))
    if device != "null":
        numpy.testing.assert_array_equal(came["here"], -given(3)["x"][:3])
    model.limit_memory(ad.MemoryLimit(5 * SLICE + LITTLE, per_call=True))
    for rows in (ROWS, 1, 0, ROWS):
        assert model(**given(rows))["there2"].shape == (rows, COLUMNS)


def test_the_limit_holds_call_after_call() -> None:
    """What a call gives back may be taken again, and nothing is counted twice."""
    model = found({"accel": "cpu:1"}, "accel")
    model.limit_memory(ad.MemoryLimit(5 * SLICE + LITTLE, per_call=True))
    for rows in (ROWS, ROWS // 2, 0, ROWS) * 5:
        model(**given(rows))
