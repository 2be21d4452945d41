"""Hostile requests to language models: `python -m tests.errors.hostile_completions`.

Laws: every value of every field is answered within `SECONDS`, with 200 or a status that says what
is wrong; a value that has no meaning is refused; clients that leave in mid-stream, or read nothing,
leave no sequence behind; requests that come byte by byte, or behind each other on one connection,
have the answers of requests alone; afterwards, and meanwhile, others have the same answers.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.unit.serving.language_models.tiny_models import write_folder
from tests.unit.serving.server.running import Running, running

SECONDS = 20.0
_HELD = (
    r'^anydim_(?:decoder_rows|decoder_waiting|memory_bytes)\{(?:model="tiny"|use="requests")\} (.+)'
)
TEXTS, CHATS, VECTORS = "/v1/completions", "/v1/chat/completions", "/v1/embeddings"
USUAL: dict[str, dict[str, Any]] = {
    TEXTS: {"prompt": "the quick", "max_tokens": 6},
    CHATS: {"messages": [{"role": "user", "content": "a model"}], "max_tokens": 6},
    VECTORS: {"input": ["the quick", "a model of words"]},
}
_NOT_A_NUMBER = ("1", "", [], {}, True, [1])
_NOT_A_FLAG = (0, 1, "true", [], {})
_NOT_A_COUNT = (*_NOT_A_NUMBER, -1, 0.5, 2**63, 10**30)
_TEXT_FORM = {"type": "json_schema", "json_schema": {"schema": {"type": "string"}}}
WRONG: dict[str, dict[str, tuple[Any, ...]]] = {
    TEXTS: {
        "prompt": ("", [], {}, 5, None, True, [None], [[]], ["a", 1], [1, "a"], [[1], "a"], [-1],
                   [10**9], [2**70], "x" * 9000, ["a"] * 65),
        "echo": (True, 1, "x"), "best_of": (2, True, "1"), "suffix": ("x", 1),
        "logprobs": (*_NOT_A_COUNT, 21),
    },
    CHATS: {
        "messages": ("", [], {}, 5, None, "a", [5], [{}], [{"role": "user"}], [{"content": "a"}],
                     [{"role": 1, "content": "a"}], [{"role": "user", "content": 5}],
                     [{"role": "user", "content": [{"type": "image_url"}]}],
                     [{"role": "user", "content": "a", "tool_calls": 5}],
                     [{"role": "user", "content": "x" * 9000}]),
        "logprobs": _NOT_A_FLAG, "top_logprobs": (1, -1, 21, "1", True), "functions": ([], {}),
        "parallel_tool_calls": (0, 1, False, "x"), "tools": (5, {}, "x", [5], [{}], [None]),
        "tool_choice": ("x", 5, {}, "required", [], {"type": "function"}),
        "max_completion_tokens": (*_NOT_A_COUNT, 0), "chat_template": ("x",),
        "chat_template_kwargs": ({"a": 1}, "x"), "continue_final_message": (True, 1),
    },
    VECTORS: {
        "input": ("", [], {}, 5, None, True, [None], [[]], ["a", 1], [-1], [10**9], "x" * 9000,
                  [""]),
        "dimensions": (*_NOT_A_COUNT, 0, 65), "encoding_format": ("x", 5, [], True),
    },
}  # fmt: skip
_BOTH: dict[str, tuple[Any, ...]] = {
    "model": ("nothing", 5, [], {}, True), "max_tokens": (*_NOT_A_COUNT, 0),
    "temperature": (*_NOT_A_NUMBER, -1), "top_p": (*_NOT_A_NUMBER, -1, 0, 2),
    "top_k": _NOT_A_COUNT, "min_p": (*_NOT_A_NUMBER, -1, 2), "n": (*_NOT_A_COUNT, 0, 17),
    "seed": _NOT_A_COUNT, "stream": _NOT_A_FLAG, "stream_options": (5, "x", [], [1],
                                                                    {"include_usage": 1}),
    "stop": (5, True, {}, "", [""], [5], [None], ["a"] * 99, "x" * 9000),
    "logit_bias": (5, [], "x", {"a": 1}, {"1": "1"}, {"-1": 1}, {"1": 1e9}, {"1": []}),
    "presence_penalty": _NOT_A_NUMBER, "frequency_penalty": _NOT_A_NUMBER,
    "repetition_penalty": (*_NOT_A_NUMBER, 0, -1), "priority": ("1", [], 0.5, 2**40),
    "stop_token_ids": ("x", {}, ["a"], [True], [1] * 99), "timeout": ("x", 0, -1, 0.5, True),
    "response_format": (5, "x", [], {}, {"type": "x"}, {"type": 5}, {"type": "json_schema"},
                        {"type": "json_schema", "json_schema": {"schema": 5}},
                        {"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}}),
    "structured_outputs": (5, "x", [], {}, {"x": 1}, {"regex": "("}, {"regex": 5},
                           {"grammar": "x: y"}, {"json": "{"}, {"regex": "a", "json": {}}),
    "guided_json": ({},), "guided_regex": ("a",), "grammar": ("start: 'a'",), "regex": ("a",),
    "min_tokens": (1, True), "ignore_eos": (True, 1), "use_beam_search": (True,),
}  # fmt: skip
FORMS: tuple[dict[str, Any], ...] = (
    {"type": "array", "minItems": 10**9, "items": {"type": "string"}}, {"$ref": "#"},
    {"$ref": "http://x/y"}, {"type": "string", "minLength": 10**6}, {"enum": ["a" * 900] * 60},
    {"type": "string", "pattern": "(a|a)*" * 50}, {"type": "string", "pattern": "(a{999}){999}"},
    {"type": "integer", "minimum": -(10**300)}, {"not": {}}, {"allOf": [{"type": "string"}] * 999},
    {"anyOf": [{"type": "object", "properties": {f"{n}{k}": {"type": "integer"} for k in range(99)}}
               for n in range(20)]},
)  # fmt: skip
"""Schemas that are hard to keep."""
_RAW = (
    b"", b"[", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000,
    b'{"prompt":"\\ud800"}', b'{"prompt":"a","max_tokens":1e400}', b'{"prompt":NaN}',
    b'{"messages":[{"role":"user","content":"\\ud800"}]}', b'{"prompt":"a","seed":' + b"1" * 5000,
    b'{"input":"\\ud800"}', b'{"prompt":"' + b"a" * (3 << 20) + b'"}',
)  # fmt: skip


def wrong_requests(path: str) -> Iterator[tuple[str, Any]]:
    """Bodies that have to be refused, with what is wrong in them."""
    fields = WRONG[path] if path == VECTORS else {**WRONG[path], **_BOTH}
    for name, values in fields.items():
        for value in values:
            yield f"{name}={value!r}"[:99], {**USUAL[path], name: value}
    for text in _RAW:
        yield f"{text[:40]!r}", text


def answers(server: Running) -> list[Any]:
    """What usual requests are answered, without names and times."""
    made = []
    for path, body in USUAL.items():
        status, _, text = server.request("POST", path, body)
        found = json.loads(text)
        made.append((status, {key: value for key, value in found.items()
                              if key not in ("id", "created")}))  # fmt: skip
    return made


def is_idle(server: Running, seconds: float = 30.0) -> bool:
    """Whether no sequence runs or waits, and no request holds memory, within some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        text = server.request("GET", "/metrics")[2].decode()
        held = re.findall(_HELD, text, re.MULTILINE)
        if len(held) == 3 and not any(float(each) for each in held):
            return True
        time.sleep(0.05)
    return False


