"""A model for the Python backend of Triton Inference Server.

In the model repository, `encoder/1/model.py` beside the saved model `encoder/1/encoder.anydim`:

    from anydim.serving.server.triton import model_class

    TritonPythonModel = model_class(__file__)

Triton completes the configuration from the saved model. `encoder/config.pbtxt` is

    backend: "python"
    parameters: { key: "memory" value: { string_value: "2 GiB" } }

with the parameters `memory`, the limit of requests, calls and results (default 1 GiB), `threads` of
a call (default: those of the saved model), `batch` as of `Batcher.add`, and `queue`. Requests that
Triton hands over together share calls without padding, whatever their sizes. The first axis of an
input is one of the model: Triton itself does not batch (`max_batch_size` is 0).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from importlib import import_module
from pathlib import Path
from typing import Any

from anydim.base.errors import BusyError, OptionError, OutOfMemoryError, TimeLimitError, UserError
from anydim.deploy.load import load
from anydim.serving import Batcher
from anydim.serving.server.model_reports import tensor_config
from anydim.serving.server.repository import Loaded
from anydim.serving.server.state import error_text, tensors_of

_SUFFIX = ".anydim"
_STOP_SECONDS = 30.0
_UNAVAILABLE = (BusyError, OutOfMemoryError, TimeLimitError)


def model_class(file: str) -> type[Any]:
    """The class that Triton looks for in `model.py`.

    Args:
        file: The path of `model.py`; the saved model is next to it.
    """
    return type("TritonPythonModel", (_Model,), {"folder": Path(file).resolve().parent})


class _Model:
    """The model interface of Triton's Python backend."""

    folder: Path

    @classmethod
    def auto_complete_config(cls, config: Any) -> Any:
        """Add the inputs and outputs of the saved model to a configuration without them."""
        loaded = _load_only_model(cls.folder, {})
        inputs, outputs = tensors_of(loaded)
        needed = loaded.model.input_names()  # masks of padding may be left out
        config.set_max_batch_size(0)
        for row in inputs:
            is_optional = {} if row["name"] in needed else {"optional": True}
            config.add_input({**tensor_config(row), **is_optional})
        for row in outputs:
            config.add_output(tensor_config(row))
        return config

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the model; `args` are Triton's."""
        self._utils: Any = import_module("triton_python_backend_utils")
        config = json.loads(args["model_config"])
        given = {name: each["string_value"] for name, each in config.get("parameters", {}).items()}
        loaded = _load_only_model(self.folder, given)
        self._inputs = [row["name"] for row in tensors_of(loaded)[0]]
        self._batcher = Batcher(
            {}, memory=given.get("memory", "1 GiB"), queue=int(given.get("queue", 1024))
        )
        self._batcher.add(loaded.name, loaded.model, given.get("batch"))

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """The responses to requests, in their order; each request may fail alone."""
        return [self._response(each) for each in [self._submit(each) for each in requests]]

    def finalize(self) -> None:
        """Stop the threads of the batcher."""
        self._batcher.close(True, _STOP_SECONDS)

    def _submit(self, request: Any) -> Future[Any] | UserError:
        find = self._utils.get_input_tensor_by_name
        tensors = {name: find(request, name) for name in self._inputs}
        given = {name: each.as_numpy() for name, each in tensors.items() if each is not None}
        microseconds = request.timeout()
        try:
            return self._batcher.submit(
                given, outputs=list(request.requested_output_names()),
                deadline=microseconds / 1e6 if microseconds else None,
            )  # fmt: skip
        except UserError as error:
            return error

    def _response(self, found: Future[Any] | UserError) -> Any:
        utils = self._utils
        try:
            if isinstance(found, UserError):
                raise found
            results = found.result()
        except Exception as error:
            kind = utils.TritonError
            code = kind.UNAVAILABLE if isinstance(error, _UNAVAILABLE) else kind.INVALID_ARG
            if not isinstance(error, UserError):
                utils.Logger.log_error(f"{type(error).__name__}: {error}")
                code = kind.INTERNAL
            return utils.InferenceResponse(error=kind(error_text(error), code))
        tensors = [utils.Tensor(name, array) for name, array in results.items()]
        return utils.InferenceResponse(output_tensors=tensors)


def _load_only_model(folder: Path, given: Mapping[str, str]) -> Loaded:
    """The saved model of a folder; raises OptionError unless it is the only one."""
    files = sorted(folder.glob(f"*{_SUFFIX}"))
    if len(files) != 1:
        raise OptionError(f"{folder} has {len(files)} files *{_SUFFIX}",
                          "put one saved model beside model.py")  # fmt: skip
    threads = int(given["threads"]) if "threads" in given else "auto"
    return Loaded(files[0].stem, 1, files[0], load(files[0], threads=threads))
