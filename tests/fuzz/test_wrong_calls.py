"""Promise: wrong arguments of public functions, and models that lie, give UserErrors alone.

`python -m tests.fuzz.wrong_calls` and `python -m tests.fuzz.hostile` try thousands.
"""

from __future__ import annotations

import sys

import pytest

from tests.fuzz import attributes, hostile, wrong_calls
from tests.unit.compiler.frontends.models import model, node

SIMPLE = (
    model([node("y = Softmax(x)", axis=1), node("z = Transpose(y)", perm=[1, 0])],
          ["x f[n, 4]"], ["z"]),
    model([node("s = Shape(x)"), node("t = Concat(s, c)", axis=0), node("y = Reshape(x, t)")],
          ["x f[n, 3]"], ["y"], c=[1]),
    model([node("y = Slice(x, a, b)"), node("z, i = TopK(y, k)")], ["x f[n, 5]"], ["z", "i"],
          a=[0], b=[2], k=[1]),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory):
    with wrong_calls.workplace(tmp_path_factory.mktemp("wrong")):
        yield


@pytest.mark.parametrize("first", range(0, 150, 50))
def test_wrong_calls(first):
    found = [wrong_calls.wrong_call(seed) for seed in range(first, first + 50)]
    assert [text for text in found if text.startswith("RAW")] == []


def test_attributes_of_other_kinds():
    found = {seed: attributes.fault(seed) for seed in range(2000)}
    assert [f"{attributes.described(seed)}: {text}" for seed, text in found.items() if text] == []


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux counts it")
def test_hostile_models():
    models = [each.SerializeToString() for each in SIMPLE]
    found = dict(hostile.run(range(16), models))
    assert {seed: text for seed, text in found.items() if text.startswith("RAW")} == {}
    assert len(found) == 16
