"""A server of LitServe with onnxruntime, one thread: `with_litserve.py FILE PORT BATCH RESULT`.

Groups are padded to their longest text, or their widest image.
"""

from __future__ import annotations

import base64
import sys
from typing import Any

import litserve
import numpy
import onnxruntime
from fastapi import Response


class Encoder(litserve.LitAPI):
    path = result = ""

    def setup(self, device: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        providers = ["CPUExecutionProvider"]
        self.session = onnxruntime.InferenceSession(self.path, options, providers=providers)

    def decode_request(self, request):  # type: ignore[no-untyped-def]  # FastAPI reads annotations
        if "pixels" in request:
            pixels = numpy.frombuffer(base64.b64decode(request["pixels"]), numpy.float32)
            return pixels.reshape(request["shape"])
        return numpy.array(request["input_ids"], numpy.int64)

    def batch(self, rows: list[numpy.ndarray]) -> Any:
        if rows[0].ndim > 1:
            return self.images(rows)
        ids = numpy.zeros((len(rows), max(map(len, rows))), numpy.int64)
        mask = numpy.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : len(row)], mask[number, : len(row)] = row, 1
        return {"input_ids": ids, "attention_mask": mask}

    def images(self, rows: list[numpy.ndarray]) -> Any:
        widest = max(row.shape[2] for row in rows)
        made = numpy.zeros((len(rows), *rows[0].shape[:2], widest), numpy.float32)
        for number, row in enumerate(rows):
            made[number, :, :, : row.shape[2]] = row
        return {self.session.get_inputs()[0].name: made}

    def predict(self, given: Any) -> Any:
        single = not isinstance(given, dict)
        found = self.session.run([self.result], self.batch([given]) if single else given)[0]
        return found[0] if single else found

    def unbatch(self, output: Any) -> list[Any]:
        return list(output)

    def encode_response(self, output: Any) -> Response:
        return Response(numpy.ascontiguousarray(output).tobytes())


if __name__ == "__main__":
    size = int(sys.argv[3])
    api = Encoder(max_batch_size=size, batch_timeout=0.002 if size > 1 else 0.0)
    api.path, api.result = sys.argv[1], sys.argv[4]
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(port=int(sys.argv[2]), host="127.0.0.1", generate_client_file=False)
