"""A server of kserve with onnxruntime, one thread: `with_kserve.py FILE PORT BATCH RESULT`.

kserve has no batches.
"""

from __future__ import annotations

import sys
from typing import Any

import onnxruntime
from kserve import InferOutput, InferResponse, Model, ModelServer


class Encoder(Model):
    def __init__(self, path: str, result: str) -> None:
        super().__init__("minilm")
        self.result = result
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        providers = ["CPUExecutionProvider"]
        self.session = onnxruntime.InferenceSession(path, options, providers=providers)
        self.ready = True

    async def predict(self, payload: Any, *rest: Any, **named: Any) -> InferResponse:
        given = {each.name: each.as_numpy() for each in payload.inputs}
        (found,) = self.session.run([self.result], given)
        output = InferOutput(self.result, list(found.shape), "FP32")
        output.set_data_from_numpy(found, binary_data=True)
        name = payload.id or "1"
        return InferResponse(name, "minilm", [output], use_binary_outputs=True)


if __name__ == "__main__":
    server = ModelServer(http_port=int(sys.argv[2]), enable_grpc=False, workers=1)
    server.start([Encoder(sys.argv[1], sys.argv[4])])
