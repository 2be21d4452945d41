"""Promise: a wrong request or option of a batcher is an error that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.serving import Batcher
from tests.unit.serving.models import dependent, encoder, images, scaled, tokens

Case = Callable[[], Any]
ROW = np.ones(3, np.float32)


def ask(model: Any, inputs: Any, **options: Any) -> Any:
    with Batcher(model, memory="1 MiB") as batcher:
        return batcher(inputs, **options)


CASES: dict[str, tuple[type[Exception], Case, str]] = {
    "another dtype": (
        ad.InputError, lambda: ask(scaled(), {"x": np.ones(3)}),
        "input 'x' of scaled: expected dtype float32, got float64\n"
        "  convert it: array.astype('float32')",
    ),
    "a missing input": (
        ad.InputError, lambda: ask(encoder(), {"attention_mask": tokens(3)}),
        "minilm needs input 'input_ids'\n  its inputs are 'input_ids'",
    ),
    "an unknown input": (
        ad.InputError, lambda: ask(scaled(), {"y": ROW}),
        "scaled has no input 'y'\n  its inputs are 'x'",
    ),
    "an unknown result": (
        ad.InputError, lambda: ask(scaled(), {"x": ROW}, outputs=["z"]),
        "scaled has no result 'z'\n  its results: y, total",
    ),
    "unlike numbers of rows": (
        ad.InputError,
        lambda: ask(encoder(), {"input_ids": tokens(3), "attention_mask": np.ones((2, 3), int)}),
        "minilm: inputs differ in the number of rows: 'input_ids' has 1, 'attention_mask' has 2",
    ),
    "a length above its bound": (
        ad.DimError, lambda: ask(encoder(), {"input_ids": tokens(21)}),
        "minilm: input 'input_ids', row 0: 'seq' is 21\n  declared seq=1..20",
    ),
    "what never fits": (
        ad.MemoryLimitError, lambda: ask(scaled(), {"x": np.ones((9, 90_000), np.float32)}),
        "scaled at rows = 9, n.total = 810000, n.longest = 90000 takes 19440288 bytes (18.5 MiB), "
        "above the memory limit of 1048576 bytes (1 MiB)\n"
        "  of the call: arena 6480064 bytes (6.18 MiB), inputs 3240152 bytes (3.09 MiB), outputs "
        "3240036 bytes (3.09 MiB); the request with its results: 6480036 bytes (6.18 MiB); raise "
        "the limit, or use smaller sizes",
    ),
    "batch= of a ragged model": (
        ad.OptionError, lambda: Batcher({}).add("a", scaled(), batch="rows"),
        "a has ragged dims, and `batch` is for models without\n  leave it out",
    ),
    "an unknown batch": (
        ad.OptionError, lambda: Batcher({}).add("a", images(), batch="rows"),
        "a has no dim 'rows' to batch items along\n  its dims are 'batch', 'height'",
    ),
    "no model": (
        ad.OptionError, lambda: Batcher("encoder.onnx"),
        "a batcher serves compiled and loaded models, not str\n"
        "  give what ad.compile or ad.load returned",
    ),
    "no memory": (
        ad.OptionError, lambda: Batcher(scaled(), memory="much"),
        "memory is 'much', expected a number of bytes\n"
        '  give bytes as a number, or a text such as "512 MiB" or "1.5 GB"',
    ),
    "no calls": (
        ad.OptionError, lambda: Batcher(scaled(), calls=0),
        "calls is 0\n  give how many calls may run at once",
    ),
}  # fmt: skip


def along_rows(inputs: Any) -> Any:
    with Batcher({}) as batcher:
        batcher.add("dependent", dependent(), batch="batch")
        return batcher(inputs)


UNEVEN = [[1, 2], [3]]
UNEVEN_CASES: dict[str, tuple[Case, str]] = {
    "elements of a ragged request": (
        lambda: ask(scaled(), {"x": [UNEVEN, [3]]}), "input 'x' of scaled",
    ),
    "a number beside a list": (lambda: ask(scaled(), {"x": [1, [2]]}), "input 'x' of scaled"),
    "a mask": (
        lambda: ask(encoder(), {"input_ids": tokens(3), "attention_mask": [UNEVEN]}),
        "input 'attention_mask' of minilm",
    ),
    "a request without ragged dims": (
        lambda: ask(images(), {"x": UNEVEN}), "input 'x' of images",
    ),
    "a request along batch": (lambda: along_rows({"x": UNEVEN}), "input 'x' of dependent"),
    "an item": (
        lambda: list(scaled().map([{"x": UNEVEN}])), "item 0: input 'x' of scaled",
    ),
    "an item without ragged dims": (
        lambda: list(images().map([{"x": UNEVEN}], batch="batch")), "item 0: input 'x' of images",
    ),
    "a row of a call": (
        lambda: encoder()(input_ids=[[1], UNEVEN]), "minilm: input 'input_ids': row 1",
    ),
    "a row of a ragged batch": (lambda: ad.Ragged.of([UNEVEN]), "row 0"),
    "values of a ragged batch": (lambda: ad.Ragged(UNEVEN, [0, 1]), "values"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNEVEN_CASES)
def test_lists_of_unequal_lengths_are_named(name: str) -> None:
    case, where = UNEVEN_CASES[name]
    with pytest.raises(ad.InputError) as caught:
        case()
    assert str(caught.value).startswith(f"{where}: list is not an array: ")


@pytest.mark.parametrize("name", CASES)
def test_the_text_of_an_error(name: str) -> None:
    kind, case, text = CASES[name]
    with pytest.raises(kind) as caught:
        case()
    assert type(caught.value) is kind and str(caught.value) == text
