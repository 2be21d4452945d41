"""Promise: clients of OpenAI's API get the answers that a language model gives alone."""

from __future__ import annotations

import base64
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anydim as ad
from tests.unit.serving.language_models.tiny_models import tokenizer, weights, write_folder
from tests.unit.serving.server.running import SOURCE
from tests.unit.serving.server.test_hostile import changed

openai = pytest.importorskip("openai")

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>'
TEMPLATE = (
    "{% if tools %}{% for t in tools %}<|system|><tool_call>{{ t.function.name }}"
    "{{ '' if t.function.parameters is mapping else t | tojson }}<|end|>{% endfor %}"
    "{% endif %}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
END = 0  # the stop token
PLAIN = {str(token): -1e3 for token in range(4)}  # no special tokens
BIAS: dict[int, float] = {int(token): value for token, value in PLAIN.items()}


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = [CALL, "é€"]
    tensors = weights(tokenizer(words).get_vocab_size())
    tensors["model.embed_tokens.weight"] /= 4  # tokens that differ from the one before
    place = tmp_path_factory.mktemp("lm") / "tiny"
    return write_folder(place, tensors, template=TEMPLATE, words=words)


@pytest.fixture(scope="module")
def lm(folder: Path) -> Iterator[Any]:
    with ad.language_model(folder, threads=1) as model:
        yield model


@pytest.fixture(scope="module")
def server(folder: Path, lm: Any) -> Iterator[Any]:
    for package in ("starlette", "uvicorn", "httptools", "grpc", "google.protobuf"):
        pytest.importorskip(package)
    from tests.unit.serving.server.running import running

    with running(
        str(folder), "--memory", "400MiB", "--threads", "1", "--no-grpc", "--speculate", "4"
    ) as found:
        yield found


@pytest.fixture(scope="module")
def client(server: Any) -> Any:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none",
                         max_retries=0)  # fmt: skip


def rows(server: Any) -> tuple[int, int]:
    """Sequences that run, and that wait."""
    text = server.request("GET", "/metrics")[2].decode()
    found = [line for line in text.splitlines() if line.startswith(
        ("anydim_decoder_rows{", "anydim_decoder_waiting{"))]  # fmt: skip
    assert len(found) == 2, text
    return int(found[0].rpartition(" ")[2]), int(found[1].rpartition(" ")[2])


def wait_for_no_rows(server: Any) -> None:
    end = time.monotonic() + 20
    while rows(server) != (0, 0):
        assert time.monotonic() < end
        time.sleep(0.05)


# ---- embeddings ----------------------------------------------------------------------------------


def test_embeddings_are_those_of_the_model(client: Any, server: Any, lm: Any) -> None:
    texts = ["the quick brown fox", "0", "a model of words " * 9]
    for dimensions in (None, 64, 7):
        expected = lm.embed(texts, dimensions)
        more = {} if dimensions is None else {"dimensions": dimensions}
        for form in ("float", "base64", openai.NOT_GIVEN):
            found = client.embeddings.create(
                model="tiny", input=texts, encoding_format=form, **more
            )
            for each, own in zip(found.data, expected, strict=True):
                vector = each.embedding
                if isinstance(vector, str):
                    vector = np.frombuffer(base64.b64decode(vector), "<f4")
                assert np.array_equal(np.float32(vector), own)
    assert found.usage.prompt_tokens == sum(len(lm.encode(text)) for text in texts)
    many = [f"{n} " * (1 + n % 9) for n in range(200)]
    found = client.embeddings.create(model="tiny", input=many)
    vectors = np.float32([each.embedding for each in found.data])
    assert np.array_equal(vectors, lm.embed(many))
    found = client.embeddings.create(model="tiny", input=lm.encode("0"))
    assert np.array_equal(np.float32(found.data[0].embedding), expected[1]) or dimensions
    wait_for_no_rows(server)


