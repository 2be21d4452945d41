"""Promise: a call of a compiled module returns what the module returns, in its structure."""

from __future__ import annotations

import pickle
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402
from torch.utils._pytree import tree_flatten  # noqa: E402

import anydim as ad  # noqa: E402
from anydim.base.errors import ModelError  # noqa: E402


@dataclass
class Scores:
    logits: Any
    total: Any


class Pair(NamedTuple):
    logits: Any
    total: Any


torch.export.register_dataclass(Scores)

RESULTS = {
    "dataclass": lambda x: Scores(x + 1, x.sum()),
    "named tuple": lambda x: Pair(x + 1, x.sum()),
    "tuple": lambda x: (x + 1, x.sum()),
    "tuple of one": lambda x: (x + 1,),
    "list": lambda x: [x + 1, None, 3, "text"],
    "texts that are names": lambda x: ["output_0", x + 1, "output_1", ("output_1", x * 2)],
    "plain values": lambda x: (x + 1, None, True, 2.5, -3, "", {"output_0": "output_0"}),
    "mapping": lambda x: {"logits": x + 1},
    "mapping with plain values": lambda x: {"logits": x + 1, "a": "logits", "b": None, "c": 3},
    "mapping by other keys": lambda x: {"0": x + 1, 1: x * 2, "x": x.sum()},
    "nested": lambda x: {"logits": (x + 1, [x.sum()]), "inner": {"deep": x * 2}},
    "tuples in a tuple": lambda x: ((x + 1, x * 2), (x.sum(), 4), ()),
    "ordered mapping": lambda x: OrderedDict(b=(x + 1, x * 2), a=[Pair(x.sum(), None)]),
    "complex": lambda x: (torch.fft.rfft(x), Scores(x, x * 2)),
}


class Net(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def compiled(function: Any, **more: Any) -> Any:
    return ad.compile(
        Net(function), (torch.ones(3, 4),), dynamic_shapes=({0: Dim("rows")},), **more
    )


@pytest.mark.parametrize("kind", RESULTS)
def test_structure_of_results(kind: str) -> None:
    model = compiled(RESULTS[kind])
    for rows in (5, 2):
        x = torch.randn(rows, 4)
        for found in (model(x), model(x=x)):
            wanted = RESULTS[kind](x)
            assert type(found) is type(wanted)
            (leaves, structure), (others, expected) = map(tree_flatten, (found, wanted))
            assert structure == expected
            for one, other in zip(leaves, others):
                if isinstance(other, torch.Tensor):
                    torch.testing.assert_close(one, other)
                else:
                    assert one == other


def test_a_tensor_alone_has_a_name() -> None:
    found = compiled(lambda x: x + 1)(torch.ones(2, 4))
    assert list(found) == ["output"]


def test_attributes() -> None:
    found = compiled(RESULTS["dataclass"])(torch.ones(2, 4))
    assert found.logits.shape == (2, 4) and found.total == 8
    logits, total = compiled(RESULTS["tuple"])(torch.ones(2, 4))
    assert logits.shape == (2, 4) and total == 8


def test_state_and_structure() -> None:
    """A module that writes a buffer keeps its structure too."""

    class Running(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x: Any) -> Any:
            self.total.add_(x.sum(0))
            return Scores(x - self.total, self.total * 2)

    net = Running()
    model = ad.compile(net, (torch.ones(3, 4),), dynamic_shapes=({0: Dim("rows")},))
    found = model(torch.ones(5, 4))
    assert found.total.tolist() == [10.0] * 4 and net.total.tolist() == [5.0] * 4


def test_other_methods_name_results() -> None:
    """`outputs`, `map` and a saved file have results by name; a copy has the structure."""
    model = compiled(RESULTS["tuple"])
    assert [spec.name for spec in model.outputs] == ["output_0", "output_1"]
    (found,) = model.map([{"x": torch.ones(2, 4).numpy()}])
    assert list(found) == ["output_0", "output_1"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about its own pickles
        again = pickle.loads(pickle.dumps(model))
    assert isinstance(again(torch.ones(2, 4)), tuple)
    assert model.check(samples=2)


def test_suggested_fixes() -> None:
    """An error of an export keeps the lines that say what to change."""

    class Sum(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x + y

    x, y = torch.randn(3, 6), torch.randn(3, 6)  # torch takes one tensor twice as one input
    shapes = ({0: Dim("b"), 1: Dim("n")}, {0: Dim("c"), 1: Dim("m")})
    with pytest.raises(ModelError) as caught:
        ad.compile(Sum(), (x, y), dynamic_shapes=shapes)
    told = str(caught.value)
    assert "must always be equal" in told and "Suggested fixes:\n  c = b\n  m = n" in told
    assert "draft_export" not in told
