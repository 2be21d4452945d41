"""A server of Ray Serve with onnxruntime, one replica with one thread: `with_ray.py FILE PORT BATCH
RESULT`.

Groups are padded to their longest text, or their widest image.
"""

from __future__ import annotations

import base64
import signal
import sys
from typing import Any

import numpy
import onnxruntime
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import Response


@serve.deployment(num_replicas=1, max_ongoing_requests=1024, ray_actor_options={"num_cpus": 1})
class Encoder:
    def __init__(self, path: str, size: int, result: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        providers = ["CPUExecutionProvider"]
        self.session = onnxruntime.InferenceSession(path, options, providers=providers)
        self.result = result
        self.together.set_max_batch_size(size)
        self.together.set_batch_wait_timeout_s(0.002 if size > 1 else 0.0)

    async def __call__(self, request: Request) -> Response:
        return Response(await self.together(await request.json()))

    @serve.batch(max_batch_size=1, batch_wait_timeout_s=0.0)
    async def together(self, requests: list[Any]) -> list[bytes]:
        rows = [decoded(each) for each in requests]
        given = images(rows) if rows[0].ndim > 1 else texts(rows)
        name = self.session.get_inputs()[0].name
        feeds = {name: given} if isinstance(given, numpy.ndarray) else given
        (found,) = self.session.run([self.result], feeds)
        return [numpy.ascontiguousarray(row).tobytes() for row in found]


def decoded(request: Any) -> numpy.ndarray:
    if "pixels" in request:
        pixels = numpy.frombuffer(base64.b64decode(request["pixels"]), numpy.float32)
        return pixels.reshape(request["shape"])
    return numpy.array(request["input_ids"], numpy.int64)


def texts(rows: list[numpy.ndarray]) -> dict[str, numpy.ndarray]:
    ids = numpy.zeros((len(rows), max(map(len, rows))), numpy.int64)
    mask = numpy.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, : len(row)], mask[number, : len(row)] = row, 1
    return {"input_ids": ids, "attention_mask": mask}


def images(rows: list[numpy.ndarray]) -> numpy.ndarray:
    widest = max(row.shape[2] for row in rows)
    made = numpy.zeros((len(rows), *rows[0].shape[:2], widest), numpy.float32)
    for number, row in enumerate(rows):
        made[number, :, :, : row.shape[2]] = row
    return made


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # which ends the cluster
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2])})
    serve.run(Encoder.bind(sys.argv[1], int(sys.argv[3]), sys.argv[4]), route_prefix="/predict")
    signal.pause()
