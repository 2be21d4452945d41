"""Engines as functions from a request to results by name, loaded from a file with nothing said."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping

import numpy
import onnx

from bench.workloads import Feeds

Call = Callable[[Feeds], Mapping[str, numpy.ndarray]]


def anydim(source: bytes, threads: int) -> Call:
    """Compiled once, every dim free."""
    import anydim as ad

    model = ad.compile(source, threads=threads)
    return lambda feeds: model(**feeds)


def onnxruntime(source: bytes, threads: int) -> Call:
    """A session of the CPU provider."""
    import onnxruntime as peer

    options = peer.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = peer.InferenceSession(source, options, ["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, feeds)))


def openvino(source: bytes, threads: int) -> Call:
    """Compiled for latency in float32, one stream."""
    import openvino as peer

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",  # the default may take bfloat16
    }
    core = peer.Core()
    compiled = core.compile_model(core.read_model(source), "CPU", settings)
    request = compiled.create_infer_request()
    names = [value.name for value in onnx.load_from_string(source).graph.output]

    def call(feeds: Feeds) -> Mapping[str, numpy.ndarray]:
        found = request.infer(feeds, share_inputs=True)
        return {name: numpy.array(found[at]) for at, name in enumerate(names)}

    return call


LOADED: Mapping[str, Callable[[bytes, int], Call]] = {
    "anydim": anydim,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
}


def installed(name: str) -> bool:
    """Whether the engine is here."""
    return importlib.util.find_spec(name) is not None


def carrying(call: Call, carried: Mapping[str, str] | None) -> Call:
    """A call that takes some inputs from the results of the one before."""
    if carried is None:
        return call
    kept: Feeds = {}

    def step(feeds: Feeds) -> Mapping[str, numpy.ndarray]:
        nonlocal kept
        results = call(kept | feeds)
        kept = {name: results[result] for result, name in carried.items()}
        return results

    return step
