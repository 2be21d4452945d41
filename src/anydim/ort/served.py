"""The model of a session: inputs and outputs, and the engines that run its variations."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from typing import Any

import numpy

from anydim.base.errors import ArtefactError, InternalError, ModelError, UserError
from anydim.deploy.container import is_saved
from anydim.deploy.load import load
from anydim.frontends.onnx.file.variations import (
    PLAIN,
    Variable,
    Variation,
    Variations,
    varied,
)
from anydim.ort.engines import Compiled, Engine, Peer
from anydim.ort.errors import Fail, InvalidArgument, InvalidProtobuf, OrtError
from anydim.ort.feeds import Feeds, input_spec, input_spec_of
from anydim.ort.file import opened, refused
from anydim.ort.kept import compiled
from anydim.ort.metadata import (
    ModelMetadata,
    NodeArg,
    arg_of,
    args_of,
    completed,
    element_of_spec,
    metadata_of,
)
from anydim.ort.notices import warn_once
from anydim.ort.options import SessionOptions
from anydim.ort.profiling import Profile
from anydim.ort.providers import CPU


class Served:
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
        self._engines: Variations[Engine] = Variations(self._made)
        self._lock = threading.RLock()
        self._peer: Peer | None = None
        self._plain: Compiled | None = None  # the only engine, if runs need no other
        if isinstance(source, str) and is_saved(source):
            self._load(source)
        else:
            self._open()

    def _open(self) -> None:
        self._opened = opened(self._source, self._options)
        graph = self._opened.proto.graph
        variable = Variable.of(self._opened)
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
            model = load(path)
        except ArtefactError as error:
            raise InvalidProtobuf(error.problem, error.hint) from error
        self.inputs = args_of(model, model.inputs)
        self.outputs = args_of(model, model.outputs)
        self.overridable = []
        self.metadata = ModelMetadata(graph_name=model.name, producer_name="anydim")
        elements = {spec.name: element_of_spec(spec) for spec in model.inputs}
        self.feeds = Feeds(
            [input_spec(arg, elements.get(arg.name, 0)) for arg in self.inputs], [], None
        )
        self._engines.put(PLAIN, Compiled(model, self._profile))

    def start(self) -> None:
        """Compile the model if nothing depends on the first run; raises an OrtError."""
        if self.feeds.complete:
            engine = self._engines[PLAIN]
            if isinstance(engine, Compiled) and not engine.on_strings:
                self.outputs = completed(self.outputs, engine.model)
                self._plain = engine if self.feeds.ranked else None

    def run(
        self, given: Mapping[str, Any], into: Mapping[str, numpy.ndarray], shrink: bool = False
    ) -> dict[str, Any]:
        """Run the model; all results by name, those in `into` written there. Raises an OrtError."""
        taken, variation = self.feeds.taken(given)
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

    def _made(self, variation: Variation) -> Engine:
        if variation.apart:
            warn_once(
                f"{self._opened.name}: axes with one dim name differ in size; the model is"
                " compiled again with a dim for each axis", self._options.log_severity_level,
            )  # fmt: skip
        try:
            if self._options.libraries:
                raise ModelError("it needs a library of operators for onnxruntime")
            model = varied(self._opened, variation)
            path = self._path if model is self._opened else None
            options = self._options.compile_options.changed(threads=self._options.threads)
            return Compiled(compiled(model, options, path), self._profile)
        except ModelError as error:
            if self._options.fallback:
                return self._fall_back(f"anydim refuses it: {error}")
            raise refused(self._opened, self._source, error) from error
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
