"""The law of fixed dims: a file with numbers for its dims gives what it gives with the dims free.

    python -m tests.fuzz.fixed [NAME...]

Sizes that are data, and everything made of them, have the same bits. Sums of floats may be added
in another order, since a fixed size is worth other code; how far they are apart is in the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy
import onnx
from onnx.backend.test.loader import load_model_tests

import anydim as ad
from anydim.api.backend import free_dims_of_inputs
from anydim.base.errors import UserError
from tests.fuzz import cuts
from tests.fuzz.case import Arrays
from tests.fuzz.metamorphic import differing
from tests.fuzz.sizes_as_data import static
from tests.models import test_beams, test_decoder, test_detector, test_exporters

Subject = tuple[onnx.ModelProto, list[Arrays]]
CLOSE = 1e-4  # of the largest element of a result
SHAPES = ((2, 7), (1, 1), (3, 13), (0, 5))
LIGHT = ("bvlc_alexnet", "zfnet512")  # of onnx, beside those that are cut


@dataclass
class Row:
    """What came of a model: calls, those with equal bits, the largest distance of floats."""

    name: str
    calls: int = 0
    equal: int = 0
    distance: float = 0.0
    wrong: str = ""

    def __str__(self) -> str:
        figures = f"{self.calls:>6} {self.equal:>6} {self.distance:>9.1e}"
        return f"{self.name:<44} {figures}  {self.wrong or 'same'}"


def judged(name: str, proto: onnx.ModelProto, calls: list[Arrays]) -> Row:
    """The row of a model at some inputs."""
    row, free = Row(name), ad.compile(proto)
    weights = {tensor.name for tensor in proto.graph.initializer}
    for feeds in calls:
        held = {n: a for n, a in feeds.items() if n not in weights}
        sizes = {d: n for d, n in _sizes(proto, held).items() if d in free.dims.names}
        try:
            came = free(**held)
        except UserError:
            continue
        row.calls += 1
        before, row.distance = row.distance, 0.0
        for other in (ad.compile(static(proto, held)), ad.compile(proto, dims=sizes)):
            row.wrong = row.wrong or _compared(row, other(**held), came)
        row.equal += not row.wrong and row.distance == 0
        row.distance = max(row.distance, before)
    return row


def _sizes(proto: onnx.ModelProto, feeds: Arrays) -> dict[str, int]:
    """The sizes of the dims that the inputs name."""
    return {
        axis.dim_param: size
        for value in proto.graph.input if value.name in feeds
        for axis, size in zip(value.type.tensor_type.shape.dim, feeds[value.name].shape)
        if axis.dim_param
    }  # fmt: skip


def _compared(row: Row, other: Arrays, came: Arrays) -> str:
    for name, array in came.items():
        reason = differing({name: other[name]}, {name: array})
        if not reason:
            continue
        if array.dtype.kind != "f" or other[name].shape != array.shape:
            return reason
        apart = float(numpy.abs(other[name].astype(float) - array.astype(float)).max())
        most = float(numpy.abs(array.astype(float)).max())
        row.distance = max(row.distance, apart / most if most else apart)
        if not row.distance <= CLOSE:
            return reason
    return ""


# ---- models at hand ----------------------------------------------------------------------------


def nets() -> dict[str, Callable[[], Subject]]:
    """Models that tests are made of."""
    numbers = numpy.random.default_rng(3)

    def drawn(made: Callable[[], onnx.ModelProto], draw: Callable[..., Arrays]) -> Subject:
        return made(), [draw(numbers) for _ in range(4)]

    def attention() -> Subject:
        calls = [
            {
                "x": numbers.standard_normal((*shape, test_exporters.WIDTH)).astype("float32"),
                "mask": numpy.ones(shape, numpy.int64),
            }
            for shape in SHAPES
        ]
        return test_exporters.attention(), calls

    return {
        "decoder": lambda: drawn(test_decoder.decoder, test_decoder.draw),
        "detector": lambda: drawn(test_detector.detector, test_detector.draw),
        "beams": lambda: drawn(test_beams.search, test_beams.draw),
        "attention": attention,
        **{name: _images(name) for name in (*cuts.MODELS, *LIGHT) if name != "minilm"},
        "minilm": cuts.sentences,
    }


def _images(name: str) -> Callable[[], Subject]:
    def made() -> Subject:
        model, calls = (cuts.MODELS.get(name) or cuts.images(name, *cuts.BATCHES))()
        numbers = numpy.random.default_rng(5)
        drawn = [
            {n: numbers.standard_normal(a.shape).astype(a.dtype) for n, a in feeds.items()}
            for feeds in calls[:2]
        ]
        return model, drawn

    return made


def of_onnx() -> Iterator[tuple[str, Callable[[], Subject]]]:
    """The models that come with onnx as files, every axis of their inputs a dim."""
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        for case in load_model_tests(kind=kind):
            if any(word in case.name for word in ("strnorm", "sequence", "gradient")):
                continue  # inputs that are no tensors, and what is not supported
            yield f"{kind}/{case.name}", lambda case=case: _test_of_onnx(case.model_dir)


def _test_of_onnx(folder: str) -> Subject:
    model = free_dims_of_inputs(onnx.load(f"{folder}/model.onnx"))[0]
    feeds = {}
    inputs = [v for v in model.graph.input if v.name not in cuts.weights(model)]
    for number, value in enumerate(inputs):
        tensor = onnx.TensorProto()
        with open(f"{folder}/test_data_set_0/input_{number}.pb", "rb") as file:
            tensor.ParseFromString(file.read())
        feeds[value.name] = onnx.numpy_helper.to_array(tensor)
    return model, [feeds]


def main(names: list[str]) -> bool:
    """Print the table; whether all rows are right."""
    every = {**nets(), **dict(of_onnx())}
    print(f"{'model':<44} {'calls':>6} {'equal':>6} {'distance':>9}")
    fine, rows = True, []
    for name, subject in every.items():
        if names and not any(part in name for part in names):
            continue
        try:
            row = judged(name, *subject())
        except Exception as error:
            row = Row(name, wrong=f"{type(error).__name__}: {error}".split("\n")[0][:120])
        print(row, flush=True)
        rows.append(row)
        fine = fine and not row.wrong
    calls, equal = sum(row.calls for row in rows), sum(row.equal for row in rows)
    print(f"{len(rows)} models, {calls} calls, {equal} with equal bits")
    return fine


if __name__ == "__main__":
    sys.exit(not main(sys.argv[1:]))