@pytest.mark.parametrize("wrong, part", (
    ({"input": []}, "0 texts"), ({"input": None}, "no text"), ({"input": {}}, "no text"),
    ({"input": ["a", [1]]}, "no text"), ({"input": [1.5]}, "no text"), ({}, "no text"),
    ({"input": ["a"] * 2049}, "2049"), ({"input": [317]}, "token 317"), ({"input": [-1]}, "-1"),
    ({"input": [2**80]}, "prompt is"), ({"input": [5] * 129}, "at most 128"),
    ({"input": ""}, "prompt is"), ({"input": "a", "dimensions": 65}, "have 64"),
    ({"input": "a", "dimensions": 0}, "have 64"), ({"input": "a", "dimensions": "8"}, "have 64"),
    ({"input": "a", "encoding_format": "int8"}, "float or base64"),
    ({"input": "a", "encoding_format": ["float"]}, "float or base64"),
    ({"input": "a", "model": "other"}, "other"), ({"input": "a", "model": 3}, "a name"),
))  # fmt: skip
def test_wrong_embeddings_are_refused(server: Any, wrong: dict[str, Any], part: str) -> None:
    status, found = server.json("POST", "/v1/embeddings", wrong)
    assert status in (400, 404) and part in found["error"]["message"], found
    assert found["error"]["type"] == "invalid_request_error"


# ---- answers -------------------------------------------------------------------------------------


def test_chat_is_that_of_the_model(client: Any, lm: Any) -> None:
    messages = [{"role": "system", "content": "be brief"}, *user("the quick brown")]
    bias = {**BIAS, END: 4.5}
    stream = lm.chat(messages, 20, logit_bias=bias)
    text = stream.read()
    assert text and stream.reason == "stop"
    sent = {str(token): value for token, value in bias.items()}
    found = client.chat.completions.create(
        model="tiny", messages=messages, max_tokens=20, logit_bias=sent)  # fmt: skip
    (choice,) = found.choices
    assert choice.message.content == text and choice.message.role == "assistant"
    assert choice.finish_reason == stream.reason and choice.message.tool_calls is None
    prompt = len(lm.chat_tokens(messages))
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (
        prompt, len(stream.tokens))  # fmt: skip
    parts = list(client.chat.completions.create(
        model="tiny", messages=messages, max_completion_tokens=20, stream=True, logit_bias=sent,
        stream_options={"include_usage": True}))  # fmt: skip
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(part.choices[0].delta.content or "" for part in parts[:-1]) == text
    assert [part.choices[0].finish_reason for part in parts[:-1]][-1] == stream.reason
    assert parts[-1].usage == found.usage and not parts[-1].choices
    assert all(part.usage is None for part in parts[:-1])


def test_completions_begin_texts_and_end_at_stop_tokens(client: Any, lm: Any) -> None:
    expected = lm.generate("a model of", 30, logit_bias={END: 4.0})
    text = expected.read()
    found = client.completions.create(
        model="tiny", prompt="a model of", max_tokens=30, logit_bias={str(END): 4.0})  # fmt: skip
    assert found.choices[0].text == text and found.choices[0].finish_reason == expected.reason
    assert found.usage.prompt_tokens == len(lm.encode("a model of"))


def test_options_are_those_of_generate(client: Any, lm: Any) -> None:
    options = {"temperature": 0.9, "top_p": 0.8, "seed": 5}
    extra = {"top_k": 20, "min_p": 0.01, "repetition_penalty": 1.2}
    expected = lm.chat(user("dog"), 20, logit_bias=BIAS, **options, **extra).read()
    extra["logit_bias"] = PLAIN
    found = client.chat.completions.create(
        model="tiny", messages=user("dog"), max_tokens=20, **options, extra_body=extra)  # fmt: skip
    assert found.choices[0].message.content == expected
    stop = expected[3:6]
    found = client.chat.completions.create(
        model="tiny", messages=user("dog"), max_tokens=20, stop=stop, **options, extra_body=extra
    )
    assert found.choices[0].message.content == expected[: expected.index(stop)]
    assert found.choices[0].finish_reason == "stop"
    bias = {"17": 500.0, "18": 400.0, "19": 300.0}
    for penalty, last in (("presence_penalty", 17), ("frequency_penalty", 19)):
        found = client.completions.create(model="tiny", prompt="a", max_tokens=4, logit_bias=bias,
                                          **{penalty: 150.0})  # fmt: skip
        assert found.choices[0].token_ids == [17, 18, 17, last]
    found = client.completions.create(model="tiny", prompt="a", max_tokens=3, logit_bias={"17": 60})
    assert found.choices[0].text == lm.decode([17, 17, 17])


