"""Chat templates as tables of texts between messages, for programs without Jinja.

Most templates write each message between two texts that depend on its role and on the role before
it, and may strip its content. Such a template is the table of these texts: it is read off from
conversations that the template renders, and compared with it on others.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anydim.base.errors import InputError
from anydim.base.records import dataclass
from anydim.serving.language_models.chat_template import ChatTemplate

START, ANSWER = "start", "answer"
_ROLES = ("system", "user", "assistant")
_MARK = "\ue000{}\ue001"  # of private use: no template has it
_CONTENTS = (
    "x", "", " a  b ", "\n\nTwo lines\n", "{{ x }} {% y %}", "<b> & \"c\" 'd' \\", "é漢🙂", "1.5",
    "Think: <think>no</think> yes",
)  # fmt: skip
_MOST = 5  # messages of a conversation that is compared

Messages = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class ChatForm:
    """`between[a][b]`: the text between messages of two roles, also behind START, and before
    ANSWER. `trimmed`: roles whose content is stripped."""

    between: Mapping[str, Mapping[str, str]]
    trimmed: tuple[str, ...]

    def render(self, messages: Messages) -> str | None:
        """The text of messages up to the answer; None where the template has no such order."""
        roles = [START, *(message["role"] for message in messages), ANSWER]
        joins = [self.between.get(a, {}).get(b) for a, b in itertools.pairwise(roles)]
        if None in joins:
            return None
        texts = [
            message["content"].strip() if message["role"] in self.trimmed else message["content"]
            for message in messages
        ]
        return "".join(part or "" for pair in zip(joins, [*texts, ""]) for part in pair)


def chat_form(template: ChatTemplate) -> ChatForm | None:
    """The table of a template; None if it is no such template."""
    made = _read(template)
    if made is None:
        return None
    for messages in _conversations():
        if _rendered(template, messages) != made.render(messages):
            return None
    return made


def _read(template: ChatTemplate) -> ChatForm | None:
    """The table that short conversations show."""
    between: dict[str, dict[str, str]] = {}
    for roles in _orders(3):
        marked = [{"role": r, "content": _MARK.format(n)} for n, r in enumerate(roles)]
        text = _rendered(template, marked)
        if text is None:
            continue
        for (a, b), mark in zip(itertools.pairwise([START, *roles, ANSWER]), [*marked, None]):
            join, found, text = text.partition(mark["content"]) if mark else (text, "", "")
            if mark and not found:
                return None
            between.setdefault(a, {}).setdefault(b, join)
    trimmed = tuple(role for role in _ROLES if _is_trimmed(template, ChatForm(between, ()), role))
    return ChatForm(between, trimmed) if between else None


def _is_trimmed(template: ChatTemplate, form: ChatForm, role: str) -> bool:
    """Whether the template strips the content of a role, in the first conversation that has it."""
    for roles in _orders(3):
        plain = [{"role": each, "content": "a"} for each in roles]
        spaced = [{**m, "content": " a " if m["role"] == role else "a"} for m in plain]
        if role in roles and form.render(plain) is not None:
            return _rendered(template, spaced) == form.render(plain)
    return False


def _rendered(template: ChatTemplate, messages: Messages) -> str | None:
    """The text of messages; None where the template refuses them."""
    try:
        return template.render(messages)
    except InputError:
        return None


def _orders(most: int) -> Iterator[tuple[str, ...]]:
    for count in range(1, most + 1):
        yield from itertools.product(_ROLES, repeat=count)


def _conversations() -> Iterator[list[Mapping[str, str]]]:
    """Conversations of all orders of roles, with contents in turn."""
    contents = itertools.cycle(_CONTENTS)
    for roles in _orders(_MOST):
        yield [{"role": role, "content": next(contents)} for role in roles]


def as_json(form: ChatForm | None) -> dict[str, Any] | None:
    """The table as JavaScript reads it."""
    return None if form is None else {"between": form.between, "trimmed": form.trimmed}
