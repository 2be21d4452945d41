"""Servers that `bench.serving` compares with; runs with an interpreter that has them.

    python serving_peers.py encoder.onnx PORT kserve 1
    python serving_peers.py encoder.onnx PORT litserve BATCH

Both run onnxruntime with one thread. Groups of LitServe are padded to their longest text.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy
import onnxruntime

RESULT = "sentence_embedding"


def session(path: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def kserve(path: str, port: int) -> None:
    from kserve import InferOutput, InferResponse, Model, ModelServer

    class Encoder(Model):
        def __init__(self) -> None:
            super().__init__("minilm")
            self.session = session(path)
            self.ready = True

        async def predict(self, payload: Any, *rest: Any, **named: Any) -> InferResponse:
            given = {each.name: each.as_numpy() for each in payload.inputs}
            (found,) = self.session.run([RESULT], given)
            output = InferOutput(RESULT, list(found.shape), "FP32")
            output.set_data_from_numpy(found, binary_data=True)
            return InferResponse(payload.id or "1", "minilm", [output])

    ModelServer(http_port=port, enable_grpc=False, workers=1).start([Encoder()])


def litserve(path: str, port: int, batch: int) -> None:
    import litserve as server
    from fastapi import Response

    class Encoder(server.LitAPI):
        def setup(self, device: str) -> None:
            self.session = session(path)

        def decode_request(self, request: Any) -> Any:
            return numpy.array(request["input_ids"], numpy.int64)

        def batch(self, rows: list[numpy.ndarray]) -> Any:
            ids = numpy.zeros((len(rows), max(map(len, rows))), numpy.int64)
            mask = numpy.zeros_like(ids)
            for number, row in enumerate(rows):
                ids[number, : len(row)], mask[number, : len(row)] = row, 1
            return {"input_ids": ids, "attention_mask": mask}

        def predict(self, given: Any) -> Any:
            if not isinstance(given, dict):
                given = self.batch([given])
            return self.session.run([RESULT], given)[0]

        def unbatch(self, output: Any) -> list[Any]:
            return list(output)

        def encode_response(self, output: Any) -> Response:
            return Response(numpy.ascontiguousarray(output).tobytes())

    api = Encoder(max_batch_size=batch, batch_timeout=0.002 if batch > 1 else 0)
    made = server.LitServer(api, accelerator="cpu", workers_per_device=1)
    made.run(port=port, host="127.0.0.1", num_api_servers=1, generate_client_file=False)


if __name__ == "__main__":
    if sys.argv[3] == "kserve":
        kserve(sys.argv[1], int(sys.argv[2]))
    else:
        litserve(sys.argv[1], int(sys.argv[2]), int(sys.argv[4]))
