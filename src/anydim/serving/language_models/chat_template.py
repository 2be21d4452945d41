"""Chat templates: messages as the text that a model was trained on.

Templates are those of transformers, in the language of Jinja. They come with the model and are not
trusted: they run in Jinja's sandbox, without access to Python's objects or to files, within limits
of time and size (`bounded_templates.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from importlib import import_module
from typing import Any

from anydim.base.errors import InputError, ModelError
from anydim.base.missing_package import missing_module
from anydim.serving.language_models.messages import template_messages

_MOST_INDENT = 16
_LONGEST_DATE = 1000  # characters of the form of a date


class ChatTemplate:
    """A template; `special` are the texts of special tokens that it may use, as `bos_token`.

    Attributes:
        text: The text of the template.
        special: The texts of special tokens.
    """

    def __init__(self, text: str, special: Mapping[str, str]) -> None:
        self.text, self.special = text, dict(special)

    def check(self) -> None:
        """Raise ModelError for an error of syntax, MissingError without jinja2."""
        _ = self._jinja

    @property
    def takes_tools(self) -> bool:
        """Whether it has a place for descriptions of functions."""
        return self._jinja[1]

    @cached_property
    def _jinja(self) -> tuple[Any, bool]:
        """Jinja's template, and whether it takes tools; starts without messages import no Jinja."""
        try:
            bounded = import_module("anydim.serving.language_models.bounded_templates")
        except ModuleNotFoundError as error:
            raise missing_module("a chat template", error) from None
        self._limits, environment = bounded.limits, bounded.BoundedEnvironment()
        environment.filters["tojson"] = bounded.limit_calls(_as_json)
        environment.globals |= {
            "raise_exception": _refuse,
            "strftime_now": lambda form: datetime.now().strftime(str(form)[:_LONGEST_DATE]),
        }
        try:
            unbound = import_module("jinja2.meta").find_undeclared_variables
            takes_tools = "tools" in unbound(environment.parse(self.text))
            return environment.from_string(self.text), takes_tools
        except Exception as error:  # of Jinja
            raise ModelError(f"the chat template of the model is damaged: {error}") from None

    def render(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:  # fmt: skip
        """The text of messages, up to where the answer begins.

        Raises:
            InputError: The messages are malformed, or the template refuses them.
        """
        given = template_messages(messages)
        try:
            template = self._jinja[0]
            with self._limits():
                made = template.render(
                    messages=given, tools=tools,
                    add_generation_prompt=add_generation_prompt, **self.special,
                )  # fmt: skip
        except Exception as error:  # of Jinja, or of the template
            raise InputError(f"the chat template refuses the messages: {error}") from None
        return str(made)


def _as_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None,
    sort_keys: bool = False,
) -> str:  # fmt: skip
    """The filter `tojson`, with the arguments that transformers gives it."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, sort_keys=sort_keys, separators=separators,
        indent=None if indent is None else min(indent, _MOST_INDENT),
    )  # fmt: skip


def _refuse(reason: str) -> None:
    raise InputError(str(reason))
