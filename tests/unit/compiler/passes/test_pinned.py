"""Promise: a dim that weights fix to one number is as good as one declared so."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.compiler.passes.lower import pin_dims
from anydim.sizes import Box, Dim, Guard, as_size
from tests.unit.compiler.passes.graphs import weights


def grouped(declared: bool) -> ad.Model:
    """A convolution in 4 groups; its weights need 32 channels."""
    g = ad.Builder("grouped")
    channels = 32 if declared else g.dim("c", 0, None)
    height, width = g.dim("h", 0, 64), g.dim("w", 0, 64)
    x = g.input("x", ad.float32, (1, channels, height, width))
    g.output("y", g.conv(x, g.constant(weights(32, 8, 3, 3)), pads=(1, 1, 1, 1), groups=4))
    return ad.compile(g.graph())


def test_the_kernel_is_that_of_a_known_number() -> None:
    free, known = grouped(False), grouped(True)
    for height, width in ((1, 1), (7, 9), (17, 33)):
        x = numpy.random.default_rng(0).standard_normal((1, 32, height, width), numpy.float32)
        assert free(x=x)["y"].tobytes() == known(x=x)["y"].tobytes()
    assert "convolution(" in free.show("schedule")


def test_another_number_is_told_as_before() -> None:
    model = grouped(False)
    assert model.dims.dim("c").hi is None
    with pytest.raises(ad.DimError, match="x has the channels of w times the groups"):
        model(x=numpy.ones((1, 30, 5, 5), numpy.float32))


def test_only_what_a_box_allows_is_pinned() -> None:
    box = Box.of(Dim("a", 0, 10), Dim("b"), Dim("c", 2, None))
    a, b, c = map(as_size, "abc")
    guards = [Guard(a, "==", as_size(3), ""), Guard(as_size(4), "==", b, ""),
              Guard(c, "==", as_size(1), ""), Guard(a + b, "==", as_size(7), "")]  # fmt: skip
    assert str(pin_dims(box, guards)) == "a=3..3, b=4..4, c=2.."
