"""The web application: protocol v2, embeddings, metrics, and the page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from anydim.base.errors import OptionError, UserError
from anydim.serving.server.answers import is_old, without_chunks
from anydim.serving.server.asgi import Gone, Receive, Scope, Send
from anydim.serving.server.chat_completions import ChatCompletion
from anydim.serving.server.completions import Completions, TextCompletion
from anydim.serving.server.embeddings import Embeddings, Tokenizers, error_document, failure
from anydim.serving.server.history import History
from anydim.serving.server.json_bodies import parse_object
from anydim.serving.server.model_reports import configuration_of, statistics_of
from anydim.serving.server.repository import check_load, unknown
from anydim.serving.server.rest import Body, Infer, names_of
from anydim.serving.server.state import State, error_text, metadata_of, status_of

Endpoint = Callable[[Request], Awaitable[Response]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
_MOST_NAMES = 1 << 16  # bytes of a request to load or unload


def application(state: State, tokenizers: Tokenizers, history: History) -> App:
    """The application of a server. Inference does not pass the router, which takes a tenth of a
    millisecond once a call has emptied the caches of the processor."""
    infer = Infer(state)
    others = _make_routes(state, tokenizers, history, infer)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if is_old(scope):
            send = without_chunks(send)
        is_infer = scope.get("method") == "POST" and names_of(scope["path"]) is not None
        await (infer if is_infer else others)(scope, receive, send)

    return app


def _make_routes(state: State, tokenizers: Tokenizers, history: History, infer: Infer) -> Starlette:
    routes: list[BaseRoute] = [
        Route("/v2/models/{name}/infer", infer, methods=["POST"]),
        Route("/v2/models/{name}/versions/{version}/infer", infer, methods=["POST"]),
        Route("/v1/embeddings", Embeddings(state, tokenizers), methods=["POST"]),
        Route("/v1/completions", Completions(state, tokenizers, TextCompletion), methods=["POST"]),
        Route(
            "/v1/chat/completions", Completions(state, tokenizers, ChatCompletion), methods=["POST"]
        ),
        *(Route(path, endpoint) for path, endpoint in _reads(state, history).items()),
        *(Route(path, endpoint, methods=["POST"]) for path, endpoint in _writes(state).items()),
    ]
    return Starlette(routes=routes, exception_handlers={
        UserError: _answer_error, Gone: _answer_disconnect, 404: _missing, 405: _no_method,
    })  # fmt: skip


async def _answer_error(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": error_text(error)}, status_of(error))


async def _answer_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # the client has left


async def _missing(request: Request, error: Exception) -> Response:
    return _no_route(request, f"there is nothing at {request.url.path}", 404, {})


async def _no_method(request: Request, error: Any) -> Response:
    text = f"{request.url.path} takes no {request.method}"
    return _no_route(request, text, 405, error.headers)


def _no_route(request: Request, text: str, status: int, headers: Any) -> Response:
    """An error of a path, in the form that its clients read."""
    is_v1 = request.url.path.startswith("/v1/")
    return JSONResponse(error_document(text, status) if is_v1 else {"error": text}, status, headers)


def _reads(state: State, history: History) -> Mapping[str, Endpoint]:
    """What GET requests read."""
    page = files("anydim.serving.server").joinpath("page.html").read_text("utf-8")

    async def root(request: Request) -> Response:
        return Response(page, media_type="text/html")

    async def status(request: Request) -> Response:
        return JSONResponse(history.document())

    async def metrics(request: Request) -> Response:
        return Response(state.prometheus(), media_type="text/plain; version=0.0.4")

    async def server(request: Request) -> Response:
        return JSONResponse(state.server_metadata())

    async def live(request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(request: Request) -> Response:
        return JSONResponse({"ready": state.is_ready}, 200 if state.is_ready else 503)

    async def model(request: Request) -> Response:
        return JSONResponse(metadata_of(_find_loaded(state, request)))

    async def configuration(request: Request) -> Response:
        return JSONResponse(configuration_of(_find_loaded(state, request)))

    async def statistics(request: Request) -> Response:
        known = (
            [_find_loaded(state, request)]
            if request.path_params
            else state.repository.loaded.values()
        )
        engine = state.batcher.engine
        return JSONResponse({"model_stats": [statistics_of(each, engine) for each in known]})

    async def model_ready(request: Request) -> Response:
        try:
            _find_loaded(state, request)
        except OptionError as error:
            return JSONResponse({"ready": False, "error": error_text(error)}, 404)
        return JSONResponse({"ready": True})

    def known() -> dict[str, Any]:
        return {**state.repository.loaded, **state.decoders}

    def description(name: str) -> dict[str, Any]:
        made = {"id": name, "object": "model", "created": int(state.started), "owned_by": "anydim"}
        opened = state.decoders[name].opened if name in state.decoders else None
        return made if opened is None else {**made, "max_model_len": opened.spec.context}

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [description(name) for name in known()]})

    async def described_model(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in known():
            error = unknown(name, known())
            return JSONResponse(failure(error), status_of(error))
        return JSONResponse(description(name))

    one, version = "/v2/models/{name}", "/v2/models/{name}/versions/{version}"
    return {
        "/": root, "/status": status, "/metrics": metrics, "/v2": server, "/v2/": server,
        "/v2/health/live": live, "/v2/health/ready": ready, "/v1/models": models,
        "/v1/models/{name}": described_model,
        "/v2/models/stats": statistics, f"{one}/stats": statistics, f"{version}/stats": statistics,
        f"{one}/config": configuration, f"{version}/config": configuration,
        one: model, version: model, f"{one}/ready": model_ready, f"{version}/ready": model_ready,
    }  # fmt: skip


def _find_loaded(state: State, request: Request) -> Any:
    known = request.path_params
    return state.repository.find(known["name"], known.get("version", ""))


def _writes(state: State) -> Mapping[str, Endpoint]:
    """What POST requests change: the repository extension."""

    async def index(request: Request) -> Response:
        given = await _body(state, request)
        rows = state.repository.index()
        return JSONResponse([r for r in rows if r["state"] == "READY" or not given.get("ready")])

    async def load(request: Request) -> Response:
        given = (await _body(state, request)).get("parameters") or {}
        check_load(given if isinstance(given, dict) else ("parameters",))
        await asyncio.to_thread(state.repository.load, request.path_params["name"])
        state.log.info("loaded", extra={"facts": {"model": request.path_params["name"]}})
        return JSONResponse({})

    async def unload(request: Request) -> Response:
        await _body(state, request)
        await asyncio.to_thread(state.repository.unload, request.path_params["name"])
        state.log.info("unloaded", extra={"facts": {"model": request.path_params["name"]}})
        return JSONResponse({})

    one = "/v2/repository/models/{name}"
    return {"/v2/repository/index": index, f"{one}/load": load, f"{one}/unload": unload}


async def _body(state: State, request: Request) -> Mapping[str, Any]:
    """The JSON object of a short request; an empty one without a body."""
    body = Body(state, request.scope, most=_MOST_NAMES)
    try:
        text = await body.read(request.receive)
        return parse_object(text) if text else {}
    finally:
        body.free()
