"""A replica of Ray Serve: a process that groups the requests of a model within its memory."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anydim.base.errors import InputError, UserError
from anydim.deploy.load import load
from anydim.runtime.program.callable_program import CallableProgram
from anydim.serving import AsyncBatcher
from anydim.serving.process_memory import bound_the_allocator, room_within
from anydim.serving.ray.packages import ray_module
from anydim.serving.server.answers import Parts
from anydim.serving.server.json_bodies import parse_object
from anydim.serving.server.repository import Loaded
from anydim.serving.server.rest import HEAD, options_of, split
from anydim.serving.server.state import error_text, metadata_of, status_of
from anydim.serving.server.tensors import answer_body, parse_request


class Replica:
    """Serves a model by calls of handles, and by protocol v2 over HTTP.

    `memory` is the limit of the process in bytes, weights included.
    """

    def __init__(
        self, model: str | CallableProgram, name: str, memory: int, threads: int, queue: int,
        batch: str | None,
    ) -> None:  # fmt: skip
        bound_the_allocator()
        found = model if isinstance(model, CallableProgram) else load(model, threads=threads)
        self._loaded = Loaded(name, 1, Path(model if isinstance(model, str) else name), found)
        gc.collect()
        room = room_within(memory, later=found.executable.constant_bytes)
        self._batcher = AsyncBatcher({}, memory=room, queue=queue)
        self._batcher.add(name, found, batch)

    async def __call__(
        self, given: Any, outputs: Sequence[str] | None = None, priority: int = 0,
        deadline: float | None = None,
    ) -> Any:  # fmt: skip
        """The results of a request by name, as those of `Batcher`; or the answer to a request over
        HTTP."""
        if hasattr(given, "scope"):  # of starlette
            return await self._answer(given)
        return await self._batcher(given, outputs=outputs, priority=priority, deadline=deadline)

    def metrics(self) -> dict[str, Any]:
        """As `Batcher.metrics`."""
        return self._batcher.metrics()

    def record_routing_stats(self) -> dict[str, Any]:
        """What routers learn of this replica: measured over predicted time."""
        (served,) = self._batcher.engine.models.values()
        return {"ratio": served.form.costs.ratio}

    # ---- HTTP ------------------------------------------------------------------------------------

    async def _answer(self, request: Any) -> Any:
        responses = ray_module("starlette.responses")
        try:
            if request.method != "POST":
                return responses.JSONResponse(metadata_of(self._loaded))
            body, length = await self._infer(request)
        except Exception as error:
            if not isinstance(error, UserError):
                raise
            return responses.JSONResponse({"error": error_text(error)}, status_of(error))
        if length is None:
            return responses.Response(body, media_type="application/json")
        headers = {HEAD.decode(): str(length)}
        return responses.Response(body, headers=headers, media_type="application/octet-stream")

    async def _infer(self, request: Any) -> tuple[bytes, int | None]:
        if not request.url.path.endswith("/infer"):
            raise InputError(f"{request.url.path} is no path of protocol v2",
                             f"POST /v2/models/{self._loaded.name}/infer")  # fmt: skip
        head, rest = split(dict(request.scope["headers"]), memoryview(await request.body()))
        found = parse_request(parse_object(head), rest)
        results = await self._batcher(found.inputs, outputs=found.outputs, **options_of(found))
        text, length = answer_body(self._loaded.name, "1", found, results)
        return text.whole() if isinstance(text, Parts) else text, length
