"""One engine, one model, in a process of its own: what it does is a row of WORK.

python -m bench.resident.process ENGINE MODEL FOLDER WORK REQUESTS
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy

import anydim as ad
from bench.engines import Call, load_onnxruntime, load_openvino
from bench.resident.models import SUBJECTS, Sizes, Subject

EVERY = 500  # requests between two looks at the memory
Load = Callable[[Path], Call]


# ---- engines -----------------------------------------------------------------------------------


def _anydim(path: Path) -> Call:
    model = ad.load(path.with_suffix(".anydim"), verify=True)  # reads all weights, as others do
    return lambda feeds: list(model(**feeds).values())


def _onnxruntime(path: Path) -> Call:
    return load_onnxruntime(path, 1)


def _onnxruntime_without_arena(path: Path) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def _onnxruntime_shrinking(path: Path) -> Call:
    """An arena that is extended by what is asked for, and made smaller after every run."""
    import onnxruntime

    place = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    arena = onnxruntime.OrtArenaCfg({"arena_extend_strategy": 1})
    onnxruntime.create_and_register_allocator(place, arena)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.use_env_allocators", "1")
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    run = onnxruntime.RunOptions()
    run.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return lambda feeds: session.run(None, feeds, run)


def _openvino(path: Path) -> Call:
    return load_openvino(path, 1)


LOADS: dict[str, tuple[str, Load]] = {  # name -> the module it needs, how to load
    "anydim": ("anydim", _anydim),
    "onnxruntime": ("onnxruntime", _onnxruntime),
    "onnxruntime, no arena": ("onnxruntime", _onnxruntime_without_arena),
    "onnxruntime, shrinking": ("onnxruntime", _onnxruntime_shrinking),
    "openvino": ("openvino", _openvino),
}


# ---- what this process takes ---------------------------------------------------------------------


def resident() -> int:
    """Bytes of this process in memory."""
    return _status("VmRSS")


def peak() -> int:
    """The most of them since `forget_peak`."""
    return _status("VmHWM")


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", "utf-8")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    (found,) = [line for line in lines if line.startswith(name + ":")]
    return int(found.split()[1]) * 1024


# ---- work --------------------------------------------------------------------------------------


def stream(subject: Subject, call: Call, requests: int) -> dict[str, Any]:
    """Memory after 50 requests at random sizes, and every so often from then on."""
    random = numpy.random.default_rng(1)
    seen = []
    for number in range(1, requests + 1):
        call(subject.feeds(subject.drawn(random), number))
        if number in (50, requests) or number % EVERY == 0:
            seen.append((number, resident()))
    return {"seen": seen}


def large(subject: Subject, call: Call, requests: int) -> dict[str, Any]:
    """Memory after small requests, after one at the bound, and after small ones again."""
    random = numpy.random.default_rng(2)

    def small() -> int:
        for number in range(requests):
            call(subject.feeds(subject.drawn(random), number))
        return resident()

    before = small()
    call(subject.feeds(subject.bound, 0))
    return {"before": before, "large": resident(), "after": small()}


def peaks(subject: Subject, call: Call, number: int) -> dict[str, Any]:
    """The peak of two calls at some sizes."""
    sizes: Sizes = dict(zip(subject.dims, subject.peaks[number]))
    feeds = subject.feeds(sizes, 0)
    forget_peak()
    call(feeds)
    call(feeds)
    inputs = sum(array.nbytes for array in feeds.values())
    return {"sizes": sizes, "inputs": inputs, "peak": peak()}


WORK: dict[str, Callable[[Subject, Call, int], dict[str, Any]]] = {
    "stream": stream, "large": large, "peaks": peaks,
}  # fmt: skip


def main(engine: str, name: str, folder: str, work: str, count: str) -> None:
    subject, path = SUBJECTS[name], Path(folder, f"{name}.onnx")
    module, load = LOADS[engine]
    import_module(module)
    found = {"imported": resident(), "weights": path.stat().st_size}
    call = load(path)
    call(subject.feeds(subject.smallest, 0))
    found["loaded"] = resident()
    print(json.dumps(found | WORK[work](subject, call, int(count))))


if __name__ == "__main__":
    main(*sys.argv[1:])
