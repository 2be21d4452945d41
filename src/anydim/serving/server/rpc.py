"""The gRPC half of the open inference protocol v2, with its stream and repository extensions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import grpc
import numpy

from anydim.base.errors import InputError, UserError
from anydim.serving.requests import Request
from anydim.serving.server.generation import generation_of, prompt_of
from anydim.serving.server.messages import SERVICE, message
from anydim.serving.server.model_reports import configuration_of, statistics_of, tensor_messages
from anydim.serving.server.repository import check_load
from anydim.serving.server.rest import options_of
from anydim.serving.server.rpc_arrivals import LOOKAHEAD, STREAM, Arrivals, Parse, longest_message
from anydim.serving.server.rpc_connections import RpcConnections
from anydim.serving.server.state import State, error_text, metadata_of, status_of
from anydim.serving.server.tensors import (
    MOST_ID,
    InferRequest,
    check_parameters,
    datatype,
    dtype_of,
    id_of,
    of_bytes,
    raw,
    shape_of,
    string_of,
    strings_of,
)

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT, 404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.INVALID_ARGUMENT, 503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}  # fmt: skip
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents",
    "INT32": "int_contents", "INT64": "int64_contents", "UINT8": "uint_contents",
    "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip
_MOST_STREAMS = 256  # calls of a connection
_EMPTY = ("ServerLive", "ServerReady", "ServerMetadata")  # have empty messages
_COPIES = 4  # of results: arrays, their bytes, the message, and what is on its way
_FINAL = "triton_final_response"  # the parameter that marks the last one
Handler = Callable[[Any, Any], Awaitable[Any]]


class Service:
    """The service `GRPCInferenceService`."""

    def __init__(self, state: State) -> None:
        self._state, self.arrivals = state, Arrivals(state)
        self._parse = message("ModelInferRequest").FromString
        self._made = {name: message(name) for name in (
            "ServerLiveResponse", "ServerReadyResponse", "ModelReadyResponse",
            "ServerMetadataResponse", "ModelMetadataResponse", "ModelInferResponse",
            "ModelConfigResponse", "ModelStatisticsResponse",
            "ModelStreamInferResponse", "RepositoryIndexResponse", "RepositoryModelLoadResponse",
            "RepositoryModelUnloadResponse",
        )}  # fmt: skip

    def handlers(self) -> Any:
        """The handlers of its methods."""
        found = {}
        for name in (*_EMPTY, "ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics",
                     "ModelInfer", "RepositoryIndex", "RepositoryModelLoad",
                     "RepositoryModelUnload"):  # fmt: skip
            parse = None if name in _EMPTY else message(f"{name}Request").FromString
            found[name] = grpc.stream_unary_rpc_method_handler(  # so that we read the message
                self._guard_handler(getattr(self, name), parse), None, _serialize
            )
        found["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
            self.ModelStreamInfer, None, _serialize
        )
        return grpc.method_handlers_generic_handler(SERVICE, found)

    def _guard_handler(self, handler: Handler, parse: Parse | None) -> Handler:
        """The handler, with errors as the protocol's codes. Without `parse`, its message is empty,
        and is not read."""

        async def call(messages: Any, context: Any) -> Any:
            found, failure = await self._outcome(handler, parse, context)
            if failure is not None:
                await context.abort(*failure)
            return found

        return call

    async def _outcome(
        self, handler: Handler, parse: Parse | None, context: Any
    ) -> tuple[Any, tuple[grpc.StatusCode, str] | None]:
        """What a handler returns, or the code and the text of its error. No error that is raised
        beyond this one keeps the message in its traceback."""
        try:
            with self.arrivals.call(0 if parse is None else LOOKAHEAD, context):
                request = None
                if parse is not None:
                    is_long = handler == self.ModelInfer
                    read = self.arrivals.only if is_long else self.arrivals.short
                    request = await read(context, parse)
                return await handler(request, context), None
        except UserError as error:
            return None, _failure(error)
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except Exception as error:
            self._state.log.error("fault", exc_info=error)
            return None, _failure(error)

    # ---- health and metadata ---------------------------------------------------------------------

    async def ServerLive(self, request: Any, context: Any) -> Any:
        return self._made["ServerLiveResponse"](live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:
        return self._made["ServerReadyResponse"](ready=self._state.is_ready)

    async def ModelReady(self, request: Any, context: Any) -> Any:
        try:
            self._state.repository.find(request.name, request.version)
        except UserError:
            return self._made["ModelReadyResponse"](ready=False)
        return self._made["ModelReadyResponse"](ready=True)

    async def ServerMetadata(self, request: Any, context: Any) -> Any:
        return self._made["ServerMetadataResponse"](**self._state.server_metadata())

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        loaded = self._state.repository.find(request.name, request.version)
        found = metadata_of(loaded)
        found.pop("parameters")
        return self._made["ModelMetadataResponse"](**found)

    async def ModelConfig(self, request: Any, context: Any) -> Any:
        found = configuration_of(self._state.repository.find(request.name, request.version))
        tensors = {key: tensor_messages(found[key]) for key in ("input", "output")}
        texts = {key: found[key] for key in ("name", "platform", "backend")}
        return self._made["ModelConfigResponse"](config={**texts, **tensors})

    async def ModelStatistics(self, request: Any, context: Any) -> Any:
        repository, engine = self._state.repository, self._state.batcher.engine
        known = [*repository.loaded.values()]
        if request.name:
            known = [repository.find(request.name, request.version)]
        rows = [statistics_of(each, engine) for each in known]
        for row in rows:
            del row["batch_stats"]
        return self._made["ModelStatisticsResponse"](model_stats=rows)

    # ---- repository ------------------------------------------------------------------------------

    async def RepositoryIndex(self, request: Any, context: Any) -> Any:
        rows = self._state.repository.index()
        rows = [row for row in rows if row["state"] == "READY" or not request.ready]
        return self._made["RepositoryIndexResponse"](models=rows)

    async def RepositoryModelLoad(self, request: Any, context: Any) -> Any:
        check_load(request.parameters)
        await asyncio.to_thread(self._state.repository.load, request.model_name)
        return self._made["RepositoryModelLoadResponse"]()

    async def RepositoryModelUnload(self, request: Any, context: Any) -> Any:
        await asyncio.to_thread(self._state.repository.unload, request.model_name)
        return self._made["RepositoryModelUnloadResponse"]()

    # ---- inference -------------------------------------------------------------------------------

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        """The answer counts until the client has it."""
        call = await self._state.make_room(partial(_Call, self._state, request))
        context.add_done_callback(lambda _: call.release())
        response = self._made["ModelInferResponse"]()
        self._fill(response, request, await call.outcome())
        return response

    async def ModelStreamInfer(self, requests: Any, context: Any) -> None:
        """Answers in the order of the requests; an error is an answer, and the stream goes on. A
        response is free once it is written; grpcio would keep one that is yielded."""
        try:
            with self.arrivals.call(STREAM, context):
                is_open = True
                while is_open:
                    is_open = False
                    async for response in self._responses(context):
                        is_open = True
                        await context.write(response)
                        del response
        except UserError as error:
            await context.write(
                self._made["ModelStreamInferResponse"](error_message=error_text(error))
            )

    async def _responses(self, context: Any) -> AsyncIterator[Any]:
        """What the next request of a stream is answered, one response or more; nothing at its end.
        The request is free when this ends."""
        made = self._made["ModelStreamInferResponse"]
        try:
            request = await self.arrivals.following(context, self._parse)
        except InputError as error:
            yield made(error_message=error_text(error))
            return
        if request is None:
            return
        if request.model_name in self._state.decoders:
            async for response in self._generate(request):
                yield response
            return
        response = made()
        try:
            call = await self._state.make_room(partial(_Call, self._state, request))
        except UserError as error:
            _fail(response, request, error)
            del request  # it does not count
            yield response
            return
        try:
            try:
                self._fill(response.infer_response, request, await call.outcome())
            except UserError as error:
                _fail(response, request, error)
            yield response
        finally:
            call.release()

    async def _generate(self, request: Any) -> AsyncIterator[Any]:
        """A response for each token of a decoder, and an empty one that is the last."""
        made, response = self._made["ModelStreamInferResponse"], self._made["ModelInferResponse"]
        about = {"model_name": request.model_name, "id": request.id[:MOST_ID]}
        try:
            id_of(request.id)
            generation = generation_of(
                {key: _parameter(each) for key, each in request.parameters.items()}
            )
            prompt = prompt_of(_prompt(inputs_of(request)).reshape(-1).tolist())
            served = self._state.decoders[request.model_name]
            async with aclosing(generation.run(served, prompt)) as tokens:
                async for token in tokens:
                    each = made()
                    self._fill(each.infer_response, request, {"token": numpy.array([token])})
                    yield each
            last = response(**about)
            last.parameters[_FINAL].bool_param = True
            yield made(infer_response=last)
        except UserError as error:
            yield made(error_message=error_text(error), infer_response=response(**about))

    def _fill(self, response: Any, request: Any, results: dict[str, numpy.ndarray]) -> None:
        """Write results into a response."""
        loaded = self._state.repository.loaded.get(request.model_name)
        response.model_name, response.id = request.model_name, request.id
        response.model_version = (
            str(loaded.version) if loaded is not None else request.model_version
        )
        for name, array in results.items():
            response.outputs.add(name=name, datatype=datatype(array.dtype), shape=array.shape)
            response.raw_output_contents.append(bytes(raw(array)))


def _failure(error: Exception) -> tuple[grpc.StatusCode, str]:
    return _CODES.get(status_of(error), grpc.StatusCode.INTERNAL), error_text(error)


def _serialize(made: Any) -> bytes:
    found: bytes = made.SerializeToString()
    return found


def _fail(response: Any, request: Any, error: UserError) -> None:
    """Write an error into a response of a stream."""
    response.error_message = error_text(error)
    response.infer_response.model_name = request.model_name[:MOST_ID]
    response.infer_response.id = request.id[:MOST_ID]


class _Call:
    """A request of the batcher, its message and the copies of its results, counted until `release`.

    Raises the errors of `AsyncBatcher.submit`, BusyError if there is no memory for the message.
    """

    def __init__(self, state: State, request: Any) -> None:
        self._batcher = state.batcher
        self._waiting: Request | None = None
        state.repository.find(request.model_name, request.model_version)
        self._held = request.ByteSize()
        self._batcher.engine.hold(self._held, "the message of the request")
        try:
            parameters = {key: _parameter(each) for key, each in request.parameters.items()}
            for each in request.outputs:
                check_parameters(each.parameters, f"output '{each.name}'")
            outputs = tuple(each.name for each in request.outputs) or None
            found = InferRequest(
                inputs_of(request), id_of(request.id), outputs, {}, True, parameters
            )
            self._waiting = self._batcher.submit(
                found.inputs, request.model_name, outputs=outputs, keep=_COPIES,
                within=state.seconds_on_the_loop(), **options_of(found),
            )  # fmt: skip
        except BaseException:
            self.release()
            raise

    async def outcome(self) -> dict[str, numpy.ndarray]:
        """The results."""
        assert self._waiting is not None
        found: dict[str, numpy.ndarray] = await self._batcher.outcome(self._waiting)
        return found

    def release(self) -> None:
        """Count nothing more."""
        held, self._held = self._held, 0
        if held:
            self._batcher.engine.unhold(held)
        if self._waiting is not None:
            self._batcher.release(self._waiting)


def _prompt(given: dict[str, numpy.ndarray]) -> numpy.ndarray:
    """The tokens of a prompt; raises InputError for other inputs."""
    found = next(iter(given.values()), numpy.zeros(0))
    is_row = found.ndim == 1 or (found.ndim == 2 and len(found) == 1)
    if len(given) != 1 or not is_row or found.dtype.kind not in "iu":
        raise InputError("a prompt is one input: integers [n] or [1, n]")
    return found


def _parameter(given: Any) -> Any:
    kind = given.WhichOneof("parameter_choice")
    return None if kind is None else getattr(given, kind)


def inputs_of(request: Any) -> dict[str, numpy.ndarray]:
    """The arrays of a request; raises InputError."""
    raw = request.raw_input_contents
    found: dict[str, numpy.ndarray] = {}
    if raw and len(raw) != len(request.inputs):
        raise InputError(f"{len(request.inputs)} inputs, and {len(raw)} raw contents")
    for number, each in enumerate(request.inputs):
        where = f"input '{each.name}'"
        if each.name in found:
            raise InputError(f"{where} is given twice")
        check_parameters(each.parameters, where)
        if raw and each.HasField("contents"):
            raise InputError(f"{where} has contents, and the request has raw contents",
                             "send one of them")  # fmt: skip
        dtype, shape = dtype_of(where, each.datatype), shape_of(where, list(each.shape))
        if raw:
            found[each.name] = of_bytes(where, raw[number], dtype, shape)
            continue
        field = _CONTENTS.get(each.datatype)
        if field is None:
            raise InputError(f"{where}: {each.datatype} comes as raw contents only")
        if dtype.kind == "O":
            texts = [string_of(where, *row) for row in enumerate(each.contents.bytes_contents)]
            found[each.name] = strings_of(where, texts, shape)
            continue
        values = numpy.array(getattr(each.contents, field))
        if dtype.kind in "iu" and values.size:
            limits = numpy.iinfo(dtype)
            if int(values.min()) < limits.min or int(values.max()) > limits.max:
                raise InputError(f"{where}: a number does not fit {each.datatype}")
        found[each.name] = of_bytes(where, values.astype(dtype).tobytes(), dtype, shape)
    return found


async def start(state: State, address: str, most: int) -> tuple[Any, int, RpcConnections]:
    """A running gRPC server at an address with a port, its port, and its connections, at most
    `most`; raises RuntimeError for a port that is taken."""
    size = longest_message(state.most_body)
    server = grpc.aio.server(options=[
        ("grpc.max_allowed_incoming_connections", most),
        ("grpc.max_receive_message_length", size), ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0), ("grpc.max_metadata_size", 1 << 14),
        ("grpc.http2.lookahead_bytes", LOOKAHEAD), ("grpc.http2.bdp_probe", 0),
        ("grpc.max_concurrent_streams", _MOST_STREAMS),
    ])  # fmt: skip
    service = Service(state)
    server.add_generic_rpc_handlers((service.handlers(),))
    bound = server.add_insecure_port(address)
    connections = RpcConnections(bound, most, lambda: len(state.clients))
    service.arrivals.connections = connections
    await server.start()
    return server, bound, connections
