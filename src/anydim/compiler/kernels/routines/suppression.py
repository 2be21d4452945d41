"""Non-maximum suppression: of overlapping boxes, the one with the best score is kept.

For each batch and class, boxes with a score above the threshold are visited in score order, ties to
the lower index. They are sorted in batches, because most are never needed. A box is kept unless it
overlaps a kept one too much: vectors of kept boxes are compared with it. Decisions use the boxes'
own precision, operation by operation as in the ONNX standard's reference. A box of no area, or with
NaN, overlaps nothing.
"""

from __future__ import annotations

import numpy

from anydim.base.dtypes import DType, float32, float64, int64, uint32
from anydim.base.errors import GraphError
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer
from anydim.compiler.kernels.ir import greatest, iota, least, select
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.partial_sort import PartialSort
from anydim.compiler.kernels.routines.routine import (
    Arrays,
    Attributes,
    Dims,
    Results,
    Routine,
    Steps,
    Types,
)
from anydim.compiler.kernels.routines.rows import LANES, length_guards
from anydim.compiler.kernels.routines.sort import order
from anydim.lang.tree import Tensor, TensorType
from anydim.sizes import Box, Guard, Size, as_size, product

NAME = "non_max_suppression"
Corners = list[ir.Value]  # x1, y1, x2, y2 and the area of boxes
SCALARS = ("max_output", "iou_threshold", "score_threshold")


def infer(types: Types, attributes: Attributes, box: Box) -> tuple[TensorType, ...]:
    """Types: boxes [b, n, 4], scores [b, c, n], then one element each of `SCALARS`."""
    boxes, scores, most, *thresholds = types
    if boxes.rank != 3 or scores.rank != 3:
        raise GraphError(
            f"operator '{NAME}': boxes are {boxes}, scores {scores}",
            "expected boxes [batches, boxes, 4] and scores [batches, classes, boxes]",
        )
    dtype = boxes.dtype
    if dtype not in (float32, float64) or any(t.dtype != dtype for t in (scores, *thresholds)):
        raise GraphError(f"operator '{NAME}': boxes, scores and thresholds are float32 or float64, "
                         "all the same")  # fmt: skip
    if most.dtype != int64:
        raise GraphError(f"operator '{NAME}': max_output is {most.dtype}, expected int64")
    batches, classes, count = scores.shape
    rows = TensorType(int64, (batches * classes * count, as_size(3)))
    return rows, TensorType(int64, (as_size(1),))


def guards(types: Types, attributes: Attributes, box: Box) -> tuple[Guard, ...]:
    boxes, scores, *scalars = types
    pairs = [
        (boxes.shape[0], scores.shape[0], "boxes and scores have the same batches"),
        (boxes.shape[1], scores.shape[2], "each class has a score for each box"),
        (boxes.shape[2], as_size(4), "a box has 4 numbers"),
        *((product(t.shape), as_size(1), f"{n} has one element") for t, n in zip(scalars, SCALARS)),
    ]
    found = (Guard(left, "==", right, f"{NAME}: {what}") for left, right, what in pairs)
    return *found, *length_guards(NAME, boxes.shape[1], box)


# ---- meaning -----------------------------------------------------------------------------------


def evaluate(arrays: Arrays, attributes: Attributes, sizes: Dims) -> Results:
    boxes, scores, *scalars = arrays
    most, overlap, *threshold = (scalar.reshape(-1)[0] for scalar in scalars)
    corners = _corners(boxes, bool(attributes["center"]))
    kept = [
        (batch, number, index)
        for batch in range(scores.shape[0])
        for number in range(scores.shape[1])
        for index in _kept_boxes(corners[batch], scores[batch, number], most, overlap, threshold)
    ]
    result = numpy.zeros((scores.size, 3), numpy.int64)
    result[: len(kept)] = numpy.array(kept, numpy.int64).reshape(-1, 3)
    return result, numpy.array([len(kept)], numpy.int64)


