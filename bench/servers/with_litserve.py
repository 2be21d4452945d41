"""A server of LitServe with onnxruntime, one thread: `with_litserve.py FILE PORT BATCH`.

Groups are padded to their longest text.
"""

from __future__ import annotations

import sys
from typing import Any

import litserve
import numpy
import onnxruntime
from fastapi import Response

RESULT = "sentence_embedding"


class Encoder(litserve.LitAPI):
    path = ""

    def setup(self, device: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        providers = ["CPUExecutionProvider"]
        self.session = onnxruntime.InferenceSession(self.path, options, providers=providers)

    def decode_request(self, request):  # type: ignore[no-untyped-def]  # FastAPI reads annotations
        return numpy.array(request["input_ids"], numpy.int64)

    def batch(self, rows: list[numpy.ndarray]) -> Any:
        ids = numpy.zeros((len(rows), max(map(len, rows))), numpy.int64)
        mask = numpy.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : len(row)], mask[number, : len(row)] = row, 1
        return {"input_ids": ids, "attention_mask": mask}

    def predict(self, given: Any) -> Any:
        single = not isinstance(given, dict)
        found = self.session.run([RESULT], self.batch([given]) if single else given)[0]
        return found[0] if single else found

    def unbatch(self, output: Any) -> list[Any]:
        return list(output)

    def encode_response(self, output: Any) -> Response:
        return Response(numpy.ascontiguousarray(output).tobytes())


if __name__ == "__main__":
    size = int(sys.argv[3])
    api = Encoder(max_batch_size=size, batch_timeout=0.002 if size > 1 else 0.0)
    api.path = sys.argv[1]
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(port=int(sys.argv[2]), host="127.0.0.1", generate_client_file=False)
