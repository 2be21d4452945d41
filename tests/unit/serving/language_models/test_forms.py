"""Promise: answers have the form that is wanted, alone and in company; wrong forms say why."""

from __future__ import annotations

import json
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import tokenizers

import anydim as ad
from anydim.serving.constraints import MOST_TEXT
from anydim.serving.language_models.language_model import LanguageModel
from tests.unit.serving.language_models.tiny_models import tokenizer, weights, write_folder

pytest.importorskip("llguidance")

SCHEMA = {
    "type": "object", "additionalProperties": False, "required": ["a", "n"],
    "properties": {"a": {"enum": ["x", "é€"]},
                   "n": {"type": "integer", "maximum": 99, "minimum": 0}},
}  # fmt: skip


def folder_of(path: Path, **fields: Any) -> Path:
    tensors = weights(tokenizer().get_vocab_size())
    tensors["model.embed_tokens.weight"] /= 4  # tokens that differ from the one before
    return write_folder(path, tensors, **fields)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(tmp_path_factory.mktemp("lm") / "tiny")


def run(lm: LanguageModel, **options: Any) -> tuple[str, list[int], str | None]:
    stream = lm.generate("the quick", 100, **options)
    return stream.read(), stream.tokens, stream.reason


@pytest.mark.parametrize("options", ({}, {"temperature": 1.0, "top_k": 40}, {
    "temperature": 0.9, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2}))  # fmt: skip
def test_answers_have_their_form(lm: LanguageModel, options: dict[str, Any]) -> None:
    for seed in range(4):
        text, _, reason = run(lm, json_schema=SCHEMA, seed=seed, **options)
        found = json.loads(text)
        assert reason == "stop" and found.keys() == {"a", "n"}
        assert found["a"] in ("x", "é€") and 0 <= found["n"] <= 99
        text, _, reason = run(lm, regex="[ab]{3,6}c(é|€)?", seed=seed, **options)
        assert reason == "stop" and re.fullmatch("[ab]{3,6}c(é|€)?", text)
        text, _, reason = run(lm, grammar='start: "x" ("y" | start)', seed=seed, **options)
        assert re.fullmatch("x+y", text) or reason == "length"
    for schema in (True, {}, {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
                   {"const": None}, {"type": "string", "maxLength": 3}):  # fmt: skip
        text, _, reason = run(lm, json_schema=schema, **options)
        assert reason == "length" or isinstance(json.loads(text), object)
    assert json.loads(run(lm, json_schema={"const": {"k": [1, "ü"]}})[0]) == {"k": [1, "ü"]}
    assert run(lm, regex="")[0] == ""


def test_forms_do_not_depend_on_company_or_drafts(lm: LanguageModel) -> None:
    forms: list[dict[str, Any]] = [
        {"json_schema": SCHEMA}, {}, {"regex": "(0 1 2 )+3"}, {"grammar": 'start: "ab"+ "c"'},
    ]  # fmt: skip
    asked = [{**forms[n % 4], "temperature": 0.8 * (n % 3 > 0), "seed": n} for n in range(12)]
    expected = [run(lm, **each) for each in asked]
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        found[number] = run(lm, speculate=4 * (number % 2), **asked[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(12)] == expected


DEEP: Any = {"type": "string"}
for _ in range(3000):
    DEEP = {"items": DEEP}
WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"json_schema": {"type": "nonsense"}}, "nonsense"), ({"json_schema": 3}, "schema is 3"),
    ({"json_schema": "{}"}, "schema is"), ({"json_schema": [1]}, "schema is"),
    ({"json_schema": {"$ref": "#/x"}}, "/x"), ({"json_schema": {"not": {}}}, "not"),
    ({"json_schema": {"$ref": "http://x.y/z"}}, "x.y"), ({"json_schema": False}, "schema"),
    ({"json_schema": {"pattern": "("}}, "regex"), ({"json_schema": {"properties": 3}}, "object"),
    ({"json_schema": {"a": {1, 2}}}, "no JSON"),
    ({"json_schema": {"a": "x" * MOST_TEXT}}, "at most"),
    ({"json_schema": DEEP}, ""), ({"regex": "("}, "unclosed"), ({"regex": "(?=a)b"}, "look-around"),
    ({"regex": 3}, "text"), ({"regex": b"a"}, "text"),
    ({"regex": "a" * (MOST_TEXT + 1)}, "at most"),
    ({"grammar": ""}, "Empty"),
    ({"grammar": "start: x"}, "unknown name"), ({"grammar": "a: /b/"}, "start"),
    ({"grammar": 'start: "a'}, ""), ({"grammar": []}, "text"),
    ({"regex": "a", "grammar": 'start: "a"'}, "2 forms"),
    ({"json_schema": {}, "regex": "a"}, "2 forms"),
)  # fmt: skip


@pytest.mark.parametrize("given, said", WRONG)
def test_wrong_forms_are_refused_before_anything_runs(
    lm: LanguageModel, given: dict[str, Any], said: str
) -> None:
    before = lm.decoder.metrics()["sequences"]
    with pytest.raises((ad.InputError, ad.OptionError)) as caught:
        lm.generate("the quick", **given)
    assert said in str(caught.value) and len(str(caught.value)) < 600
    assert lm.decoder.metrics()["sequences"] == before


def test_forms_need_their_package_and_a_last_token(
    lm: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = folder_of(tmp_path / "endless", eos_token_id=None)
    with (
        ad.language_model(endless, threads=1) as other,
        pytest.raises(ad.ModelError, match="no token that ends"),
    ):
        other.generate("the quick", regex="a")
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ad.MissingError, match=r"pip install 'anydim\[guide\]'"):
        lm.generate("the quick", regex="a")
    assert lm.generate("the quick", 3).read()


def test_tokens_that_are_no_bytes_give_no_forms(folder: Path, tmp_path: Path) -> None:
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "the": 5}, unk_token="a"))
    words.save(str(tmp_path / "words.json"))
    with ad.language_model(folder, threads=1, tokenizer=tmp_path / "words.json") as other:
        with pytest.raises(ad.ModelError, match="do not give forms"):
            other.generate("the", regex="a")
        assert other.generate("the", 2).read() is not None