def _corners(boxes: numpy.ndarray, center: bool) -> numpy.ndarray:
    """Boxes as [..., (x1, y1, x2, y2)], smaller coordinates first."""
    if center:
        x, y, width, height = numpy.moveaxis(boxes, -1, 0)
        half = boxes.dtype.type(2)
        both = [x - width / half, y - height / half, x + width / half, y + height / half]
        return numpy.stack(both, -1)
    first, second = boxes[..., [1, 0]], boxes[..., [3, 2]]
    swap = first >= second
    ordered = numpy.where(swap, second, first), numpy.where(swap, first, second)
    return numpy.concatenate(ordered, -1)


def _kept_boxes(
    corners: numpy.ndarray, scores: numpy.ndarray, most: int, overlap: float,
    threshold: list[float],
) -> list[int]:  # fmt: skip
    """The boxes of one class that are kept, best score first."""
    kept: list[int] = []
    for index in order(scores, 0, True):
        if len(kept) >= most:
            break
        if threshold and not scores[index] > threshold[0]:
            continue
        if not _overlap(corners[index], corners[kept], overlap).any():
            kept.append(int(index))
    return kept


def _overlap(one: numpy.ndarray, others: numpy.ndarray, limit: float) -> numpy.ndarray:
    """A mask of the boxes whose intersection with a box exceeds `limit` of the union."""
    low, high = numpy.maximum(one[:2], others[:, :2]), numpy.minimum(one[2:], others[:, 2:])
    with numpy.errstate(all="ignore"):
        sides = high - low
        shared = sides[:, 0] * sides[:, 1]
        area = (one[2] - one[0]) * (one[3] - one[1])
        areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
        union = area + areas - shared
        some = (high > low).all(1) & (shared > 0) & (area > 0) & (areas > 0) & (union > 0)
        return some & (shared / union > limit)


# ---- native code -------------------------------------------------------------------------------


def lower(types: Types, attributes: Attributes, box: Box, machine: Machine) -> Steps:
    suppression = _Suppression(types, bool(attributes["center"]), box, machine)
    batches, classes, count = types[1].shape
    kept = Tensor("kept", TensorType(uint32, (batches * classes * count,)))
    counts = Tensor("counts", TensorType(int64, (batches * classes,)))
    return Steps((suppression.choose(), suppression.write()), (kept, counts))


