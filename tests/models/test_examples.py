"""Promise: the examples run as they are, from the root of a checkout, and say what they checked."""

from __future__ import annotations

import pytest

from examples import detector, retention


def test_retention_agrees_with_numpy_at_every_length(capsys: pytest.CaptureFixture[str]) -> None:
    retention.main()
    printed = capsys.readouterr().out
    assert printed.count("from float64") == len(retention.LENGTHS)
    assert "axis 1 is 7, but dim 'D' is 8" in printed


def test_the_detector_keeps_what_it_should(capsys: pytest.CaptureFixture[str]) -> None:
    detector.main()
    printed = capsys.readouterr().out
    assert printed.count(" kept") == len(detector.COUNTS)
    assert "    0 boxes:   0 kept" in printed
