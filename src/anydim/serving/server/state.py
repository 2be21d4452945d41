"""State shared by the endpoints of a server: batcher, repository, metadata, errors and log."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from anydim.base.cache import version
from anydim.base.errors import (
    BusyError,
    InputError,
    MemoryLimitError,
    OptionError,
    OutOfMemoryError,
    TimeLimitError,
    UserError,
)
from anydim.runtime.lists import RaggedPort
from anydim.runtime.program.string_adapter import StringAdapter
from anydim.runtime.signature import TensorSpec
from anydim.serving import AsyncBatcher
from anydim.serving.process_memory import resident_bytes
from anydim.serving.report import prometheus
from anydim.serving.server.clients import Clients
from anydim.serving.server.decoders import ServedDecoder
from anydim.serving.server.repository import Loaded, Repository
from anydim.serving.server.tensors import DATATYPES, datatype

EXTENSIONS = [
    "binary_tensor_data",
    "model_configuration",
    "statistics",
    "model_repository",
    "model_repository(unload_dependents)",
]
CALL_ON_THE_LOOP = 0.020  # seconds
MOST_TEXT = 1 << 12  # characters of an error: it may have names that a client sent
CAUSE_SECONDS = 60.0  # between two lines of the log for one cause
_CAUSE, _MOST_CAUSES = 200, 256  # characters of a cause; causes that are kept
_FREED = 0.002  # seconds until a request that has ended holds nothing
Made = TypeVar("Made")
_RESIDENT = """\
# HELP process_resident_memory_bytes Bytes of memory of the process.
# TYPE process_resident_memory_bytes gauge
"""
_STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (MemoryLimitError, 413), (BusyError, 503), (OutOfMemoryError, 503), (TimeLimitError, 504),
    (InputError, 400), (OptionError, 404), (UserError, 400), (MemoryError, 503),
)  # fmt: skip


def status_of(error: BaseException) -> int:
    """The HTTP status of an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def error_text(error: BaseException) -> str:
    """Return the message of an error for clients: user errors in full, no internal details."""
    if isinstance(error, UserError):
        text = f"{error.problem}; {error.hint}" if error.hint else error.problem
        return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}..."
    if isinstance(error, MemoryError):
        return "the server has no memory for the request; send it later, or split it"
    return "a fault of the server; its log has it"


class State:
    """The state of a running server. `most_body` is the limit of a request body, in bytes."""

    def __init__(
        self, batcher: AsyncBatcher, repository: Repository, most_body: int, clients: Clients
    ) -> None:
        self.batcher, self.repository, self.most_body = batcher, repository, most_body
        self.clients = clients
        self.slow: list[Callable[[], bool]] = [clients.give_way]  # what ends slow requests
        self.decoders: dict[str, ServedDecoder] = {}
        self.stopping = asyncio.Event()  # set once no request is begun any more
        self.tasks: Collection[Any] = ()  # of requests over HTTP that are not answered
        self.rpc_calls = 0  # calls over gRPC that are not answered
        self.started = time.time()
        self.log = logging.getLogger("anydim.server")

    def seconds_on_the_loop(self) -> float:
        """Return how long a call may block the event loop: 0 if there are other requests."""
        return CALL_ON_THE_LOOP if len(self.tasks) + self.rpc_calls <= 1 else 0.0

    async def make_room(self, take: Callable[[], Made]) -> Made:
        """Return what `take` returns; while it raises BusyError, abort requests that arrive
        slowly, to free their memory, and retry."""
        while True:
            try:
                return take()
            except BusyError:
                if not self.give_way():
                    raise
            await asyncio.sleep(_FREED)

    def give_way(self) -> bool:
        """Abort a request that arrives slowly, over HTTP or gRPC; return whether there was one."""
        return any(each() for each in self.slow)

    @property
    def is_ready(self) -> bool:
        """Whether the server accepts requests: a model is loaded, and it is not stopping."""
        return not self.stopping.is_set() and bool(self.repository.loaded or self.decoders)

    def prometheus(self) -> str:
        """The metrics of models and decoders."""
        decoders = {name: each.decoder.metrics() for name, each in self.decoders.items()}
        resident = f"{_RESIDENT}process_resident_memory_bytes {resident_bytes()}\n"
        return prometheus(self.batcher.metrics(), decoders) + resident

    def server_metadata(self) -> dict[str, Any]:
        """The protocol's description of the server."""
        return {"name": "anydim", "version": version(), "extensions": EXTENSIONS}