def refused(server: Running, path: str) -> list[str]:
    """Wrong requests that are not refused in time, with a text that says why."""
    faults = []
    for what, body in wrong_requests(path):
        start = time.monotonic()
        status, _, text = server.request("POST", path, body)
        seconds = time.monotonic() - start
        if status not in (400, 404, 413) or len(text) < 20 or seconds > SECONDS:
            faults.append(f"{path} {what}: {status} in {seconds:.1f} s: {text[:99]!r}")
    return faults


def hard_forms(server: Running) -> list[str]:
    """Schemas that are answered neither in time nor with a status that says why."""
    faults = []
    for schema in FORMS:
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        start = time.monotonic()
        status, _, text = server.request("POST", TEXTS, {**USUAL[TEXTS], "response_format": form})
        seconds = time.monotonic() - start
        if status not in (200, 400) or seconds > SECONDS:
            faults.append(f"{str(schema)[:99]}: {status} in {seconds:.1f} s: {text[:99]!r}")
    return faults


def leaving(server: Running, count: int, seed: int = 0) -> None:
    """Clients of streams that leave at once, in mid-stream, or read nothing for a while."""
    chance, held = random.Random(seed), list[socket.socket]()
    for number in range(count):
        path = chance.choice((TEXTS, CHATS))
        more = {"max_tokens": 100, "stream": True, "n": chance.choice((1, 1, 16))}
        body = json.dumps({**USUAL[path], **more, "temperature": 1.0, "seed": number}).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        made = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        made.sendall(head + body[: len(body) if chance.random() < 0.8 else len(body) // 2])
        with suppress(OSError):
            if chance.random() < 0.6:
                made.recv(chance.choice((1, 100, 4000)))
        if chance.random() < 0.3:
            held.append(made)
        else:
            made.close()
    for made in held:
        made.close()


def beside(server: Running, count: int) -> list[str]:
    """Answers to usual requests that differ beside clients that leave."""
    expected, faults = answers(server), list[str]()

    def ask() -> None:
        for _ in range(5):
            if answers(server) != expected:
                faults.append("an answer beside clients that leave is another")

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    leaving(server, count)
    for thread in threads:
        thread.join()
    if not is_idle(server):
        faults.append("sequences remain behind clients that left")
    return faults


_FORMS_OF_ANSWERS: tuple[dict[str, Any], ...] = (
    {"structured_outputs": {"regex": "[ab]{2,4}c"}},
    {"response_format": {"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"type": "object", "properties": {"a": {"enum": [1, 2]}},
                                "required": ["a"], "additionalProperties": False}}}},
)  # fmt: skip
_OWN = re.compile(rb'"(?:id|created)": ?(?:"[^"]*"|\d+)')  # differs between equal answers


