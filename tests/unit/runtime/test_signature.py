"""Promise: the text of a signature is short where tensors differ in a number only."""

from __future__ import annotations

from anydim.base.dtypes import float32, int64
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Box, Dim, Size, as_size

PAST = (Size.symbol("batch"), as_size(8), Size.symbol("past"))
BOX = Box.of(Dim("batch"), Dim("past"))


def text(*inputs: TensorSpec) -> str:
    return str(Signature("decoder", BOX, inputs, ()))


def test_caches_of_layers_are_one_text() -> None:
    caches = [TensorSpec(f"past.{n}.{kind}", float32, PAST) for n in range(30) for kind in "kv"]
    ids = TensorSpec("ids", int64, PAST[:1])
    assert text(ids, *caches) == (
        "decoder(ids: int64[batch], past.0..29.k: float32[batch, 8, past],"
        " past.0..29.v: float32[batch, 8, past]) -> ()"
    )


def test_other_types_and_missing_numbers_end_a_group() -> None:
    specs = [TensorSpec(f"x{n}", float32, PAST[:1]) for n in (0, 1, 2, 4, 5)]
    specs.append(TensorSpec("x3", int64, PAST[:1]))
    assert text(*specs) == (
        "decoder(x0..2: float32[batch], x4: float32[batch], x5: float32[batch],"
        " x3: int64[batch]) -> ()"
    )


def test_any_number_of_a_name_may_count() -> None:
    specs = [TensorSpec(f"block2.layer{n}.w16", float32, PAST[:1]) for n in range(7, 12)]
    assert text(*specs) == "decoder(block2.layer7..11.w16: float32[batch]) -> ()"