def test_several_answers_have_seeds_of_their_own(client: Any, lm: Any) -> None:
    expected = [
        lm.chat(user("dog"), 12, temperature=1.0, seed=7 + k, logit_bias=BIAS).read()
        for k in range(3)
    ]
    given = {"model": "tiny", "messages": user("dog"), "max_tokens": 12, "temperature": 1.0,
             "seed": 7, "n": 3, "logit_bias": PLAIN}  # fmt: skip
    found = client.chat.completions.create(**given)
    assert [choice.message.content for choice in found.choices] == expected
    texts = [""] * 3
    for part in client.chat.completions.create(**given, stream=True):
        texts[part.choices[0].index] += part.choices[0].delta.content or ""
    assert texts == expected and len(set(texts)) == 3


def test_log_probabilities_are_those_of_the_logits(client: Any, lm: Any) -> None:
    tokens = lm.chat_tokens(user("dog"))
    row = lm.model.join()
    logits = np.array(lm.model.step({row: np.array(tokens)})["logits"][0][-1], np.float64)
    lm.model.leave(row)
    shares = logits - logits.max()
    shares -= np.log(np.exp(shares).sum())
    found = client.chat.completions.create(
        model="tiny", messages=user("dog"), max_tokens=2, logprobs=True, top_logprobs=3,
        logit_bias={"17": 100.0})  # fmt: skip
    first = found.choices[0].logprobs.content[0]
    assert first.token == lm.decode([17]) and abs(first.logprob - shares[17]) < 1e-9
    assert np.allclose([each.logprob for each in first.top_logprobs], np.sort(shares)[::-1][:3])
    assert bytes(first.bytes).decode() == first.token
    found = client.completions.create(model="tiny", prompt=tokens, max_tokens=3, logprobs=2,
                                      logit_bias=PLAIN)  # fmt: skip
    (choice,) = found.choices
    assert choice.logprobs.text_offset[0] == 0 and len(choice.logprobs.tokens) == 3
    assert abs(choice.logprobs.token_logprobs[0] - shares[4:].max()) < 1e-9
    assert "".join(choice.logprobs.tokens) == choice.text


def test_messages_in_parts_and_roles_of_other_servers(client: Any, lm: Any) -> None:
    parts = [{"type": "text", "text": "the "}, {"type": "text", "text": "dog"}]
    messages = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": parts}]
    plain = [{"role": "system", "content": "be brief"}, *user("the dog")]
    found = client.chat.completions.create(model="tiny", messages=messages, max_tokens=8)
    assert found.choices[0].message.content == lm.chat(plain, 8).read()
    assert lm.chat(messages, 8).read() == lm.chat(plain, 8).read()


def test_tool_calls_are_read(client: Any, lm: Any) -> None:
    (call,) = lm.tokenizer.encode(CALL).ids
    given = {
        "model": "tiny", "messages": user("dog"), "tools": TOOLS, "max_tokens": 5,
        "logit_bias": {str(call): 1000.0, str(END): 500.0}, "presence_penalty": 900.0,
    }  # fmt: skip
    (choice,) = client.chat.completions.create(**given).choices
    (found,) = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    assert found.function.name == "weather" and found.id.startswith("call_")
    assert json.loads(found.function.arguments) == {"city": "Paris"}
    parts = list(client.chat.completions.create(**given, stream=True))
    calls = [each for part in parts for each in part.choices[0].delta.tool_calls or ()]
    assert [each.function.name for each in calls] == ["weather", None]
    assert json.loads("".join(each.function.arguments for each in calls)) == {"city": "Paris"}
    assert parts[-1].choices[0].finish_reason == "tool_calls"
    (choice,) = client.chat.completions.create(**given, tool_choice="none").choices
    assert choice.message.content == CALL and choice.message.tool_calls is None
    answered = [*user("dog"), {"role": "assistant", "tool_calls": [found.model_dump()]},
                {"role": "tool", "tool_call_id": found.id, "content": "sunny"}]  # fmt: skip
    assert client.chat.completions.create(
        model="tiny", messages=answered, tools=TOOLS, max_tokens=2).choices  # fmt: skip


