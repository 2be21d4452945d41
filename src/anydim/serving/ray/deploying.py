"""Applications of Ray Serve that serve a model."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from anydim.base.amounts import bytes_of
from anydim.base.errors import MissingError
from anydim.base.user_values import whole_within
from anydim.deploy.load import load
from anydim.runtime.program.callable_program import CallableProgram
from anydim.serving.predictor import Predictor
from anydim.serving.ray.packages import ray_module
from anydim.serving.ray.replica import Replica
from anydim.sizes import LARGEST

_STATS_SECONDS = 2.0  # between two readings of how slow replicas are


def deployment(
    model: str | os.PathLike[str] | CallableProgram, *, memory: int | str = "2 GiB",
    num_replicas: int = 1, threads: int = 1, queue: int = 256, batch: str | None = None,
    name: str | None = None, ray_actor_options: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """An application of Ray Serve, for `ray.serve.run`.

        app = deployment("/models/encoder.anydim", memory="2 GiB", num_replicas=4)
        handle = serve.run(app, route_prefix="/v2/models/encoder")
        result = handle.remote({"input_ids": ids}, outputs=["sentence_embedding"]).result()

    Each replica groups its requests as `AsyncBatcher` does, and a request goes to the replica
    with the least predicted work. Arguments of the handle are those of `AsyncBatcher`, and so are
    its errors. Over HTTP a replica answers POST `.../infer` of protocol v2, and other paths with
    the metadata of the model.

    Args:
        model: The path of a saved model, which each machine has, or a model that can be pickled.
        memory: Most bytes of the process of a replica, its weights included. Ray reserves as much
            memory of the machine.
        num_replicas: How many replicas there are.
        threads: Threads of a call, and cores that Ray reserves for a replica. A model that is
            given as an object has its own threads.
        queue: Most requests that a replica has; further ones wait at their senders.
        batch: As for `Batcher.add`.
        name: The name of the model. None: its own.
        ray_actor_options: Further options of replicas.

    Returns:
        The application.

    Raises:
        MissingError: Ray Serve is not installed, or older than 2.60.
        ArtefactError: The file is no saved model.
        OptionError: The model takes lists or structures.
    """
    serve, config = ray_module("ray.serve"), ray_module("ray.serve.config")
    router = ray_module("ray.serve.request_router").RequestRouter
    if not hasattr(router, "on_request_completed"):
        raise MissingError("Ray is too old", "pip install 'ray[serve]>=2.60'")
    limit = bytes_of(memory)
    whole_within("num_replicas", num_replicas, 1, LARGEST, "give how many replicas there are")
    whole_within("threads", threads, 1, LARGEST, "give the threads of a call")
    whole_within("queue", queue, 1, LARGEST, "give how many requests a replica may have")
    if isinstance(model, CallableProgram):
        given: Any = model
        found, called = model, name or model.name
    else:
        given = os.path.abspath(os.fspath(model))
        found, called = load(given), name or Path(given).stem
    routing = config.RequestRouterConfig(
        request_router_class=import_module("anydim.serving.ray.routing").WorkRouter,
        request_router_kwargs={"predictor": Predictor(found, batch).text()},
        request_routing_stats_period_s=_STATS_SECONDS,
    )
    options = {"num_cpus": threads, "memory": limit, **(ray_actor_options or {})}
    made = serve.deployment(
        Replica, name=called, num_replicas=num_replicas, max_ongoing_requests=queue,
        request_router_config=routing, ray_actor_options=options,
    )  # fmt: skip
    return made.bind(given, called, limit, threads, queue, batch)
