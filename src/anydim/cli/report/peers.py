"""Other engines that run the same file, to be measured beside anydim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.errors import ModelError, OptionError

Arrays = Mapping[str, numpy.ndarray]
Engine = Callable[[Arrays], Arrays]


def onnxruntime_session(path: str, threads: int, profile: str = "") -> Any:
    """A session of onnxruntime's CPU provider on `threads` cores; `profile` begins a file's path.

    Raises OptionError where it is not installed, ModelError for what it cannot load.
    """
    try:
        import onnxruntime
    except ImportError:
        raise OptionError("onnxruntime is not installed", "pip install onnxruntime") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, profile
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common base
        raise ModelError(f"onnxruntime cannot load {path}: {_first_line(error)}") from None


def onnxruntime_engine(path: str, threads: int) -> Engine:
    """onnxruntime's CPU provider on `threads` cores."""
    session = onnxruntime_session(path, threads)
    names = [output.name for output in session.get_outputs()]

    def run(inputs: Arrays) -> Arrays:
        return dict(zip(names, ran(session, names, inputs)))

    return run


def ran(session: Any, names: Sequence[str] | None, inputs: Arrays) -> Any:
    """Results of a session; its failures as ModelError."""
    try:
        return session.run(names, dict(inputs))
    except Exception as error:
        raise ModelError(f"onnxruntime fails: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


PEERS: Mapping[str, Callable[[str, int], Engine]] = {"onnxruntime": onnxruntime_engine}
