"""The model of a session: inputs and outputs, and the engines that run its variations."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy

from anydim.base.errors import ArtefactError, InternalError, ModelError, UserError
from anydim.base.fork_locks import fork_lock
from anydim.deploy.container import is_saved
from anydim.deploy.load import load_at_most
from anydim.ort.engines import Compiled, Engine, Peer
from anydim.ort.errors import (
    Fail,
    InvalidArgument,
    InvalidProtobuf,
    NoSuchFile,
    OrtError,
    Unimplemented,
)
from anydim.ort.feeds import Feeds, input_spec, input_spec_of
from anydim.ort.metadata import (
    ModelMetadata,
    NodeArg,
    arg_of,
    args_of,
    complete_outputs,
    element_of_spec,
    metadata_of,
)
from anydim.ort.notices import warn_once
from anydim.ort.options import SessionOptions
from anydim.ort.profiling import Profile
from anydim.ort.providers import CPU
from anydim.runtime.variations import PLAIN, Variation, Variations

_VARIATIONS = "anydim.compiler.frontends.onnx.file.variations"  # which compiling sessions import


class ServedModel:
    """A model with its inputs, outputs and metadata. Several threads may run it at once."""

    inputs: list[NodeArg]
    outputs: list[NodeArg]
    overridable: list[NodeArg]
    metadata: ModelMetadata
    feeds: Feeds

    def __init__(
        self, source: str | bytes, options: SessionOptions, profile: Profile | None = None
    ) -> None:
        self._source = source
        self._options = options
        self._profile = profile
        self._engines: Variations[Engine] = Variations(self._compile)
        self._lock = fork_lock(self, "_lock", threading.RLock)
        self._peer: Peer | None = None
        self._plain: Compiled | None = None  # the only engine, if runs need no other
        if isinstance(source, str) and is_saved(source):
            self._load(source)
        else:
            self._open()

    def _open(self) -> None:
        if isinstance(self._source, str) and not os.path.exists(self._source):
            failed = f"Load model from {self._source} failed:Load model {self._source} failed."
            raise NoSuchFile(f"{failed} File doesn't exist")
        self._files = _file_modules()
        self._opened = self._files.open_source(self._source, self._options)
        graph = self._opened.proto.graph
        variable = import_module(_VARIATIONS).variable_of(self._opened)
        values = {value.name: value for value in graph.input}
        args = {name: arg_of(value) for name, value in values.items()}
        self.inputs = [args[name] for name in variable.inputs]
        self.overridable = [arg for name, arg in args.items() if name in variable.overridable]
        self.metadata = metadata_of(self._opened.proto)
        self.feeds = Feeds(
            [input_spec_of(arg, values[arg.name].type) for arg in self.inputs],
            [input_spec_of(arg, values[arg.name].type) for arg in self.overridable],
            variable,
        )
        self.outputs = [arg_of(value) for value in graph.output]

    def _load(self, path: str) -> None:
        """Load a saved model, which contains its code."""
        try:
            model = load_at_most(path, self._options.threads)
        except ArtefactError as error:
            raise InvalidProtobuf(error.problem, error.hint) from error
        self.overridable = []
        if model.on_strings:
            self._load_strings(model)
            return
        model = model.bare  # sessions have no complex tensors, and no state
        self.inputs = args_of(model, model.inputs)
        self.outputs = args_of(model, model.outputs)
        self.metadata = ModelMetadata(graph_name=model.name, producer_name="anydim")
        elements = {spec.name: element_of_spec(spec) for spec in model.inputs}
        self.feeds = Feeds(
            [input_spec(arg, elements.get(arg.name, 0)) for arg in self.inputs], [], None
        )
        self._engines.put(PLAIN, Compiled(model, self._profile))

    def _load_strings(self, model: Any) -> None:
        """Describe a saved model with strings by the ports of its file."""
        inputs, outputs = model.adapter.ports
        self.inputs, self.outputs = (
            [NodeArg(port.name, port.type, port.shape) for port in each]
            for each in (inputs, outputs)
        )
        self.metadata = ModelMetadata(graph_name=model.name, producer_name="anydim")
        specs = [
            input_spec(arg, port.element, port.has_shape) for arg, port in zip(self.inputs, inputs)
        ]
        self.feeds = Feeds(specs, [], None)
        self._engines.put(PLAIN, Compiled(model, self._profile))

    def start(self) -> None:
        """Compile the model if nothing depends on the first run; raises an OrtError."""
        if self.feeds.complete:
            engine = self._engines[PLAIN]
            if isinstance(engine, Compiled) and not engine.on_strings:
                self.outputs = complete_outputs(self.outputs, engine.model)
                self._plain = engine if self.feeds.ranked else None

    def run(
        self, given: Mapping[str, Any], into: Mapping[str, numpy.ndarray], shrink: bool = False
    ) -> dict[str, Any]:
        """Run the model; all results by name, those in `into` written there. Raises an OrtError."""
        taken, variation = self.feeds.take_inputs(given)
        engine = self._engines[variation]
        try:
            results = engine.run(taken, into)
        except InvalidArgument as error:
            if not self._options.fallback or engine is self._peer:
                raise
            results = self._run_fallback(error, taken, into)
        if shrink:
            engine.shrink()
        return results

    def repeat(
        self, given: Mapping[str, Any], into: Mapping[str, numpy.ndarray] | None = None
    ) -> dict[str, Any] | None:
        """All results of a run like an earlier one; None if `run` has to check it. Errors as `run`.

        Arrays of `into` share no memory with inputs.
        """
        plain = self._plain
        if plain is None:
            return None
        try:
            return plain.repeat(given, into)
        except InvalidArgument:
            if self._options.fallback:
                return None
            raise

    # ---- engines -----------------------------------------------------------------------------

    @property
    def _path(self) -> str | None:
        """The path of the file, if the options do not modify it."""
        given = self._options
        changed = given.initializers or given.sizes_by_name or given.sizes_by_denotation
        return self._source if isinstance(self._source, str) and not changed else None

    def _compile(self, variation: Variation) -> Engine:
        if variation.apart:
            warn_once(
                f"{self._opened.name}: axes with one dim name differ in size; the model is"
                " compiled again with a dim for each axis", self._options.log_severity_level,
            )  # fmt: skip
        try:
            if self._options.libraries:
                raise ModelError("it needs a library of operators for onnxruntime")
            model = import_module(_VARIATIONS).apply_variation(self._opened, variation)
            path = self._path if model is self._opened else None
            options = self._options.compile_options.changed(threads=self._options.threads)
            made = import_module("anydim.ort.cached_compile").compile_or_load(model, options, path)
            return Compiled(made, self._profile)
        except ModelError as error:
            if self._options.fallback:
                return self._fall_back(f"anydim refuses it: {error}")
            raise self._files.error_of_refusal(self._opened, self._source, error) from error
        except UserError as error:
            raise Fail(error.problem, error.hint) from error
        except InternalError as error:
            if self._options.fallback:
                return self._fall_back(f"a bug of anydim: {error.problem}")
            raise

    def _fall_back(self, reason: str) -> Peer:
        """Switch to the installed onnxruntime, with a warning."""
        with self._lock:
            if self._peer is None:
                self._peer = Peer(self._source, self._options, [CPU])
                said = f"{self._opened.name} runs on onnxruntime: {reason}"
                warnings.warn(said, RuntimeWarning, stacklevel=2)
            return self._peer

    def _run_fallback(
        self, error: OrtError, taken: Mapping[str, Any], into: Mapping[str, numpy.ndarray]
    ) -> dict[str, Any]:
        """Run a call that anydim rejects in onnxruntime; our error if it rejects the call too."""
        try:
            return self._fall_back(f"anydim refuses a call: {error.problem}").run(taken, into)
        except OrtError:
            raise error from None


def _file_modules() -> Any:
    """The module that opens ONNX files; NotImplemented without a compiler."""
    try:
        return import_module("anydim.ort.file")
    except ModuleNotFoundError as error:
        raise Unimplemented(
            "this is no saved model, and anydim-runtime compiles none",
            'save it where anydim is installed: anydim.compile("m.onnx").save("m.anydim")',
        ) from error