SCHEMA = {
    "type": "object", "additionalProperties": False, "required": ["city", "days"],
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "maximum": 9,
                                                                 "minimum": 1}},
}  # fmt: skip


def test_answers_have_the_form_that_a_request_wants(client: Any, lm: Any) -> None:
    pytest.importorskip("llguidance")
    form = {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA}}
    given = {"model": "tiny", "messages": user("dog"), "max_tokens": 100, "temperature": 1.0}
    expected = [lm.chat(user("dog"), 100, temperature=1.0, seed=5 + k, json_schema=SCHEMA).read()
                for k in range(4)]  # fmt: skip
    found = client.chat.completions.create(**given, response_format=form, seed=5, n=4)
    assert [each.message.content for each in found.choices] == expected
    assert all(json.loads(text)["city"] in ("Paris", "Rome") for text in expected)
    parts = client.chat.completions.create(**given, response_format=form, seed=6, stream=True)
    assert "".join(part.choices[0].delta.content or "" for part in parts) == expected[1]
    found = client.chat.completions.create(**given, response_format={"type": "json_object"}, seed=5)
    own = lm.chat(user("dog"), 100, temperature=1.0, seed=5, json_schema={"type": "object"}).read()
    assert found.choices[0].message.content == own and own.startswith("{")
    for form, own in (
        ({"json": SCHEMA}, {"json_schema": SCHEMA}), ({"regex": "a{3}"}, {"regex": "a{3}"}),
        ({"json": json.dumps(SCHEMA)}, {"json_schema": SCHEMA}),
        ({"grammar": 'start: "z"'}, {"grammar": 'start: "z"'}),
    ):  # fmt: skip
        body = {"structured_outputs": form}
        found = client.completions.create(
            model="tiny", prompt="dog", max_tokens=100, extra_body=body
        )
        assert found.choices[0].text == lm.generate("dog", 100, **own).read()


def test_calls_can_be_required(client: Any, lm: Any) -> None:
    pytest.importorskip("llguidance")
    schema = {"type": "object", "additionalProperties": False, "required": ["d"],
              "properties": {"d": {"type": "integer", "minimum": 1, "maximum": 9}}}  # fmt: skip
    spaces = {str(lm.tokenizer.token_to_id(each)): -1e3 for each in "ĠĊĉ"}
    functions = [{"name": name, "parameters": schema} for name in ("fly", "trip")]
    tools = [{"type": "function", "function": function} for function in functions]
    now = {"name": "now", "parameters": {"type": "object", "additionalProperties": False}}
    tools.append({"type": "function", "function": now})
    given = {"model": "tiny", "messages": user("dog"), "tools": tools, "max_tokens": 70,
             "temperature": 1.0, "logit_bias": spaces}  # fmt: skip
    for number, choice in enumerate(
        (
            "required",
            {"type": "function", "function": tools[1]["function"]},
            {"type": "function", "function": {"name": "fly"}},
        )
    ):
        given |= {"tool_choice": choice, "seed": 2 + number}
        (found,) = client.chat.completions.create(**given).choices
        assert found.finish_reason == "tool_calls", found
        (call,) = found.message.tool_calls
        assert call.function.name in (("fly", "trip", "now"), ("trip",), ("fly",))[number]
        assert found.finish_reason == "tool_calls" and found.message.content is None
        arguments = json.loads(call.function.arguments)
        assert call.function.name == "now" or 1 <= arguments["d"] <= 9
        parts = list(client.chat.completions.create(**given, stream=True))
        calls = [each for part in parts for each in part.choices[0].delta.tool_calls or ()]
        assert calls[0].function.name == call.function.name and len(calls) > 2
        assert all(each.function.name is None and each.index == 0 for each in calls[1:])
        text = "".join(each.function.arguments for each in calls)
        assert json.loads(text) == arguments and parts[-1].choices[0].finish_reason == "tool_calls"


