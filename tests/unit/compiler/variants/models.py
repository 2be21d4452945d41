"""Small models whose sites have other bodies, and workers that make them in this process."""

from __future__ import annotations

from concurrent.futures import Future
from functools import cache

import numpy
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydim as ad
from anydim.compiler.variants import serving
from anydim.compiler.variants.worker import answer
from anydim.compiler.variants.workers import Order, Reply, reply_of, request_of
from anydim.runtime.program.program import Program


def depthwise(
    strategy: str, channels: int = 8, strategies: dict[str, str] | None = None, rows: bool = False
) -> ad.Model:
    """A depthwise convolution, then a pool or a softmax of rows; free batch, height and width."""
    weights = numpy.random.default_rng(0).standard_normal((channels, 1, 3, 3))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["z"], pads=[1] * 4, group=channels),
        helper.make_node("Softmax", ["z"], ["y"])
        if rows
        else helper.make_node("MaxPool", ["z"], ["y"], kernel_shape=[3, 3], strides=[2, 2]),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", channels, "h", "q"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights.astype(numpy.float32), "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return ad.compile(model.SerializeToString(), strategy=strategy, strategies=strategies)


@cache
def generic_program() -> Program:
    """The program of `depthwise`, compiled once."""
    return depthwise("generic").program


def image(height: int, width: int = 10, batch: int = 1, channels: int = 8) -> numpy.ndarray:
    """A random input."""
    random = numpy.random.default_rng(height * 1000 + width)
    return random.standard_normal((batch, channels, height, width), numpy.float32)


class Here:
    """Workers that are none: orders are answered at once, or fail as `problem` says."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.problem, self.count = "", 1
        self.ratio: float | None = None
        self.whole: tuple[str, float] | None = None  # what searches for all sizes find

    def submit(self, order: Order) -> Future[Reply]:
        self.orders.append(order)
        done: Future[Reply] = Future()
        if self.problem:
            done.set_result(Reply(problem=self.problem))
            return done
        if order.samples:
            done.set_result(
                Reply(tried=(self.whole,), ratio=self.whole[1]) if self.whole else Reply()
            )
            return done
        measured = order.most is not None and self.ratio is not None
        found = request_of(order) | ({"most": None} if measured else {})
        reply = reply_of(answer(found))
        if measured and reply.made is not None:
            assert self.ratio is not None and order.most is not None
            kept = reply.made if self.ratio <= order.most else None
            reply = Reply(kept, self.ratio, ((reply.made.schedule, self.ratio),))
        done.set_result(reply)
        return done

    def warm(self) -> None:
        """Nothing to start."""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path) -> Here:  # type: ignore[no-untyped-def]
    """Bodies are made in this process, verdicts kept in a new folder."""
    made = Here()
    monkeypatch.setattr(serving, "workers", lambda polite, count=0: made)
    monkeypatch.setattr(serving, "ledger", lambda target: serving.Ledger(tmp_path / "v", target))
    return made
