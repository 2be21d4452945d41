"""Promise: what is compiled is found by content: models by their parts, weights by their bytes.

Weights are stand-ins of torch's, which need no torch.
"""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim import sentence_transformers
from anydim.api.program_cache import load_or_compile, load_or_compile_at, path_of_parts
from anydim.base import settings
from anydim.deploy.load import LoadedModel
from anydim.sentence_transformers import _Weights

X = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}


def made() -> ad.Model:
    g = ad.Builder("kept")
    x = g.input("x", ad.float32, (g.dim("n"), 3))
    g.output("y", g.matmul(x, np.arange(60_000, dtype=np.float32).reshape(3, 20_000)))
    return ad.compile(g)


def never() -> ad.Model:
    pytest.fail("compiled again")


@pytest.fixture
def cached(tmp_path: Path) -> Iterator[Path]:
    with settings.override(cache_dir=tmp_path, use_cache=True):
        yield tmp_path


# ---- kept models -----------------------------------------------------------------------------


def test_another_process_finds_the_file(cached: Path) -> None:
    path = path_of_parts(["some", memoryview(b"parts")])
    first = load_or_compile_at(path, made)(**X)["y"]
    assert path is not None and Path(path).is_file()
    for found in (load_or_compile(["some", b"parts"], never), load_or_compile_at(path, never)):
        assert isinstance(found, LoadedModel) and (found(**X)["y"] == first).all()
    with settings.override(use_cache=False):  # whoever knows the file needs no cache
        assert (load_or_compile_at(path, never)(**X)["y"] == first).all()
        assert path_of_parts(["some", b"parts"]) is None
        assert isinstance(load_or_compile_at(None, made), ad.Model)
    assert len(list(Path(path).parent.iterdir())) == 1  # written beside, then renamed


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("damage", ["weight", "short", "empty"])
def test_a_damaged_file_is_made_again(cached: Path, damage: str) -> None:
    path = path_of_parts(["some"])
    expected = load_or_compile_at(path, made)(**X)["y"]
    assert path is not None
    file = Path(path)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.unlink()  # it is mapped
    file.write_bytes({"weight": bytes(data), "short": bytes(data[:-10]), "empty": b""}[damage])
    again = load_or_compile_at(path, made)
    assert isinstance(again, ad.Model) and (again(**X)["y"] == expected).all()
    assert (load_or_compile_at(path, never)(**X)["y"] == expected).all()


# ---- weights ---------------------------------------------------------------------------------


class Tensor:
    """A tensor: where it lies, its version, its bytes."""

    def __init__(self, data: Any) -> None:
        self.data, self._version = np.array(data, np.float32), 0

    def data_ptr(self) -> int:
        return int(self.data.ctypes.data)

    def is_inference(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        self.data[...] = data
        self._version += 1


class Module:
    """A module with the tables that torch's have."""

    def __init__(self, *children: Module, **weights: Tensor) -> None:
        self._parameters: dict[str, Tensor | None] = {**weights, "bias": None}
        self._buffers: dict[str, Tensor | None] = {}
        self._modules = {str(number): child for number, child in enumerate(children)}

    def modules(self) -> Iterator[Module]:
        yield self
        for child in self._modules.values():
            yield from child.modules()


class Counted:
    """How often contents were compared."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, module: Module) -> Iterator[tuple[str, memoryview]]:
        self.count += 1
        for number, each in enumerate(module.modules()):
            for name, tensor in each._parameters.items():
                if tensor is not None:
                    yield f"{number}.{name} {tensor.data.shape}", tensor.data.data.cast("B")


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Counted:
    found = Counted()
    monkeypatch.setattr(sentence_transformers, "_contents", found)
    return found


def net() -> Module:
    return Module(Module(weight=Tensor([1, 2, 3])), Module(weight=Tensor([[4, 5]])))


def known(weights: _Weights) -> bool:
    """Whether they are, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return weights.are_known()


def test_contents_are_compared_when_something_moved(compared: Counted) -> None:
    module = net()
    weights = _Weights(module)
    for _ in range(3):
        assert known(weights)
    assert compared.count == 1
    module._modules["0"]._parameters["weight"] = Tensor([1, 2, 3])  # elsewhere
    for _ in range(3):
        assert known(weights)
    assert compared.count == 2
    module._modules["1"] = Module(weight=Tensor([[4, 5]]))
    for _ in range(3):
        assert known(weights)
    assert compared.count == 3


@pytest.mark.parametrize("how", ["written", "tensor", "module", "gone", "shape"])
def test_other_contents_warn_once(compared: Counted, how: str) -> None:
    module = net()
    weights, child = _Weights(module), module._modules["0"]
    if how == "written":
        child._parameters["weight"].write([1, 2, 4])  # type: ignore[union-attr]
    elif how == "tensor":
        child._parameters["weight"] = Tensor([1, 2, 4])
    elif how == "module":
        module._modules["0"] = Module(weight=Tensor([1, 2, 4]))
    elif how == "gone":
        child._parameters["weight"] = None
    else:
        child._parameters["weight"] = Tensor([[1, 2, 3]])
    with pytest.warns(RuntimeWarning, match="weights have changed"):
        assert not weights.are_known()
    assert not known(weights)
    child._parameters["weight"], module._modules["0"] = Tensor([1, 2, 3]), child
    assert known(weights)  # back again


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_knows_the_content(compared: Counted, copied: Any) -> None:
    module = net()
    weights = _Weights(module)
    one, other = copied((module, weights))
    assert other._module is one
    assert known(other) and known(weights) and compared.count == 2
    one._modules["0"]._parameters["weight"].write(0)
    third = copied((one, other))[1]
    for each in (other, third):
        with pytest.warns(RuntimeWarning, match="weights have changed"):
            assert not each.are_known()
    assert known(weights)