def test_answers_in_company_are_those_alone(client: Any, lm: Any) -> None:
    options = {n: {"temperature": 0.7 * (n % 2), "seed": n} for n in range(12)}
    expected = {
        n: lm.chat(user("dog " * n), 25, logit_bias=BIAS, **options[n]).read() for n in options
    }
    assert len(set(expected.values())) == 12
    wrong = list[Any]()

    def work(n: int) -> None:
        text = ""
        for part in client.chat.completions.create(
            model="tiny", messages=user("dog " * n), max_tokens=25, stream=True, logit_bias=PLAIN,
            **options[n],
        ):  # fmt: skip
            text += part.choices[0].delta.content or ""
        if text != expected[n]:
            wrong.append((n, text, expected[n]))

    threads = [threading.Thread(target=work, args=(n,)) for n in options]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_models_are_listed_with_their_context(client: Any) -> None:
    (found,) = client.models.list().data
    assert found.id == "tiny" and found.max_model_len == 128
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError, match="did you mean 'tiny'"):
        client.models.retrieve("tiyn")


# ---- errors --------------------------------------------------------------------------------------

NUL: Any = None
WRONG: dict[str, tuple[dict[str, Any], int, str]] = {
    "no messages": ({"messages": NUL}, 400, "messages are None"),
    "empty": ({"messages": []}, 400, "no messages"),
    "texts": ({"messages": ["hi"]}, 400, "message 0 is 'hi'"),
    "an object": ({"messages": {"role": "user"}}, 400, "messages are {'role'"),
    "no role": ({"messages": [{"content": "a"}]}, 400, "message 0"),
    "no content": ({"messages": [{"role": "user"}]}, 400, "message 0"),
    "a number": ({"messages": [{"role": "user", "content": 3}]}, 400, "content"),
    "an image": ({"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "x"}}]}]}, 400, "image_url"),
    "half a character": ({"messages": user("a\ud800")}, 400, "half of a character"),
    "arguments": ({"messages": [{"role": "assistant", "tool_calls": [
        {"function": {"name": "f", "arguments": "{"}}]}]}, 400, "no JSON"),
    "calls": ({"messages": [{"role": "assistant", "tool_calls": 3}]}, 400, "'tool_calls'"),
    "a call": ({"messages": [{"role": "assistant", "tool_calls": [3]}]}, 400, "no function"),
    "model": ({"model": "other"}, 404, "no decoder 'other'"),
    "a model of numbers": ({"model": 3}, 400, "expected a name"),
    "max_tokens 0": ({"max_tokens": 0}, 400, "'max_tokens'"),
    "max_tokens text": ({"max_tokens": "5"}, 400, "'max_tokens'"),
    "max_completion_tokens": ({"max_completion_tokens": -1}, 400, "'max_completion_tokens'"),
    "more than the context": ({"max_tokens": 128}, 400, "at most 128"),
    "a prompt above the context": ({"messages": user("z" * 200)}, 400, "at most 128"),
    "temperature": ({"temperature": -0.1}, 400, "temperature"),
    "temperature nan": ({"temperature": float("nan")}, 400, "temperature"),
    "temperature huge": ({"temperature": 10**400}, 400, "temperature"),
    "top_p": ({"top_p": 1.5}, 400, "top_p"),
    "top_k": ({"top_k": -1}, 400, "'top_k'"),
    "min_p": ({"min_p": 2}, 400, "min_p"),
    "penalty": ({"presence_penalty": "a"}, 400, "'presence_penalty'"),
    "penalty infinite": ({"frequency_penalty": float("inf")}, 400, "frequency_penalty"),
    "repetition": ({"repetition_penalty": 0}, 400, "repetition_penalty"),
    "seed": ({"seed": -1}, 400, "'seed'"), "seed true": ({"seed": True}, 400, "'seed'"),
    "bias": ({"logit_bias": [1]}, 400, "'logit_bias'"),
    "bias of a word": ({"logit_bias": {"dog": 1}}, 400, "'dog'"),
    "bias text": ({"logit_bias": {"5": "a"}}, 400, "logit_bias"),
    "bias of no token": ({"logit_bias": {"100000": 1}}, 400, "tokens are 0 to"),
    "bias huge": ({"logit_bias": {"5": 1e9}}, 400, "logit_bias"),
    "biases": ({"logit_bias": {str(n): 1 for n in range(2000)}}, 400, "'logit_bias'"),
    "n": ({"n": 0}, 400, "'n'"), "n large": ({"n": 1000}, 400, "'n'"),
    "stop": ({"stop": ["a"] * 5}, 400, "'stop'"), "stop empty": ({"stop": ""}, 400, "'stop'"),
    "stop number": ({"stop": 3}, 400, "'stop'"),
    "stop tokens": ({"stop_token_ids": "a"}, 400, "'stop_token_ids'"),
    "logprobs": ({"logprobs": 3}, 400, "'logprobs'"),
    "top_logprobs": ({"top_logprobs": 2}, 400, "without 'logprobs'"),
    "top_logprobs 99": ({"logprobs": True, "top_logprobs": 99}, 400, "'top_logprobs'"),
    "form": ({"response_format": {"type": "xml"}}, 400, "'response_format'"),
    "a form's name": ({"response_format": "json_object"}, 400, "'response_format'"),
    "a form's kind": ({"response_format": {"type": []}}, 400, "'response_format'"),
    "no schema": ({"response_format": {"type": "json_schema"}}, 400, "'schema'"),
    "a schema": ({"response_format": {"type": "json_schema", "json_schema": {
        "schema": {"type": "nonsense"}}}}, 400, "nonsense"),
    "schema text": ({"response_format": {"type": "json_schema", "json_schema": {
        "schema": "{}"}}}, 400, "'schema'"),
    "outputs": ({"structured_outputs": 3}, 400, "'structured_outputs'"),
    "outputs empty": ({"structured_outputs": {}}, 400, "'structured_outputs'"),
    "outputs twice": ({"structured_outputs": {"regex": "a", "json": {}}}, 400, "one of"),
    "outputs unknown": ({"structured_outputs": {"regex": "a", "x": 1}}, 400, "one of"),
    "outputs regex": ({"structured_outputs": {"regex": "("}}, 400, "unclosed"),
    "outputs json": ({"structured_outputs": {"json": "{"}}, 400, "no JSON"),
    "outputs and form": ({"structured_outputs": {"regex": "a"}, "response_format": {
        "type": "json_object"}}, 400, "one of them"),
    "form and call": ({"structured_outputs": {"regex": "a"}, "tools": TOOLS,
                       "tool_choice": "required"}, 400, "a call or"),
    "parameters": ({"tools": [{"type": "function", "function": {
        "name": "f", "parameters": 3}}], "tool_choice": "required"}, 400, "no schema"),
    "parameters wrong": ({"tools": [{"type": "function", "function": {
        "name": "f", "parameters": {"type": "x"}}}], "tool_choice": "required"}, 400, "type"),
    "tools": ({"tools": {}}, 400, "'tools'"), "a tool": ({"tools": [3]}, 400, "no function"),
    "required": ({"tool_choice": "required"}, 400, "no such function"),
    "a function": ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {
        "name": "g"}}}, 400, "no such function"),
    "a choice": ({"tools": TOOLS, "tool_choice": 3}, 400, "'tool_choice'"),
    "functions": ({"functions": [1]}, 400, "'functions'"),
    "stream": ({"stream": "yes"}, 400, "'stream'"),
    "timeout": ({"timeout": -1}, 400, "'timeout'"),
    "deep": ({"metadata": None, "tools": [{"type": "function", "function": {
        "name": "f", "parameters": json.loads("[" * 400 + "]" * 400)}}]}, 400, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_requests_say_what_is_wrong(server: Any, name: str) -> None:
    change, status, said = WRONG[name]
    given = {"messages": user("dog"), "max_tokens": 3, **change}
    for stream in (False, True):
        body = given if "stream" in given else {**given, "stream": stream}
        found, answer = server.json("POST", CHAT, body)
        assert found == status and said in answer["error"]["message"], answer
        assert answer["error"]["type"] == "invalid_request_error"


def test_errors_are_those_of_the_client(client: Any) -> None:
    create: Callable[..., Any] = client.chat.completions.create
    with pytest.raises(openai.BadRequestError, match="temperature") as caught:
        create(model="tiny", messages=user("a"), temperature=-1)
    assert caught.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError, match="no decoder"):
        create(model="gpt-4", messages=user("a"))
    with pytest.raises(openai.NotFoundError, match="nothing at /v1/responses"):
        client.responses.create(model="tiny", input="a")


