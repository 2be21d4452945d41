"""The engines under comparison, each loaded by one function that returns a callable.

A callable takes feeds (name -> array) and returns the outputs in the model's order. An engine that
is not installed is left out of the tables.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from bench.workloads import Feeds

Call = Callable[[Feeds], list[numpy.ndarray]]


@dataclass(frozen=True)
class Engine:
    """A name, the module it needs, and how to load a model for so many threads."""

    name: str
    module: str
    load: Callable[[Path, int], Call]

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec(self.module) is not None


def load_anydim(path: Path, threads: int) -> Call:
    import anydim as ad

    dims = {"batch": ad.Dim(0, 64), "seq": ad.Dim(1, 512)}
    model = ad.compile(path, dims=dims, threads=threads)
    return lambda feeds: list(model(**feeds).values())


def load_onnxruntime(path: Path, threads: int) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def load_openvino(path: Path, threads: int) -> Call:
    import openvino

    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",  # the default may take bfloat16
    }
    compiled = core.compile_model(str(path), "CPU", settings)
    request = compiled.create_infer_request()

    def call(feeds: Feeds) -> list[numpy.ndarray]:
        found: Any = request.infer(feeds, share_inputs=True)
        return [numpy.array(found[output]) for output in compiled.outputs]

    return call


def load_torch(path: Path, threads: int) -> Call:
    """The same model as a torch module under torch.compile with dynamic shapes."""
    import torch

    from bench.torch_minilm import compiled_encoder

    torch.set_num_threads(threads)
    encoder = compiled_encoder()

    def call(feeds: Feeds) -> list[numpy.ndarray]:
        with torch.inference_mode():
            outputs = encoder(*(torch.from_numpy(array) for array in feeds.values()))
        return [output.numpy() for output in outputs]

    return call


ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine("anydim", "anydim", load_anydim),
        Engine("onnxruntime", "onnxruntime", load_onnxruntime),
        Engine("openvino", "openvino", load_openvino),
        Engine("torch.compile", "torch", load_torch),
    )
}
