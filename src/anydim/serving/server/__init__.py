"""The server of `anydim serve`: models over REST and gRPC, by the open inference protocol v2.

Input: files of models, requests over the network; output: answers whose bits are those of a call
alone. `anydim.serving` groups requests; this package needs starlette, uvicorn and grpcio (the
extra `serve`).

    run.py           start, ports, memory, end
    app.py           routes; page.html is the page at /
    rest.py          inference over REST; rpc.py over gRPC, with messages.py, rpc_arrivals.py (bytes
                     before they arrive) and rpc_connections.py
    answers.py       responses, streamed in pieces; asgi.py has types and disconnects
    tensors.py       tensors as JSON and as bytes; heads.py keeps the JSON of earlier requests
    json_bodies.py   JSON of requests, long JSON in pieces
    embeddings.py    /v1/embeddings
    completions.py   /v1/completions and the endpoint of both; chat_completions.py the other one
    sequences.py     the sequences of a request; generation.py its parameters
    decoders.py      decoders and language models
    repository.py    files and versions of models; model_reports.py what Triton's extensions tell
    state.py         what these share; history.py has samples for the page
    connections.py   a connection; clients.py their limits; upgrades.py offers of other protocols
    last_answers.py  connections that end behind an answer
    arrivals.py      `anydim load`: requests in an open loop; loading.py, latency_chart.py
    triton.py        a model for the Python backend of Triton
"""