@pytest.mark.parametrize("body", (
    b"", b"{", b"[1]", b"null", b"\xff\xfe", b'{"messages": "\xff"}', b"[" * 100_000,
    b'{"messages": [' + b'{"role":' * 9000, b'{"a":' * 5000 + b"1" + b"}" * 5000,
))  # fmt: skip
@pytest.mark.parametrize("path", (CHAT, TEXT))
def test_what_is_no_json_is_refused(server: Any, body: bytes, path: str) -> None:
    status, _, text = server.request("POST", path, body)
    assert status == 400 and json.loads(text)["error"]["message"], text


def test_large_bodies_are_refused(server: Any) -> None:
    status, body = server.json("POST", CHAT, {"messages": user("a" * (3 << 20))})
    assert status == 413 and "above the limit" in body["error"]["message"]


def test_what_never_fits_is_told_at_once(folder: Path, lm: Any) -> None:
    pytest.importorskip("starlette")
    from tests.unit.serving.server.running import running

    expected = lm.chat(user("dog"), 20).read()
    room = ("--memory", "400MiB", "--cache-memory", "150KiB", "--threads", "1", "--no-grpc")
    with running(f"small={folder}", *room) as server:
        found, answer = server.json("POST", CHAT, {"messages": user("z" * 100), "max_tokens": 20})
        assert found == 413 and "above the limit" in answer["error"]["message"]
        texts = list[str]()

        def work() -> None:
            given = {"messages": user("dog"), "max_tokens": 20}
            answer = server.json("POST", CHAT, given)[1]
            texts.append(answer["choices"][0]["message"]["content"])

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert texts == [expected] * 6
        # without a limit, an answer has the tokens that fit
        status, answer = server.json("POST", CHAT, {"messages": user("dog"),
                                                    "logit_bias": PLAIN})  # fmt: skip
        assert status == 200 and answer["choices"][0]["finish_reason"] == "length", answer
        assert 20 < answer["usage"]["total_tokens"] < 128


