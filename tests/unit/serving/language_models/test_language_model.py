"""Promise: a language model's files answer, the same alone and in company; wrong ones say why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.base.errors import InputError, MemoryLimitError, ModelError, OptionError
from anydim.serving.language_models.language_model import LanguageModel
from tests.unit.serving.language_models import tiny_models
from tests.unit.serving.language_models.tiny_models import HEADS, WIDTH, write_folder, write_gguf

SOURCE = Path(__file__).resolve().parents[4] / "src"
PROMPTS = ["the quick", "a model of words", "0 1 2", "dog"]


def logits_of(model: LanguageModel, tokens: list[int]) -> numpy.ndarray:
    row = model.model.join()
    try:
        return numpy.array(model.model.step({row: numpy.array(tokens)})["logits"][0])
    finally:
        model.model.leave(row)


def reference_logits(tokens: list[int]) -> numpy.ndarray:
    """Llama in float64 by numpy, all tokens at once."""
    w = {name: array.astype(numpy.float64) for name, array in
         tiny_models.weights(tiny_models.tokenizer().get_vocab_size()).items()}  # fmt: skip
    heads, kept = tiny_models.HEADS, tiny_models.KEPT
    depth, count = tiny_models.WIDTH // heads, len(tokens)

    def norm(x: numpy.ndarray) -> numpy.ndarray:
        return x / numpy.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5)

    def rotate(x: numpy.ndarray) -> numpy.ndarray:
        angles = numpy.arange(count)[:, None] * 10000.0 ** (-numpy.arange(0, depth, 2) / depth)
        cos, sin = (f(angles)[None] for f in (numpy.cos, numpy.sin))
        a, b = x[..., : depth // 2], x[..., depth // 2 :]
        return numpy.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    x = w["model.embed_tokens.weight"][tokens]
    for number in range(tiny_models.LAYERS):
        name, y = f"model.layers.{number}.", norm(x)
        q, k, v = (
            (y @ w[f"{name}self_attn.{part}_proj.weight"].T)
            .reshape(count, -1, depth).swapaxes(0, 1) for part in "qkv"
        )  # fmt: skip
        q, k = rotate(q), rotate(k)
        k, v = (part.repeat(heads // kept, axis=0) for part in (k, v))
        scores = q @ k.swapaxes(1, 2) / depth**0.5
        scores = numpy.where(numpy.tri(count, dtype=bool), scores, -numpy.inf)
        shares = numpy.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        mixed = (shares @ v).swapaxes(0, 1).reshape(count, -1)
        x = x + mixed @ w[f"{name}self_attn.o_proj.weight"].T
        y = norm(x)
        gate = y @ w[f"{name}mlp.gate_proj.weight"].T
        wide = gate / (1 + numpy.exp(-gate)) * (y @ w[f"{name}mlp.up_proj.weight"].T)
        x = x + wide @ w[f"{name}mlp.down_proj.weight"].T
    found: numpy.ndarray = norm(x)[-1] @ w["model.embed_tokens.weight"].T
    return found


@pytest.mark.parametrize("count", (1, 2, 31, 100))
def test_logits_are_those_of_the_formulas(lm: LanguageModel, count: int) -> None:
    tokens = numpy.random.default_rng(count).integers(0, lm.spec.vocabulary, count).tolist()
    expected = reference_logits(tokens)
    assert numpy.abs(logits_of(lm, tokens) - expected).max() <= 1e-4 * numpy.abs(expected).max()


@pytest.mark.parametrize("kind", ("F32", "Q8_0", "Q4_1"))
def test_gguf_files_are_the_same_model(lm: LanguageModel, tmp_path: Path, kind: str) -> None:
    tokens = lm.encode(PROMPTS[0] + " " + PROMPTS[1])
    with ad.language_model(write_gguf(tmp_path / "tiny.gguf", kind), threads=1) as other:
        assert other.encode(PROMPTS[1]) == lm.encode(PROMPTS[1])
        expected = logits_of(lm, tokens)
        # half a step of the codes of each weight, in sums of 64 to 96 terms and two layers
        limit = {"F32": 1e-4, "Q8_0": 0.1, "Q4_1": 1.0}[kind] * float(numpy.std(expected))
        assert numpy.sqrt(((logits_of(other, tokens) - expected) ** 2).mean()) <= limit


@pytest.mark.parametrize("quantize", ("q8", "q4"))
def test_quantised_folders_are_near(lm: LanguageModel, folder: Path, quantize: str) -> None:
    tokens = lm.encode(PROMPTS[1])
    with ad.language_model(folder, quantize=quantize, threads=1) as other:
        expected = logits_of(lm, tokens)
        limit = {"q8": 0.1, "q4": 1.0}[quantize] * float(numpy.std(expected))
        assert numpy.sqrt(((logits_of(other, tokens) - expected) ** 2).mean()) <= limit
        assert other.memory([1])["weights"] < lm.memory([1])["weights"] / 2


@pytest.mark.parametrize("cache", ("float16", "bfloat16", "int8"))
def test_narrow_caches_take_less_memory(
    lm: LanguageModel, folder: Path, cache: str, tmp_path: Path
) -> None:
    tokens = numpy.random.default_rng(1).integers(4, 300, 60).tolist()
    expected = logits_of(lm, tokens)
    with ad.language_model(folder, cache=cache, threads=1) as other:
        assert other.model.in_place
        share = (WIDTH // HEADS + 4) / (WIDTH // HEADS * 4) if cache == "int8" else 1 / 2
        assert other.model.cache_bytes([1 << 14]) == share * lm.model.cache_bytes([1 << 14])
        found = logits_of(other, tokens)
        limit = {"float16": 0.02, "bfloat16": 0.1, "int8": 0.1}[cache] * float(numpy.std(expected))
        assert 0 < numpy.sqrt(((found - expected) ** 2).mean()) <= limit
        answer = other.generate("the quick", 40, speculate=4)
        text = answer.read()
        assert text == other.generate("the quick", 40).read()
        other.save(tmp_path / "tiny.anydim")
    with ad.language_model(tmp_path / "tiny.anydim") as saved:
        assert saved.spec.cache == cache and saved.generate("the quick", 40).read() == text
    with pytest.raises(OptionError, match="not float32"):
        ad.language_model(tmp_path / "tiny.anydim", cache="float32")


@pytest.mark.parametrize("wrong", ("int4", "", 16, ["float16"], "FLOAT16"))
def test_other_caches_are_refused(folder: Path, wrong: Any) -> None:
    with pytest.raises(OptionError, match="cache is"):
        ad.language_model(folder, cache=wrong)


@pytest.mark.sampled
@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("config, options", (
    ({}, {"cache": "bfloat16"}),
    ({}, {}), ({}, {"quantize": "q8"}), ({}, {"quantize": "q4"}), ({}, {"precision": "int8"}),
    ({}, {"precision": "bfloat16"}), ({"model_type": "mistral", "sliding_window": 7}, {}),
))  # fmt: skip
def test_bits_do_not_depend_on_how_tokens_are_divided(
    tmp_path: Path, config: dict[str, Any], options: dict[str, Any], threads: int
) -> None:
    path = write_folder(tmp_path / "tiny", **config)
    with ad.language_model(path, threads=threads, **options) as model:
        for count in (2, 17, 64, 100):
            tokens = numpy.random.default_rng(count).integers(0, model.spec.vocabulary, count)
            expected = logits_of(model, tokens.tolist())
            for part in (1, 7, 16, count - 1):
                row = model.model.join()
                for begin in range(0, count, part):
                    made = model.model.step({row: tokens[begin : begin + part]})["logits"]
                model.model.leave(row)
                assert numpy.array_equal(made[0], expected)


def test_equal_layers_update_their_caches_in_place(tmp_path: Path) -> None:
    tensors = tiny_models.weights(tiny_models.tokenizer().get_vocab_size())
    first = "model.layers.0."
    for number in range(6):
        own = {name: array for name, array in tensors.items() if name.startswith(first)}
        tensors |= {name.replace(first, f"model.layers.{number}."): array
                    for name, array in own.items()}  # fmt: skip
    path = write_folder(tmp_path / "tiny", tensors, num_hidden_layers=6)
    with ad.language_model(path, threads=1) as model:
        assert model.model.in_place and len(model.model.caches) == 12


def test_a_conversation_reads_what_is_new(lm: LanguageModel) -> None:
    messages = [{"role": "user", "content": "0 1 2 3 " * 10}]
    first = lm.chat(messages, 20, logit_bias={0: -1e3})
    messages += [{"role": "assistant", "content": first.read()},
                 {"role": "user", "content": "a model of words"}]  # fmt: skip
    whole = len(lm.chat_tokens(messages))
    before = lm.decoder.metrics()["prompt_tokens"]
    lm.chat(messages, 5).read()
    assert lm.decoder.metrics()["prompt_tokens"] - before <= whole - 40


def test_answers_are_the_same_alone_and_in_company(lm: LanguageModel) -> None:
    def answer(prompt: str) -> list[int]:
        stream = lm.generate(prompt, 20, temperature=0.8, top_k=40, min_p=0.01, seed=7)
        stream.read()
        return stream.tokens

    alone = [answer(prompt) for prompt in PROMPTS]
    found: dict[str, list[int]] = {}
    threads = [threading.Thread(target=lambda p=p: found.update({p: answer(p)})) for p in PROMPTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[prompt] for prompt in PROMPTS] == alone


def test_text_is_the_text_of_the_tokens(lm: LanguageModel) -> None:
    stream = lm.generate("the quick", 12)
    text = stream.read()
    assert stream.reason in ("stop", "length")
    kept = [token for token in stream.tokens if token not in (0,)]
    assert text == lm.decode(kept)
    assert list(stream) == []


def test_stop_texts_are_cut(lm: LanguageModel) -> None:
    whole = lm.generate("the quick", 12).read()
    assert len(whole) > 3
    stop = whole[2:4]
    stream = lm.generate("the quick", 12, stop=stop)
    assert stream.read() == whole[: whole.index(stop)]
    assert stream.reason == "stop"


def test_a_closed_stream_frees_its_row(lm: LanguageModel) -> None:
    stream = lm.generate("the quick", 100, logit_bias={0: -1000.0})
    next(stream)
    stream.close()
    assert list(stream) == []
    lm.generate("a", 1).read()
    for _ in range(100):
        if not lm.decoder.metrics()["rows"]:
            return
        threading.Event().wait(0.05)
    raise AssertionError("the row is not free")


def test_a_stream_ends_for_all_threads_that_read_it(folder: Path) -> None:
    with ad.language_model(folder, rows=1, threads=1) as lm:
        expected = lm.generate("the quick", 100, logit_bias={0: -1000.0}).read()
        first = lm.generate("the quick", 100, logit_bias={0: -1000.0})
        waiting = lm.generate("a", 100, logit_bias={0: -1000.0})
        parts: list[str] = []
        readers = [threading.Thread(target=parts.extend, args=(each,), daemon=True)
                   for each in (waiting, waiting, first, first)]  # fmt: skip
        for thread in readers:
            thread.start()
        waiting.close()
        for thread in readers:
            thread.join(60)
        assert not any(thread.is_alive() for thread in readers)
        assert waiting.reason == "stop" and first.reason == "length"
        assert len("".join(parts)) >= len(expected)


def test_bias_and_penalty_decide_tokens(lm: LanguageModel) -> None:
    assert lm.generate("a", 3, logit_bias={17: 1000.0}).read() == lm.decode([17, 17, 17])
    stream = lm.generate("a", 3, logit_bias={17: 500.0, 18: 400.0, 19: 300.0},
                         repetition_penalty=100.0)  # fmt: skip
    stream.read()
    assert stream.tokens == [17, 18, 19]


def test_chat_renders_the_template(lm: LanguageModel) -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    tokens = lm.chat_tokens(messages)
    expected = "<|system|>be brief<|end|><|user|>hi<|end|><|assistant|>"
    assert tokens == tiny_models.tokenizer().encode(expected).ids
    assert lm.chat(messages, 5).read() == lm.generate(tokens, 5).read()


def test_a_second_start_has_the_same_answers(lm: LanguageModel, folder: Path) -> None:
    expected = lm.generate("the quick", 10).read()
    with ad.language_model(folder, threads=1) as again:
        assert again.generate("the quick", 10).read() == expected


def test_a_second_start_imports_no_compiler_and_reads_no_records(
    lm: LanguageModel, folder: Path
) -> None:
    script = (
        "import sys, anydim\n"
        f"lm = anydim.language_model({str(folder)!r}, threads=1)\n"
        "lm.generate('the quick', 3).read()\n"
        "names = {'frontends', 'kernels', 'graph', 'passes', 'targets', 'pipeline'}\n"
        "print([m for m in sys.modules if {*m.split('.')[2:3]} & names and 'compiler' in m])\n"
        "stored = lm.model.step_formula; del vars(lm.model)['step_formula']\n"
        "print(stored == lm.model.step_formula)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert done.stdout.split("\n")[:2] == ["[]", "True"]


def test_memory_is_the_sum_of_its_caches(lm: LanguageModel) -> None:
    depth = tiny_models.WIDTH // tiny_models.HEADS
    per_token = 2 * tiny_models.LAYERS * tiny_models.KEPT * depth * 4
    one, two = lm.memory([64])["caches"], lm.memory([64, 64])["caches"]
    assert one == 64 * per_token
    assert two == 2 * one


def test_equal_layers_update_all_their_caches_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal layers share the bodies of their loops over rows."""
    monkeypatch.setattr(tiny_models, "LAYERS", 5)
    with ad.language_model(write_folder(tmp_path / "deep"), threads=1) as model:
        assert model.model.in_place and len(model.model.caches) == 10