@dataclass(frozen=True)
class _Suppression:
    types: Types
    center: bool
    box: Box
    machine: Machine

    @property
    def dtype(self) -> DType:
        return self.types[0].dtype

    def choose(self) -> Launch:
        """The kept boxes of each class, contiguous in `kept`, and their number."""
        code = Code("suppress", self.machine, self.box)
        batches, classes, length = self.types[1].shape
        scores, boxes = code.input("x1", self.dtype), code.input("x0", self.dtype)
        kept, counts = code.output("kept", uint32), code.output("counts", int64)
        ranked = PartialSort.scratch(code, self.dtype, length)
        chosen = _KeptBoxes.scratch(code, self.dtype, length + LANES)
        count = code.size(length)
        most = least(greatest(code.input("x2", int64)[0], 0), count)
        threshold = code.input("x4", self.dtype)[0] if len(self.types) == 5 else None
        with code.range(code.start, code.stop) as item:
            block = code.let(item * count)
            ranked.fill(scores.part(block), count, threshold, most)
            own = boxes.part(code.let(item // code.size(classes) * (4 * count)))
            number = code.variable(0)
            with code.loop(lambda: (ranked.remaining() > 0) & (number() < most)):
                pairs, some = ranked.following(count)
                at = code.variable(0)
                with code.loop(lambda: (at() < some) & (number() < most)):
                    index = pairs.indices[at()]
                    corners = self._corners(code, own.part(index.as_(int64) * 4))
                    overlap = code.input("x3", self.dtype)[0]
                    with code.when(~chosen.overlap(code, corners, number(), overlap)):
                        chosen.put(number(), corners)
                        kept[block + number()] = index
                        number += 1
                    at += 1
            counts[item] = number()
        work = batches * classes * length
        return code.launch(batches * classes, work, reason="kept boxes of each class")

    def _corners(self, code: Code, box: Buffer) -> Corners:
        """x1, y1, x2, y2 and the area of a box."""
        first, second, third, fourth = (box[i] for i in range(4))
        if self.center:
            sides = code.let(third / 2.0), code.let(fourth / 2.0)
            corners = [first - sides[0], second - sides[1], first + sides[0], second + sides[1]]
        else:
            low = [_lesser(fourth, second), _lesser(third, first)]
            corners = [*low, _greater(second, fourth), _greater(first, third)]
        x1, y1, x2, y2 = (code.let(corner) for corner in corners)
        return [x1, y1, x2, y2, code.let((x2 - x1) * (y2 - y1))]

    def write(self) -> Launch:
        """The rows (batch, class, box) of the result, class after class."""
        code = Code("suppress_write", self.machine, self.box)
        batches, classes, length = self.types[1].shape
        kept, counts = code.input("kept", uint32), code.input("counts", int64)
        y, rows = code.output("y0", int64), code.variable(0)
        with code.range(code.start, code.stop):
            with code.range(0, code.size(batches)) as batch, code.range(0, code.size(classes)) as c:
                item = code.let(batch * code.size(classes) + c)
                own = kept.part(code.let(item * code.size(length)))
                with code.range(0, counts[item]) as i:
                    row = code.let(rows() * 3)
                    for column, value in enumerate((batch, c, own[i].as_(int64))):
                        y[row + column] = value
                    rows += 1
            code.output("y1", int64)[0] = rows()
        return code.launch(1, batches * classes, reason="kept boxes, class after class")


@dataclass(frozen=True)
class _KeptBoxes:
    """Corners and areas of the kept boxes, as five arrays."""

    columns: tuple[Buffer, ...]

    @staticmethod
    def scratch(code: Code, dtype: DType, most: Size) -> _KeptBoxes:
        return _KeptBoxes(tuple(code.scratch(dtype, most) for _ in range(5)))

    def put(self, number: ir.Value, corners: Corners) -> None:
        for column, value in zip(self.columns, corners):
            column[number] = value

    def overlap(self, code: Code, box: Corners, count: ir.Value, limit: ir.Value) -> ir.Value:
        """Whether a box's intersection with one of the first `count` exceeds `limit` of the
        union."""
        found, at = code.variable(False), code.variable(0)
        spread = [code.let(value.spread(LANES)) for value in box]
        with code.when(box[4] > 0.0), code.loop(lambda: (at() < count) & ~found()):
            there = iota(LANES) < count - at()
            others = [column.load(at(), LANES, there) for column in self.columns]
            shared, union, some = _intersections(code, spread, others)
            # Prefilter without division; equality passes, so rounding cannot lose a hit.
            some = code.let(some & there)
            with code.when((some & (shared >= union * limit)).any):
                found.set((some & (shared / union > limit)).any)
            at += LANES
        return found()


def _intersections(
    code: Code, one: Corners, others: Corners
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Intersections of a box with others, the unions, and the mask where `_overlap` divides
    them."""
    low = [code.let(_greater(one[i], others[i])) for i in (0, 1)]
    high = [code.let(_lesser(one[i], others[i])) for i in (2, 3)]
    shared = code.let((high[0] - low[0]) * (high[1] - low[1]))
    union = code.let(one[4] + others[4] - shared)
    some = (high[0] > low[0]) & (high[1] > low[1]) & (shared > 0.0) & (others[4] > 0.0)
    return shared, union, code.let(some & (union > 0.0))


def _lesser(left: ir.Value, right: ir.Value) -> ir.Value:
    return select(left < right, left, right)


def _greater(left: ir.Value, right: ir.Value) -> ir.Value:
    return select(left < right, right, left)


NON_MAX_SUPPRESSION = Routine((4, 5), infer, evaluate, lower, guards)