def test_mutated_requests_have_an_answer_with_a_reason(server: Any) -> None:
    chance, statuses = np.random.default_rng(0), set[int]()
    given = {"messages": user("dog"), "max_tokens": 3, "temperature": 0.5, "seed": 1,
             "logprobs": True, "top_logprobs": 2, "stop": "x", "tools": TOOLS}  # fmt: skip
    for number in range(150):
        body = json.dumps({**given, "stream": number % 2 > 0}).encode()
        status, _, text = server.request("POST", CHAT, changed(body, chance))
        statuses.add(status)
        assert status == 200 or (400 <= status < 500 and json.loads(text)["error"]), text
    assert {200, 400} <= statuses
    assert not [line for line in server.lines if line.get("event") == "fault"]
    wait_for_no_rows(server)


# ---- clients that leave --------------------------------------------------------------------------


def test_random_cancellations_leave_no_rows(server: Any, lm: Any) -> None:
    chance = random.Random(1)
    expected = lm.chat(user("quick"), 60, logit_bias=BIAS).read()
    kept, wrong = list[str](), list[Any]()

    def whole() -> None:
        given = {"messages": user("quick"), "max_tokens": 60, "logit_bias": PLAIN}
        status, answer = server.json("POST", CHAT, given)
        kept.append(answer["choices"][0]["message"]["content"] if status == 200 else str(answer))

    def leaving(seed: int) -> None:
        own = random.Random(seed)
        for _ in range(50):
            given = {
                "messages": user("dog " * own.randrange(20)), "max_tokens": 60,
                "stream": own.random() < 0.7, "n": own.randrange(1, 4),
                "logit_bias": PLAIN,
            }  # fmt: skip
            body = json.dumps(given).encode()
            head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
            try:
                with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
                    client.sendall((head.encode() + body)[: own.choice((None, 40, 100))])
                    if own.random() < 0.7:
                        client.settimeout(own.random() * 0.05)
                        client.recv(own.randrange(1, 4000))
            except TimeoutError:
                pass
            except OSError as error:
                wrong.append(error)

    threads = [threading.Thread(target=leaving, args=(seed,)) for seed in range(4)]
    threads += [threading.Thread(target=whole) for _ in range(6)]
    chance.shuffle(threads)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong and kept == [expected] * 6
    held = (
        'anydim_decoder_bytes{model="tiny",use="caches"} 0', 'anydim_memory_bytes{use="requests"} 0'
    )  # fmt: skip
    end, text = time.monotonic() + 20, ""
    while rows(server) != (0, 0) or not all(each in text for each in held):  # a request may be late
        assert time.monotonic() < end, text
        time.sleep(0.05)
        text = server.request("GET", "/metrics")[2].decode()
    name = "anydim_decoder_first_token_seconds_count"
    count = next(line for line in text.splitlines() if line.startswith(name))
    assert int(count.rpartition(" ")[2]) >= 6


