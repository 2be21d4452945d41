"""Promise: every CPU array of the right dtype is taken, and results are of the kind that came."""

from __future__ import annotations

import sys
import types

import numpy
import pytest

from anydim.base.dtypes import DTYPES
from anydim.base.errors import InputError
from anydim.runtime.arrays import plain, wrapper
from anydim.runtime.exchange import export_array
from anydim.runtime.output_arrays import called_into
from anydim.sizes import Box, Dim
from tests.unit.runtime.program.tiny import adder, executable, spec

RUN = executable(adder(Box.of(Dim("n", 0, 99), Dim("m", 0, 99)), "n", "m"))
A = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)

VIEWS = {
    "transposed": A.T.copy().T,
    "reversed": A[::-1].copy()[::-1],
    "sliced": numpy.repeat(A, 2, axis=1)[:, ::2],
    "broadcast": numpy.broadcast_to(A[:, :1], (3, 4)),
    "other byte order": A.astype(">f4" if sys.byteorder == "little" else "<f4"),
    "not aligned": numpy.frombuffer(b"\0" + A.tobytes(), numpy.uint8)[1:].view("f4").reshape(3, 4),
    "read only": numpy.frombuffer(A.tobytes(), numpy.float32).reshape(3, 4),
    "subclass": A.view(type("Mine", (numpy.ndarray,), {})),
    "lists of numpy numbers": [[numpy.float32(x) for x in row] for row in A],
}


@pytest.mark.parametrize("array", VIEWS.values(), ids=VIEWS.keys())
def test_every_memory_layout(array: numpy.ndarray) -> None:
    expected = numpy.asarray(array, numpy.float32) + A + A
    result = RUN({"a": array, "b": A})["y"]
    assert type(result) is numpy.ndarray and numpy.array_equal(result, expected)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_dtype_is_taken_without_a_copy(dtype) -> None:
    array = numpy.zeros((2, 3), dtype.numpy)
    wanted = spec("x", 2, 3, dtype=dtype)
    assert plain(array, wanted, dtype.numpy, "tiny") is array


class Foreign:
    """An array of another library, as far as DLPack goes."""

    def __init__(self, array: numpy.ndarray, device: int = 1) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: object) -> object:
        if not self.array.flags.writeable:
            raise BufferError("records gradients")
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device, 0)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> type[Foreign]:
    made = types.ModuleType("strange_arrays")
    made.from_dlpack = lambda array: Foreign(numpy.from_dlpack(array))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "strange_arrays", made)
    monkeypatch.setattr(Foreign, "__module__", "strange_arrays.core")
    return Foreign


def test_dlpack_arrays_in_and_out(library: type[Foreign]) -> None:
    for given in ({"a": library(A), "b": library(A)}, {"a": A, "b": library(A)}):
        result = RUN(given)["y"]
        assert isinstance(result, Foreign) and numpy.array_equal(result.array, 3 * A)


def test_bfloat16_of_another_library(library: type[Foreign]) -> None:
    half = DTYPES["bfloat16"]
    wanted = spec("x", 3, 4, dtype=half)
    foreign = export_array(A.astype(half.numpy), half)
    assert plain(foreign, wanted, half.numpy, "tiny").dtype == half.numpy
    wrap = wrapper([library(A)])
    assert wrap is not None
    narrow = A.astype(DTYPES["int4"].numpy)
    assert wrap(narrow) is narrow  # DLPack has no name for it


def test_a_library_without_from_dlpack_gets_numpy() -> None:
    result = RUN({"a": Foreign(A), "b": A})["y"]
    assert isinstance(result, numpy.ndarray) and numpy.array_equal(result, 3 * A)


class Recording(Foreign):
    """An array of a library that records gradients, and shares none that does."""

    def __init__(self, array: numpy.ndarray, requires_grad: bool = True) -> None:
        super().__init__(array)
        self.requires_grad = requires_grad

    def __dlpack__(self, **options: object) -> object:
        if self.requires_grad:
            raise BufferError("use tensor.detach().")
        return super().__dlpack__()

    def detach(self) -> Recording:
        return Recording(self.array, False)


class Weights(Recording):
    """What a user makes of such a class, in a module of his own."""


@pytest.mark.parametrize("kind", [Recording, Weights])
def test_an_array_that_records_gradients(
    library: type[Foreign], monkeypatch: pytest.MonkeyPatch, kind: type[Recording]
) -> None:
    """It is taken where nobody records, else the error says how to give it."""
    monkeypatch.setattr(Recording, "__module__", "strange_arrays.core")
    module, results = sys.modules["strange_arrays"], Recording(numpy.zeros_like(A))
    module.is_grad_enabled = lambda: False  # type: ignore[attr-defined]
    assert numpy.array_equal(RUN({"a": A, "b": kind(A)})["y"].array, 3 * A)
    called_into(RUN, {"a": A, "b": kind(A)}, results)
    assert numpy.array_equal(results.array, 3 * A)
    module.is_grad_enabled = lambda: True  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"input 'b' of tiny: .*gradients[\s\S]*x\.detach\(\)"):
        RUN({"a": A, "b": kind(A)})


def test_dlpack_arrays_that_cannot_be_shared(library: type[Foreign]) -> None:
    with pytest.raises(InputError, match=r"input 'a' of tiny: .* another device"):
        RUN({"a": library(A, device=2), "b": A})
    frozen = A.copy()
    frozen.flags.writeable = False
    with pytest.raises(InputError, match=r"input 'b' of tiny: .* cannot be shared"):
        RUN({"a": A, "b": library(frozen)})
