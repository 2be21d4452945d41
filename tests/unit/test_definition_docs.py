"""Every Python block of docs/definitions.md runs, in order, in one place."""

from __future__ import annotations

import re
from pathlib import Path

import anydim as ad
from anydim.compiler.kernels.templates import TEMPLATES

TEXT = Path(__file__).parents[2].joinpath("docs/definitions.md").read_text("utf-8")


def test_python_blocks_run() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
    assert len(blocks) > 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/definitions.md", "exec"), names)


def test_what_options_are_told_can_be_chosen() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|$", TEXT, re.M))
    for template in TEMPLATES:
        known = table[template.name] if template.knobs else ""
        assert set(template.knobs) <= set(re.findall(r"`(\w+)`", known))


def test_the_verdict_that_is_quoted() -> None:
    loop = "for t in 0:T { y(t,c) = x(t,c) + (y(t-1,c) else 0) }"
    scan = f"def running(float(T,C) x) -> (y) {{ {loop} }}"
    found = str(ad.define(scan).running.options)
    quoted = " ".join(re.search(r"# (t runs in order.*?written)\n\nPlaces", TEXT, re.S)[1].split())
    assert quoted in found