# ---- draft models --------------------------------------------------------------------------------


def test_draft_models_leave_answers_as_they_are(folder: Path, lm: Any, server: Any) -> None:
    from tests.unit.serving.server.running import running

    prompts = ["dog", "0 1 2 0 1 2", "the quick brown fox"]
    given = [{"messages": user(text), "max_tokens": 20, "temperature": 0.5, "seed": seed}
             for seed, text in enumerate(prompts)]  # fmt: skip
    expected = [server.json("POST", CHAT, each)[1]["choices"] for each in given]
    words = ("--memory", "400MiB", "--threads", "1", "--no-grpc", "--draft", str(folder))
    with running(str(folder), *words) as drafted:
        found: dict[int, Any] = {}

        def work(number: int) -> None:
            found[number] = drafted.json("POST", CHAT, given[number])[1]["choices"]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        text = drafted.request("GET", "/metrics")[2].decode()
    assert [found[number] for number in range(3)] == expected
    counts = {name: int(line.rpartition(" ")[2]) for line in text.splitlines()
              for name in ("drafted", "accepted")
              if line.startswith(f"anydim_decoder_{name}_tokens_total{{")}  # fmt: skip
    assert counts["drafted"] >= counts["accepted"] > 0


@pytest.mark.parametrize("words, said", [
    (["--draft", "nowhere.gguf"], "there is no 'nowhere.gguf'"),
    (["--draft", "other"], "both need the same tokenizer"),
    (["--draft", "tiny", "--speculate", "0"], "no effect with --speculate 0"),
    (["second=tiny", "--draft", "tiny"], "2 language models are served, expected one"),
    (["--draft", "tiny", "--cache-memory", "64KiB"], "raise --memory, or leave --draft out"),
    (["--speculate", "65"], "65"),
])  # fmt: skip
def test_wrong_draft_models_end_the_start(
    folder: Path, server: Any, words: list[str], said: str
) -> None:
    place = folder.parent / "other"
    if not place.exists():
        write_folder(place, weights(tokenizer().get_vocab_size()), template=TEMPLATE)
    made = subprocess.run(
        [sys.executable, "-m", "anydim", "serve", "tiny", *words, "--port", "0", "--no-grpc",
         "--memory", "400MiB"],
        env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, cwd=folder.parent,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert made.returncode == 2 and said in made.stderr
