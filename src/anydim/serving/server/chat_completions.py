"""POST /v1/chat/completions: messages in, an answer in the form of the model's chat template."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from anydim.base.errors import InputError
from anydim.serving.log_shares import LogShare
from anydim.serving.server.answer_forms import form_of_answers, form_of_calls
from anydim.serving.server.decoders import find
from anydim.serving.server.embeddings import Tokenizers
from anydim.serving.server.generation import MOST_TOKENS, MOST_TOP, flag, generation_of, whole
from anydim.serving.server.json_bodies import short_json
from anydim.serving.server.sequences import Event, Sequences, refuse_others
from anydim.serving.server.state import State
from anydim.serving.tool_calls import ToolCall, ToolReader, tool_format

_FIXED = {"functions": None, "function_call": None, "audio": None, "prediction": None,
          "parallel_tool_calls": True, "echo": False, "chat_template": None,
          "chat_template_kwargs": None, "continue_final_message": False,
          "add_generation_prompt": True}  # fmt: skip


class ChatCompletion(Sequences):
    """A request to answer messages."""

    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, state: State, tokenizers: Tokenizers, head: Mapping[str, Any]) -> None:
        served = find(state.decoders, head.get("model"))
        if served.opened is None:
            raise InputError(f"'{served.name}' is an ONNX file without a chat template",
                             "send a prompt to /v1/completions")  # fmt: skip
        refuse_others(head, _FIXED)
        generation = replace(
            generation_of(_with_max_tokens(head), None, served.vocabulary), top=_top(head)
        )
        tools, must_call = _tools(head)
        prompt = served.opened.chat_tokens(head.get("messages"), tools)
        template = served.opened.template
        form = tool_format(template.text) if tools and template is not None else None
        answers = form_of_answers(served.opened, head)
        if must_call:
            answers = form_of_calls(served.opened, tools or (), form, answers)
        super().__init__(
            served, replace(generation, form=answers), tokenizers.of(served), [prompt], head
        )
        self._readers = [ToolReader(form, head.get("stream") is True) for _ in self._pieces]
        self._calls = [0] * len(self._pieces)  # that streams have had

    # ---- answers ---------------------------------------------------------------------------------

    def choice(self, event: Event) -> dict[str, Any]:
        """A whole answer."""
        text, calls = self._readers[event.number].read(event.text, is_last=True)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message |= {"content": text or None, "tool_calls": list(map(_call, calls))}
        return {"index": event.number, "message": message,
                "logprobs": self._log_shares(event.shares),
                "finish_reason": self._reason(event, bool(calls))}  # fmt: skip

    def first(self) -> list[dict[str, Any]]:
        """The role of each answer."""
        delta = {"role": "assistant", "content": ""}
        return [self._part(number, delta) for number in range(len(self._pieces))]

    def chunks(self, event: Event) -> list[dict[str, Any]]:
        """What a token adds: text, and parts of calls."""
        number, made = event.number, []
        text, calls = self._readers[number].read(event.text, event.reason is not None)
        shares = self._log_shares(event.shares)
        if text or (shares and shares["content"]):
            made.append(self._part(number, {"content": text}, shares))
        for call in calls:
            self._calls[number] += bool(call.name)
            own = _call(call) if call.name else {"function": {"arguments": call.arguments}}
            delta = {"tool_calls": [{"index": self._calls[number] - 1, **own}]}
            made.append(self._part(number, delta))
        if event.reason is not None:
            reason = self._reason(event, self._calls[number] > 0)
            made.append(self._part(number, {}, reason=reason))
        return made

    def _part(
        self, number: int, delta: Mapping[str, Any], shares: Any = None, reason: str | None = None
    ) -> dict[str, Any]:
        return self._chunk(
            {"index": number, "delta": delta, "logprobs": shares, "finish_reason": reason}
        )

    def _reason(self, event: Event, has_calls: bool) -> str | None:
        return "tool_calls" if has_calls and event.reason == "stop" else event.reason

    def _log_shares(self, shares: Sequence[LogShare]) -> dict[str, Any] | None:
        if self._generation.top is None:
            return None
        content = [
            {**self._log_share(share.token, share.value),
             "top_logprobs": [self._log_share(*each) for each in share.top]}
            for share in shares
        ]  # fmt: skip
        return {"content": content, "refusal": None}

    def _log_share(self, token: int, value: float) -> dict[str, Any]:
        text = self._text_of(token)
        bytes = None if "\ufffd" in text else list(text.encode())  # a part of a character
        return {"token": text, "logprob": value, "bytes": bytes}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function",
            "function": {"name": call.name, "arguments": call.arguments}}  # fmt: skip


# ---- requests ------------------------------------------------------------------------------------


def _with_max_tokens(head: Mapping[str, Any]) -> Mapping[str, Any]:
    most = head.get("max_completion_tokens")
    if most is None:
        return head
    whole(head, "max_completion_tokens", 1, MOST_TOKENS, None)
    return {**head, "max_tokens": most}


def _top(head: Mapping[str, Any]) -> int | None:
    wants, top = flag(head, "logprobs"), whole(head, "top_logprobs", 0, MOST_TOP, None)
    if top and not wants:
        raise InputError("'top_logprobs' is given without 'logprobs'", "set 'logprobs' to true")
    return (top or 0) if wants else None


def _tools(head: Mapping[str, Any]) -> tuple[list[Any] | None, bool]:
    """Descriptions of functions for the template, None where there are none, or none is wanted; and
    whether the answer must be a call."""
    tools, choice = head.get("tools"), head.get("tool_choice")
    if tools is not None and not isinstance(tools, list):
        raise InputError(f"'tools' is {short_json(tools)}, expected a list")
    for number, tool in enumerate(tools or ()):
        function = tool.get("function") if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or tool.get("type") != "function":
            raise InputError(f"tool {number} is no function",
                             'give {"type": "function", "function": {"name": ...}}')  # fmt: skip
    if choice in (None, "auto", "none"):
        return (tools if tools and choice != "none" else None), False
    if choice == "required" and tools:
        return tools, True
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    named = [tool for tool in tools or () if tool["function"]["name"] == name]
    if not named:
        raise InputError(f"'tool_choice' is {short_json(choice)}, and 'tools' has no such function",
                         "auto, none, required, or a function of 'tools'")  # fmt: skip
    return named, True