def metadata_of(loaded: Loaded) -> dict[str, Any]:
    """The protocol's description of a model: free sizes are -1; `dims` has their bounds."""
    inputs, outputs = tensors_of(loaded)
    return {
        "name": loaded.name, "versions": [str(loaded.version)], "platform": "anydim",
        "inputs": inputs, "outputs": outputs, "parameters": {"dims": dims_of(loaded)},
    }  # fmt: skip


def tensors_of(loaded: Loaded) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Inputs and outputs as the protocol describes them, as the source of a model has them."""
    model = loaded.model
    if isinstance(model.adapter, StringAdapter):
        described = [[_of_port(port) for port in ports] for ports in model.adapter.ports]
        return described[0], described[1]
    ports = {name: port for name, port in model.lists.items() if isinstance(port, RaggedPort)}
    specs = {spec.name: spec for spec in (*model.inputs, *model.outputs)}
    given = model.input_names()
    masks = [name for name, port in ports.items() if port.ones and name not in given]
    inputs = [_tensor_row(name, ports.get(name), specs) for name in (*given, *masks)]
    outputs = [
        _tensor_row(spec.key, ports.get(spec.key), {**specs, spec.key: spec})
        for spec in model.outputs
    ]
    return inputs, outputs


def _tensor_row(
    name: str, port: RaggedPort | None, specs: Mapping[str, TensorSpec]
) -> dict[str, Any]:
    if port is None:
        spec = specs[name]
        kind, sizes = datatype(spec.dtype), [*spec.shape]
        return {"name": name, "datatype": kind, "shape": [_size(size) for size in sizes]}
    kind = "INT64" if port.ones else datatype(specs[port.values].dtype)
    return {"name": name, "datatype": kind, "shape": [-1, *(_size(size) for size in port.shape)]}


def _of_port(port: Any) -> dict[str, Any]:
    """A tensor of a model with strings."""
    kind = port.type.removeprefix("tensor(").removesuffix(")")
    known = {"string": "BYTES", "float": "FP32", "double": "FP64"}
    shape = [size if isinstance(size, int) else -1 for size in port.shape]
    return {"name": port.name, "datatype": known.get(kind) or DATATYPES.get(kind, kind.upper()),
            "shape": shape}  # fmt: skip


def _size(size: Any) -> int:
    return -1 if size.constant is None else int(size.constant)


def dims_of(loaded: Loaded) -> dict[str, list[int | None]]:
    """Return the bounds of the dims of a model, as its callers know them."""
    model = loaded.model
    dims = {dim.name: [dim.lo, dim.hi] for dim in model.dims.dims}
    port = next((p for p in model.lists.values() if isinstance(p, RaggedPort)), None)
    if port is not None:
        for name in (*port.table.totals, *port.table.longest):
            dims.pop(name, None)
        dims.update({dim.name: [dim.lo, dim.hi] for dim in port.table.dims})
    return dims


class JsonLines(logging.Formatter):
    """A record as a line of JSON: time, level, event, and what else it says."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "time": round(record.created, 3), "level": record.levelname.lower(),
            "event": record.getMessage(), **getattr(record, "facts", {}),
        }  # fmt: skip
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class OncePerCause(logging.Filter):
    """Lets one warning or error of a cause pass in `CAUSE_SECONDS`; the next one says how many
    there were between."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[Any, tuple[float, int]] = {}
        """The time of the last line of each cause, and how many there were since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is written."""
        if record.levelno < logging.WARNING:
            return True
        facts = getattr(record, "facts", {})
        what = str(record.exc_info[1]) if record.exc_info else repr(facts)
        cause = record.name, record.getMessage()[:_CAUSE], what[:_CAUSE]
        last, count = self._seen.get(cause, (-CAUSE_SECONDS, 0))
        if record.created - last < CAUSE_SECONDS:
            self._seen[cause] = last, count + 1
            return False
        if len(self._seen) >= _MOST_CAUSES:
            self._seen = {}
        self._seen[cause] = record.created, 0
        if count:
            record.facts = {**facts, "repeated": count}
        return True


def start_log(quiet: bool) -> logging.Logger:
    """The log of the process on the standard error stream, which need not be writeable.

    Libraries log warnings there, uvicorn errors only: malformed requests are no fault of the
    server. A cause is logged once a minute.
    """
    logging.raiseExceptions = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    handler.addFilter(OncePerCause())
    logging.getLogger().handlers[:] = [handler]
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    log = logging.getLogger("anydim.server")
    log.setLevel(logging.WARNING if quiet else logging.INFO)
    return log