def test_the_largest_length_is_the_last_that_fits(folder: Path) -> None:
    with ad.language_model(folder, threads=1, memory="200 KiB") as lm:
        one, four = lm.largest(), lm.largest(4)
        assert 0 < four < one < tiny_models.CONTEXT
        assert lm.largest(33) == 0  # a step has at most 32
        assert lm.generate([5], None, logit_bias={0: -1e3}).read() is not None
        stream = lm.generate([5], None, logit_bias={0: -1e3})
        stream.read()
        assert len(stream.tokens) == one - 1 and stream.reason == "length"
        with pytest.raises(MemoryLimitError):
            lm.generate([5], one)
        assert f"{four:,} for 4" in lm.explain() and "bytes a token" in lm.explain()


WRONG: dict[str, tuple[type[Exception], Callable[[LanguageModel], object]]] = {
    "no text": (InputError, lambda m: m.generate(3)),  # type: ignore[arg-type]
    "empty": (InputError, lambda m: m.generate([])),
    "floats": (InputError, lambda m: m.generate([1.5])),  # type: ignore[list-item]
    "two axes": (InputError, lambda m: m.generate([[1], [2]])),  # type: ignore[list-item]
    "unknown token": (InputError, lambda m: m.generate([1, 100_000])),
    "negative token": (InputError, lambda m: m.generate([-1])),
    "too long": (InputError, lambda m: m.generate([1] * tiny_models.CONTEXT)),
    "no rows": (OptionError, lambda m: m.largest(0)),
    "no tokens": (OptionError, lambda m: m.generate("a", 0)),
    "temperature": (OptionError, lambda m: m.generate("a", temperature=-1)),
    "temperature nan": (OptionError, lambda m: m.generate("a", temperature=float("nan"))),
    "top_p": (OptionError, lambda m: m.generate("a", top_p=0)),
    "top_k": (OptionError, lambda m: m.generate("a", top_k=-1)),
    "min_p": (OptionError, lambda m: m.generate("a", min_p=2)),
    "penalty": (OptionError, lambda m: m.generate("a", repetition_penalty=0)),
    "bias of no token": (OptionError, lambda m: m.generate("a", logit_bias={100_000: 1})),
    "bias": (OptionError, lambda m: m.generate("a", logit_bias={"x": 1})),  # type: ignore[dict-item]
    "seed": (OptionError, lambda m: m.generate("a", seed=-1)),
    "stop": (OptionError, lambda m: m.generate("a", stop=[""])),
    "stop number": (OptionError, lambda m: m.generate("a", stop=3)),  # type: ignore[arg-type]
    "no messages": (InputError, lambda m: m.chat([])),
    "text as messages": (InputError, lambda m: m.chat("hi")),  # type: ignore[arg-type]
    "no role": (InputError, lambda m: m.chat([{"content": "hi"}])),
    "no content": (InputError, lambda m: m.chat([{"role": "user"}])),
    "an image": (
        InputError,
        lambda m: m.chat(
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
        ),
    ),
    "calls": (InputError, lambda m: m.chat([{"role": "assistant", "tool_calls": "f"}])),
    "length": (OptionError, lambda m: m.memory([0])),
    "encode": (InputError, lambda m: m.encode(b"a")),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_calls_say_why(lm: LanguageModel, case: str) -> None:
    error, call = WRONG[case]
    with pytest.raises(error):
        call(lm)
    assert lm.generate("a", 1).read() is not None  # it still answers


@pytest.mark.parametrize("precision", ["auto", 3, b"int8"])
def test_a_precision_that_no_language_model_has(folder: Path, precision: Any) -> None:
    with pytest.raises(OptionError, match="precision is"):
        ad.language_model(folder, threads=1, precision=precision)


def test_sequences_that_never_fit_are_refused(folder: Path) -> None:
    with (
        ad.language_model(folder, threads=1, memory="60 KiB") as small,
        pytest.raises(MemoryLimitError),
    ):
        small.generate("a", tiny_models.CONTEXT - 1)


def _changed(folder: Path, change: Callable[[dict[str, Any]], object], **fields: Any) -> Path:
    tensors: dict[str, Any] = tiny_models.weights(tiny_models.tokenizer().get_vocab_size())
    change(tensors)
    return write_folder(folder, tensors, **fields)


DAMAGED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "missing weight": ("has no 'model.layers.1.mlp.up_proj.weight'", lambda p: _changed(
        p, lambda t: t.pop("model.layers.1.mlp.up_proj.weight"))),
    "more weights": ("does not use: 'model.layers.0.self_attn.sinks'", lambda p: _changed(
        p, lambda t: t.update({"model.layers.0.self_attn.sinks": numpy.ones(4, "f4")}))),
    "other shape": (r"is \[64, 63\], expected \[64, 64\]", lambda p: _changed(
        p, lambda t: t.update({"model.layers.0.self_attn.q_proj.weight": numpy.ones((64, 63), "f4")}
                              ))),
    "integers": ("expected floats", lambda p: _changed(
        p, lambda t: t.update({"model.norm.weight": numpy.ones(64, "i4")}))),
    "no config": ("config.json", lambda p: write_folder(p) and (p / "config.json").unlink()),
    "no JSON": ("not JSON", lambda p: write_folder(p) and (
        p / "config.json").write_text("{", "utf-8")),
    "list": ("not an object", lambda p: write_folder(p) and (
        p / "config.json").write_text("[]", "utf-8")),
    "no weights": ("safetensors", lambda p: write_folder(p) and (p / "model.safetensors").unlink()),
    "cut weights": ("safetensors", lambda p: write_folder(p) and (
        p / "model.safetensors").write_bytes(b"\0" * 20)),
    "no tokenizer": ("is no tokenizer", lambda p: write_folder(p) and (
        p / "tokenizer.json").write_text("{}", "utf-8")),
    "damaged template": ("template", lambda p: write_folder(p) and (
        p / "chat_template.jinja").write_text("{% for %}", "utf-8")),
    "unknown type": ("'bert' are not known", lambda p: write_folder(p, model_type="bert")),
    "heads": ("3 of keys", lambda p: write_folder(p, num_key_value_heads=3)),
    "activation": ("'relu6'", lambda p: write_folder(p, hidden_act="relu6")),
    "size": ("'vocab_size'", lambda p: write_folder(p, vocab_size="many")),
    "rope": ("'spiral'", lambda p: write_folder(p, rope_scaling={"rope_type": "spiral"})),
    "rope without factor": ("'factor'", lambda p: write_folder(
        p, rope_scaling={"rope_type": "linear"})),
    "quantised": ("quantised", lambda p: write_folder(p, quantization_config={"bits": 4})),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_folders_say_what_is_wrong(tmp_path: Path, case: str) -> None:
    text, make = DAMAGED[case]
    make(tmp_path / "tiny")
    with pytest.raises(ModelError, match=text):
        ad.language_model(tmp_path / "tiny", threads=1)


@pytest.mark.parametrize("given", (None, 3, b"x", "nowhere", "nowhere.gguf"))
def test_wrong_paths_say_so(given: Any) -> None:
    with pytest.raises((OptionError, ModelError)):
        ad.language_model(given)


@pytest.mark.parametrize("options", ({"context": 0}, {"context": 129}, {"context": "x"},
                                     {"quantize": "q5"}, {"quantize": 8}))  # fmt: skip
def test_wrong_options_say_so(folder: Path, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        ad.language_model(folder, **options)


def test_templates_run_in_a_sandbox(tmp_path: Path) -> None:
    attack = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    path = write_folder(tmp_path / "tiny")
    (path / "chat_template.jinja").write_text(attack, "utf-8")
    with ad.language_model(path, threads=1) as model, pytest.raises(InputError):
        model.chat([{"role": "user", "content": "hi"}])


def test_an_unknown_architecture_of_gguf_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="'rwkv' are not known"):
        ad.language_model(write_gguf(tmp_path / "x.gguf", architecture="rwkv"))


@pytest.mark.parametrize("window", (None, 0))
def test_configs_may_hold_nulls(tmp_path: Path, window: int | None) -> None:
    path = write_folder(tmp_path / "tiny", rope_scaling=None, head_dim=None, sliding_window=window)
    assert json.loads((path / "config.json").read_text("utf-8"))["head_dim"] is None
    with ad.language_model(path, threads=1) as model:
        assert model.generate("a", 2).read() is not None


def test_products_have_the_precision_that_is_given(folder: Path, lm: LanguageModel) -> None:
    """Of 8 bits: near to float32, and a sequence has the tokens that it has alone."""
    tokens = [5, 9, 12, 7]
    with ad.language_model(folder, threads=1, precision="int8") as narrow:
        found, plain = logits_of(narrow, tokens), logits_of(lm, tokens)
        error = abs(found - plain).max() / abs(plain).max()
        assert 1e-5 < error < 0.2
        alone = {text: "".join(narrow.generate(text, max_tokens=6)) for text in PROMPTS}
        together: dict[str, str] = {}

        def answer(text: str) -> None:
            together[text] = "".join(narrow.generate(text, max_tokens=6))

        threads = [threading.Thread(target=answer, args=[text]) for text in PROMPTS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert together == alone
    with pytest.raises(OptionError, match="precision is 'int9'"):
        ad.language_model(folder, precision="int9")
