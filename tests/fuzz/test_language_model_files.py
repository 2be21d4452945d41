"""Promise: files of language models that are damaged, or lie, give UserErrors or the same model.

`python -m tests.fuzz.language_model_files` tries thousands.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

import anydim as ad
from anydim.base.read_files import FileRead
from anydim.serving.language_models.bounded_templates import SECONDS
from anydim.serving.language_models.chat_template import ChatTemplate
from anydim.serving.language_models.compiled_rows import Source
from anydim.serving.language_models.weight_files import weight_paths
from tests.fuzz import language_model_files, limited
from tests.unit.serving.language_models.tiny_models import tokenizer, weights, write_folder

MESSAGES = [{"role": "user", "content": "a"}]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux counts it")
def test_damaged_files(tmp_path: Path) -> None:
    judge = language_model_files.judge_in(tmp_path)
    found = dict(limited.run(judge, range(120), language_model_files.SECONDS))
    assert {seed: text for seed, text in found.items() if text.startswith("RAW")} == {}
    assert len(found) == 120 and {"refused", "equal"} <= set(found.values())


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux counts it")
def test_chat_templates_end_and_stay_small() -> None:
    def judge(number: int) -> str:
        try:
            ChatTemplate(language_model_files.TEMPLATES[number], {}).render(MESSAGES)
        except ad.UserError:
            return "refused"
        return "rendered"

    count = len(language_model_files.TEMPLATES)
    found = dict(limited.run(judge, range(count), SECONDS + limited.SECONDS))
    wrong = {language_model_files.TEMPLATES[number]: text for number, text in found.items()
             if text.startswith("RAW")}  # fmt: skip
    assert wrong == {} and len(found) == count


@pytest.mark.parametrize("seed", range(20))
def test_usual_templates_are_rendered_as_by_jinja(seed: int) -> None:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    chance = random.Random(seed)
    parts = (
        "{% for m in messages if m.role != 'tool' %}{{ loop.index ~ m.role + ': ' }}"
        "{{ m.content|trim|upper if loop.first else m['content'].strip() }}{% else %}none"
        "{% endfor %}",
        "{% macro f(x, n=2) %}{{ x * n }}{% endmacro %}{{ f('ab') }}{{ f('c', 3) }}",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
        "{{ ns.n }}", "{{ '%s-%05d' % ('a', 7) }}{{ '{:>4}{x}'.format(1, x=2) }}",
        "{{ messages|map(attribute='role')|join(', ') }}{{ 'a b'.replace(' ', '_').split('_') }}",
        "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ -7 % 3 }}{{ 2**5 }}",
        "{% set text %}a{{ messages[0].content }}{% endset %}{{ text|indent(2) }}{{ [1] + [2] }}",
        "{% call(x) f('q') %}{{ x }}{% endcall %}{% filter upper %}abc{% endfilter %}",
        "{{ messages[-1]['content'][::-1] }}{{ 'x' in 'xyz' }}{{ messages is defined }}",
    )  # fmt: skip
    text = parts[1] + "\n".join(chance.sample(parts, 4)).replace("f('q')", "g()")
    text = "{% macro g() %}{{ caller(5) }}{% endmacro %}" + text
    usual = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    messages = [{"role": role, "content": f" {role} "} for role in ("system", "user", "tool")]
    expected = usual.from_string(text).render(messages=messages)
    assert ChatTemplate(text, {}).render(messages) == expected


def test_another_format_of_packed_weights_is_another_program(tmp_path: Path) -> None:
    tensors = language_model_files._packed(tokenizer().get_vocab_size())
    keys = []
    for form in ("gptq", "gptq_v2"):
        config = {"quant_method": "gptq", "bits": 4, "group_size": 16, "checkpoint_format": form}
        folder = write_folder(tmp_path / "packed", tensors, quantization_config=config)
        source = Source(folder, None, None, None, "float32", 1, None)
        keys.append([FileRead.of(path).digest for path in source.files()])
    assert keys[0] != keys[1]


def test_files_of_weights_are_those_of_the_index(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny")
    whole = folder / "model.safetensors"
    whole.rename(folder / "model-1.safetensors")
    (folder / "old.safetensors").write_bytes((folder / "model-1.safetensors").read_bytes())
    with pytest.raises(ad.ModelError, match="another file have a tensor"):
        language_model_files.opened_of(folder)
    index = folder / "model.safetensors.index.json"
    for name in ("../model-1.safetensors", "/etc/passwd"):
        index.write_text(json.dumps({"weight_map": {"x": name}}), "utf-8")
        with pytest.raises(ad.ModelError, match="other folders"):
            language_model_files.opened_of(folder)
    index.write_text('{"weight_map": {"x": "model-1.safetensors"}}', "utf-8")
    assert weight_paths(folder) == [folder / "model-1.safetensors"]
    whole.write_bytes((folder / "model-1.safetensors").read_bytes())
    assert weight_paths(folder) == [whole]


def test_tokenizers_neither_cut_nor_pad(tmp_path: Path) -> None:
    own = tokenizer()
    own.enable_truncation(3)
    own.enable_padding(length=9, pad_id=1)
    path = tmp_path / "cuts.json"
    own.save(str(path))
    folder = write_folder(tmp_path / "tiny", weights(tokenizer().get_vocab_size()))
    whole, other = (language_model_files.opened_of(folder, each) for each in (None, path))
    for text in ("", "a", "the quick brown fox jumps"):
        assert whole.encode(text) == other.encode(text)
