"""InferenceSession: a model that is compiled once and run through onnxruntime's interface."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy

from anydim.api.compile_options import Options
from anydim.base.errors import TimeLimitError
from anydim.ort.binding import IOBinding
from anydim.ort.errors import Fail, InvalidArgument, OrtError, TypeRefused, ValueRefused
from anydim.ort.metadata import ModelMetadata, NodeArg
from anydim.ort.notices import warn_once
from anydim.ort.options import FALLBACK_ENTRY, PEER, RunOptions, SessionOptions
from anydim.ort.profiling import Profile
from anydim.ort.providers import CPU, MemoryInfo, normalise_providers
from anydim.ort.served import ServedModel
from anydim.ort.values import OrtValue


class InferenceSession:
    """A model of an ONNX file, of its bytes, or of a file that `Model.save` wrote.

    `providers` other than the CPU's are dropped with a warning. `fallback="onnxruntime"` lets the
    installed onnxruntime run what anydim rejects; a warning states the reason. Raises NoSuchFile,
    InvalidProtobuf, InvalidGraph, NotImplemented or Fail for a model that cannot be opened.
    """

    def __init__(
        self, path_or_bytes: Any, sess_options: SessionOptions | None = None,
        providers: Any = None, provider_options: Any = None, *, fallback: str | None = None,
        compile_options: Options | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        self._options = SessionOptions() if sess_options is None else sess_options.copy()
        if fallback is not None:
            self._options.add_session_config_entry(FALLBACK_ENTRY, fallback)
        if compile_options is not None:
            self._options.compile_options = compile_options
        if self._options.fallback not in ("", PEER):
            raise ValueRefused(f"fallback is '{self._options.fallback}', expected '{PEER}'")
        self._profile: Profile | None = None
        if self._options.enable_profiling:
            self._profile = Profile(self._options.profile_file_prefix)
            weakref.finalize(self, self._profile.end)
        for text in self._options.unmet():
            warn_once(text, self._options.log_severity_level)
        self.set_providers(providers, provider_options)
        with self._time_phase("model_loading"):
            source = _source(path_or_bytes)
            self._served = ServedModel(source, self._options, self._profile)
        with self._time_phase("session_initialization"):
            self._served.start()
        self._names = [arg.name for arg in self._served.outputs]

    # ---- running -----------------------------------------------------------------------------

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:  # fmt: skip
        """The results in the order of `output_names`; without names, all of them in their order.

        `input_feed` has arrays [shapes as in `get_inputs`], OrtValues or lists by name. Raises
        ValueError for a missing input, InvalidArgument for one that does not fit, Fail for a run
        that `RunOptions.terminate` stopped or prevented.
        """
        names = output_names or self._names
        if run_options is None and (names is self._names or self._are_known(names)):
            known = self._served.repeat(input_feed)
            if known is not None:
                return [known[name] for name in names]
        self._served.feeds.missing(input_feed)
        names = self._requested_names(output_names)
        results = self._run(input_feed, run_options, {})
        return [results[name] for name in names]

    def _are_known(self, names: Sequence[str]) -> bool:
        return isinstance(names, (list, tuple)) and all(name in self._names for name in names)

    def _requested_names(self, output_names: Sequence[str] | None) -> Sequence[str]:
        if not output_names:
            return self._names
        if isinstance(output_names, str) or not isinstance(output_names, Sequence):
            raise TypeRefused(f"output_names is {output_names!r}, expected a list of names")
        for name in output_names:
            if name not in self._names:
                raise InvalidArgument(
                    f"Invalid output name:{name}", f"the outputs are {', '.join(self._names)}"
                )
        return output_names

    def _run(
        self, given: Mapping[str, Any], options: RunOptions | None,
        into: Mapping[str, numpy.ndarray],
    ) -> dict[str, Any]:  # fmt: skip
        if options is None:
            return self._ran(given, into, False)
        if not isinstance(options, RunOptions):
            raise TypeRefused(f"run_options is {options!r}, expected RunOptions")
        _refuse_terminated(options)
        try:
            with options.stop.ends():
                return self._ran(given, into, options.shrinks)
        except OrtError as error:
            if isinstance(error.__cause__, TimeLimitError):
                _refuse_terminated(options)
            raise

    def _ran(
        self, given: Mapping[str, Any], into: Mapping[str, numpy.ndarray], shrink: bool
    ) -> dict[str, Any]:
        if self._profile is None:
            return self._served.run(given, into, shrink)
        with self._time_phase("model_run"):
            return self._served.run(given, into, shrink)

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:  # fmt: skip
        """`run` with OrtValues in and out."""
        results = self.run(output_names, input_dict_ort_values, run_options)
        return [OrtValue(value) for value in results]

    def run_async(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None], user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:  # fmt: skip
        """`run` in its own thread: `callback(results, user_data, error text)`."""
        self._served.feeds.missing(input_feed)
        self._requested_names(output_names)

        def work() -> None:
            try:
                results, problem = self.run(output_names, input_feed, run_options), ""
            except Exception as error:  # the callback receives any error
                results, problem = [], str(error)
            callback(results, user_data, problem)

        threading.Thread(target=work, name="anydim.ort run_async", daemon=True).start()

    def io_binding(self) -> IOBinding:
        """A new, empty binding."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run on the bound inputs into the bound outputs. Raises RuntimeError."""
        if iobinding.session is not self:
            raise ValueRefused("IOBinding must be used with the session that created it.")
        if run_options is None and iobinding.repeat_run(self._served.repeat):
            return
        iobinding.run(lambda given, into: self._run(given, run_options, into))

    def run_with_ortvaluevector(
        self, run_options: RunOptions | None, feed_names: Sequence[str], feeds: Sequence[OrtValue],
        fetch_names: Sequence[str], fetches: list[Any], fetch_devices: Any,
    ) -> None:  # fmt: skip
        """Append the results to `fetches`."""
        given = dict(zip(feed_names, feeds))
        fetches.extend(self.run_with_ort_values(fetch_names, given, run_options))

    # ---- properties --------------------------------------------------------------------------

    @property
    def input_names(self) -> list[str]:
        """All inputs that a run accepts; those with values in the file come last."""
        return self._served.feeds.names

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that a run requires."""
        return self._served.inputs

    def get_outputs(self) -> list[NodeArg]:
        """The outputs of a run."""
        return self._served.outputs

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Optional inputs: those that the file has values for."""
        return self._served.overridable

    def get_modelmeta(self) -> ModelMetadata:
        """The metadata that the producer of the file wrote."""
        return self._served.metadata

    def get_session_options(self) -> SessionOptions:
        """The options that the session was created with."""
        return self._options

    def get_providers(self) -> list[str]:
        """The execution provider: the CPU."""
        return [CPU]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of that provider, as they were given."""
        return {CPU: self._provider_options}

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Check names as onnxruntime does; the CPU always runs."""
        self._provider_options = normalise_providers(providers, provider_options).get(CPU, {})

    def get_input_memory_infos(self) -> list[MemoryInfo]:
        """The memory of each input."""
        return [MemoryInfo() for _ in self._served.inputs]

    def get_output_memory_infos(self) -> list[MemoryInfo]:
        """The memory of each output."""
        return [MemoryInfo() for _ in self._served.outputs]

    def enable_fallback(self) -> None:
        """No-op: it concerns execution providers, and there is one."""

    def disable_fallback(self) -> None:
        """No-op, as above."""

    def end_profiling(self) -> str:
        """Write the profile and return its file name; '' if none is open."""
        return self._profile.end() if self._profile is not None else ""

    def get_profiling_start_time_ns(self) -> int:
        """The start of profiling, a value of `time.monotonic_ns`."""
        return self._profile.start_ns if self._profile is not None else 0

    def _time_phase(self, name: str) -> Any:
        return self._profile.event("Session", name) if self._profile is not None else nullcontext()

    def __reduce__(self) -> Any:
        raise TypeRefused("cannot pickle an InferenceSession", "pickle its path and make it again")


def _refuse_terminated(options: RunOptions) -> None:
    if options.stop.requested:
        raise Fail("Exiting due to terminate flag being set to true.")


def _source(path_or_bytes: Any) -> str | bytes:
    if isinstance(path_or_bytes, (str, os.PathLike)):
        return os.fsdecode(path_or_bytes)
    if isinstance(path_or_bytes, bytes):
        return path_or_bytes
    raise TypeRefused(f"Unable to load from type '{type(path_or_bytes)}'")
