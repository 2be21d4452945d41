"""Models of `bench.browsers`: the shapes whose time is measured, and 20 that are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path

import numpy as np
import onnx

from bench.light import light_model
from bench.networks.classifiers import resnet18
from examples.minilm.model import model_path

Case = Mapping[str, Mapping[str, object]]  # dtype, shape and perhaps the value of an input
CHECKED = 20
_FLOAT, _INT64 = "float32", "int64"


@dataclass(frozen=True)
class Network:
    """A model, found in a folder of unpacked wheels or made here; cases by a few numbers."""

    source: Callable[[Path], Path | onnx.ModelProto]
    case: Callable[..., Case]
    timed: Sequence[tuple[int, ...]]
    checked: Sequence[tuple[int, ...]]


def _texts(batch: int, seq: int) -> Case:
    spec = {"dtype": _INT64, "shape": (batch, seq)}
    return {"input_ids": spec, "attention_mask": {**spec, "value": 1}}


def _lines(batch: int, width: int) -> Case:
    return {"x": {"dtype": _FLOAT, "shape": (batch, 3, 48, width)}}


def _images(batch: int, height: int, width: int) -> Case:
    return {"images": {"dtype": _FLOAT, "shape": (batch, 3, height, width)}}


def _squares(batch: int) -> Case:
    return {"gpu_0/data_0": {"dtype": _FLOAT, "shape": (batch, 3, 224, 224)}}


def _voices(batch: int) -> Case:
    return {
        "input": {"dtype": _FLOAT, "shape": (batch, 576)},
        "state": {"dtype": _FLOAT, "shape": (2, batch, 128)},
        "sr": {"dtype": _INT64, "shape": (), "value": 16000},
    }


def _windows(count: int) -> Case:
    state = {"dtype": _FLOAT, "shape": (1, 1, 128)}
    return {"input": {"dtype": _FLOAT, "shape": (count, 576)}, "h": state, "c": state}


def in_wheels(name: str) -> Callable[[Path], Path]:
    """A file of an unpacked wheel, by the end of its path."""
    return lambda folder: next(folder.rglob(name))


def _counts(*numbers: int) -> tuple[tuple[int, ...], ...]:
    return tuple((number,) for number in numbers)


_MANY = _counts(7, 0, 1, 2, 3, 4, 5, 6, 8, 9, 11, 13, 16, 17, 22, 31, 32, 33, 64, 1)
_TEXTS = (
    (1, 7), (0, 5), (1, 1), (1, 512), (2, 1), (1, 2), (1, 3), (3, 11), (1, 15), (1, 16), (1, 17),
    (7, 13), (0, 1), (5, 22), (1, 61), (1, 127), (64, 3), (8, 31), (1, 128), (1, 1),
)  # fmt: skip
NETWORKS = {
    "minilm": Network(
        lambda _: Path(model_path()), _texts,
        ((1, 1), (1, 7), (1, 22), (1, 61), (1, 128), (8, 64)), _TEXTS,
    ),
    "recognition": Network(
        in_wheels("ch_PP-OCRv4_rec_infer.onnx"), _lines, ((1, 64), (1, 320), (4, 160)),
        tuple(islice(product((1, 0, 2, 3), (64, 8, 17, 100, 320)), CHECKED)),
    ),
    "voice": Network(in_wheels("silero_vad_16k_op15.onnx"), _voices, _counts(1, 8), _MANY),
    "windows": Network(in_wheels("silero_vad_16k_sequence.onnx"), _windows, _counts(1, 31), _MANY),
    "resnet18": Network(
        lambda _: resnet18(), _images, ((1, 64, 64), (1, 224, 224), (4, 96, 128)),
        tuple(islice(product((1, 0, 2), (32, 33, 64, 97), (40, 224)), CHECKED)),
    ),
    "shufflenet": Network(
        lambda _: light_model("shufflenet"), _squares, _counts(1, 4),
        _counts(*(number % 5 for number in range(2, 2 + CHECKED))),
    ),
}  # fmt: skip


def drawn(
    random: np.random.Generator, dtype: str, shape: Sequence[int], value: int | None = None,
    most: int = 900,
) -> np.ndarray:  # fmt: skip
    """Values of an input: normal floats, integers from 1 to below `most`, or one value."""
    if value is not None:
        return np.full(shape, value, dtype)
    if dtype == "float32":
        return random.standard_normal(shape).astype(np.float32)
    return random.integers(1, most, shape).astype(dtype)
