"""Promise: groups of ordered steps match the template of loop nests alone; no other one raises.

A search for variants asks every template, not the first one that matches.
"""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.base import settings
from anydim.compiler.passes import schedule

CASES = (
    ("def f(float(T,C) x) -> (y) { for t in 0:T { y(t,c) = x(t,c) + 0.5 * (y(t-1,c) else 0.0) } }",
     numpy.ones((3, 2), numpy.float32)),
    ("def f(double(T) x) -> (y) { for t in 0:T { y(t) = max(y(t-1) else 0.0, x(t)) } }",
     numpy.ones(3)),
)  # fmt: skip


@pytest.mark.parametrize("text, x", CASES)
def test_other_templates_do_not_match(
    text: str, x: numpy.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: Any = schedule.Schedule
    own, matching = kind._launch, list[str]()

    def launch(self: Any, group: Any, box: Any, constants: Any, *rest: Any) -> Any:
        if group.steps:
            matching.extend(
                each.name for each in self.templates
                if each.match(group, box, self.machine, frozenset(constants)) is not None
            )  # fmt: skip
        return own(self, group, box, constants, *rest)

    monkeypatch.setattr(kind, "_launch", launch)
    with settings.override(keep_programs=False):
        ad.define(text).f(x)
    assert matching and set(matching) == {"loop_nest"}
