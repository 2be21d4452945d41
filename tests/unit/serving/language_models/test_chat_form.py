"""Promise: a chat template that writes fixed texts between messages is found as their table, any
other one is not."""

from __future__ import annotations

import pytest

from anydim.serving.language_models.chat_form import chat_form
from anydim.serving.language_models.chat_template import ChatTemplate
from tests.unit.serving.language_models.tiny_models import TEMPLATE

_LOOP = "{% for m in messages %}"
_LLAMA = (
    "{{ bos_token }}" + _LOOP + "<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
_SMOLLM = (
    _LOOP + "{% if loop.first and messages[0]['role'] != 'system' %}<|im_start|>system\nYou are "
    "SmolLM<|im_end|>\n{% endif %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}"
    "{% endif %}" + _LOOP + "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}<start_of_turn>"
    "{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n{{ m['content'] | trim }}"
    "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
_MISTRAL = (
    "{{ bos_token }}" + _LOOP + "{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]"
    "{% elif m['role'] == 'assistant' %}{{ m['content'] }}</s>"
    "{% else %}{{ raise_exception('only users') }}{% endif %}{% endfor %}"
)
CHAT = [{"role": "user", "content": " hi "}, {"role": "assistant", "content": " yes\n"},
        {"role": "user", "content": "{{ 1 }}"}]  # fmt: skip


@pytest.mark.parametrize("text", [TEMPLATE, _LLAMA, _SMOLLM, _GEMMA, _MISTRAL])
def test_templates_that_are_tables(text: str) -> None:
    template = ChatTemplate(text, {"bos_token": "<s>"})
    form = chat_form(template)
    assert form is not None
    for messages in (CHAT[:1], CHAT):
        assert form.render(messages) == template.render(messages)
    assert form.render([{"role": "tool", "content": ""}]) is None


@pytest.mark.parametrize("text", [
    _LOOP + "{{ loop.index }}{{ m['content'] }}{% endfor %}",
    _LOOP + "{{ m['content'] | upper }}{% endfor %}",
    _LOOP + "{{ m['content'].split('</think>')[-1] }}{% endfor %}",
    "{{ messages[-1]['content'] }}", "nothing", "{{ raise_exception('never') }}",
    "{% for m in messages[:4] %}{{ m['content'] }}{% endfor %}",
])  # fmt: skip
def test_others_are_none(text: str) -> None:
    assert chat_form(ChatTemplate(text, {})) is None