def bodies() -> list[tuple[str, dict[str, Any]]]:
    """Requests to every path: usual ones, streams, answers of a form, and one that is refused."""
    made = [*USUAL.items(), (TEXTS, {**USUAL[TEXTS], "n": 17})]
    for path in (TEXTS, CHATS):
        made.append((path, {**USUAL[path], "stream": True}))
        made += [(path, {**USUAL[path], "max_tokens": 20, **form}) for form in _FORMS_OF_ANSWERS]
    return made


def request_of(path: str, body: dict[str, Any]) -> bytes:
    """A request as bytes, its body in one piece."""
    text = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(text)}\r\n\r\n".encode() + text


def response(file: Any) -> tuple[int, bytes]:
    """Status and body of the next response on a connection, without what is its own."""
    status, size, text = int(file.readline().split()[1]), 0, b""
    while line := file.readline().strip().lower():
        if line.startswith(b"content-length:"):
            size = int(line.split()[1])
        if line == b"transfer-encoding: chunked":
            size = -1
    while size < 0:
        length = int(file.readline(), 16)
        text += file.read(length)
        file.readline()
        if not length:
            size = 0
    return status, _OWN.sub(b"", text + file.read(size))


def alone(server: Running) -> list[tuple[int, bytes]]:
    """The responses to `bodies`, each on a connection of its own."""
    found = []
    for path, body in bodies():
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as made:
            made.sendall(request_of(path, body))
            found.append(response(made.makefile("rb")))
    return found


def pipelined(server: Running, count: int, seed: int = 0) -> list[str]:
    """Responses to requests behind each other, in pieces of any sizes, that are not as alone."""
    chance, expected, faults = random.Random(seed), alone(server), []
    for turn in range(count):
        order = chance.sample(range(len(expected)), len(expected))
        data = b"".join(request_of(*bodies()[number]) for number in order)
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as made:
            begin = 0
            while begin < len(data):
                end = begin + chance.choice((1, 7, 300, 10_000))
                made.sendall(data[begin:end])
                begin = end
            file = made.makefile("rb")
            faults += [f"turn {turn}: the answer to {bodies()[number]} is another"
                       for number in order if response(file) != expected[number]]  # fmt: skip
    return faults


def slow_bodies(server: Running, count: int) -> list[str]:
    """Answers to requests without their last byte, to others meanwhile, or sequences that stay."""
    expected, usual, faults = alone(server), answers(server), list[str]()
    held = []
    for number in range(count):
        place = number % len(expected)
        made = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        data = request_of(*bodies()[place])
        for piece in (data[:-9], *(data[n : n + 1] for n in range(len(data) - 9, len(data) - 1))):
            made.sendall(piece)
        held.append((made, place, data[-1:]))
    if answers(server) != usual:
        faults.append("an answer beside slow bodies is another")
    for number, (made, place, rest) in enumerate(held):
        if number % 3:
            made.sendall(rest)
            if response(made.makefile("rb")) != expected[place]:
                faults.append(f"the answer to a slow body of {bodies()[place]} is another")
        made.close()
    if not is_idle(server):
        faults.append("sequences or memory remain behind slow bodies")
    return faults


@contextmanager
def served(folder: Path) -> Iterator[Running]:
    """A server of a tiny language model."""
    model = str(write_folder(folder / "tiny"))
    with running(model, "--memory", "700MiB", "--threads", "1", "--no-grpc") as server:
        yield server


def main() -> int:
    """Send what is wrong and hard; 1 if a law does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=500)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, served(Path(name)) as server:
        before = answers(server)
        faults = [each for path in USUAL for each in refused(server, path)]
        faults += hard_forms(server) + beside(server, options.clients)
        faults += pipelined(server, options.clients // 20) + slow_bodies(server, options.clients)
        if answers(server) != before:
            faults.append("answers behind wrong requests are others")
    print("\n".join(faults) or "every law holds")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
