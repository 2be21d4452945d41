"""Promise: an exported language model generates the tokens of `ad.language_model` in node, chats by
its template, and says what is wrong with prompts, options and files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import anydim as ad
from anydim.base.errors import OptionError
from anydim.serving.language_models.language_model import LanguageModel
from tests.unit.deploy.web.node import answers, needs_node
from tests.unit.deploy.web.pages import answers_in_page, in_browsers
from tests.unit.serving.language_models.tiny_models import write_folder, write_gguf

pytestmark = needs_node
CHAT = [{"role": "system", "content": "a model"}, {"role": "user", "content": "the dog"}]
PROMPTS = ["t", "the quick brown fox", "0 1 2 3", "naïve é 👍", [5], [300, 0, 17], list(range(127))]


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageModel]:
    source = write_folder(tmp_path_factory.mktemp("lm") / "tiny")
    with ad.language_model(source, threads=1) as model:
        yield model


@pytest.fixture(scope="module")
def folder(lm: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("web") / "tiny"
    lm.export(made, target="wasm32")
    return made


def codes(*texts: str) -> list[dict[str, str]]:
    return [{"code": text} for text in texts]


def values(folder: Path, *texts: str, **options: Any) -> list[Any]:
    found = answers(folder, codes(*texts), **options)
    assert all("value" in each for each in found), found
    return [each["value"] for each in found]


def whole(prompt: object, options: str = "{ maxTokens: 90 }") -> str:
    """JavaScript for an answer: its text, tokens and reason."""
    return f"""(async () => {{
      const stream = model.generate({json.dumps(prompt)}, {options});
      const text = await stream.read();
      return [text, stream.tokens, stream.reason];
    }})()"""


def answer(lm: LanguageModel, prompt: Any, most: int | None = 90, **more: Any) -> list[Any]:
    stream = lm.generate(prompt, most, **more)
    return [stream.read(), stream.tokens, stream.reason]


@pytest.mark.parametrize("relaxed, threads", [(False, 1), (False, 3), (True, 2)])
def test_tokens_are_those_of_python(
    relaxed: bool, threads: int, lm: LanguageModel, folder: Path
) -> None:
    """Prompts of 1 to 127 tokens; caches grow; each new prompt keeps what it shares."""
    found = values(folder, *map(whole, PROMPTS), relaxed=relaxed, threads=threads)
    assert found == [answer(lm, prompt) for prompt in PROMPTS]


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0"])
def test_weights_of_few_bits_stay_narrow(kind: str, folder: Path, tmp_path: Path) -> None:
    wide = (folder / "model.weights").stat().st_size
    with ad.language_model(write_gguf(tmp_path / "tiny.gguf", kind), threads=1) as lm:
        lm.export(tmp_path / "web", target="wasm32")
        found = values(tmp_path / "web", *map(whole, PROMPTS[:3]))
        assert found == [answer(lm, prompt) for prompt in PROMPTS[:3]]
    assert (tmp_path / "web" / "model.weights").stat().st_size < wide * 0.6


def test_texts_chats_and_memory_are_those_of_python(lm: LanguageModel, folder: Path) -> None:
    chat = json.dumps(CHAT)
    tokens, text, prompt, said, memory, stop = values(
        folder, "model.encode('the lazy dog <|end|>')", "model.decode([263, 0, 313])",
        f"model.encode(model.chatText({chat}))", f"model.chat({chat}, {{ maxTokens: 9 }}).read()",
        "[1, 64, 65, 128].map((count) => model.memory(count))", "model.stop",
    )  # fmt: skip
    assert tokens == lm.encode("the lazy dog <|end|>") and text == lm.decode([263, 0, 313])
    assert prompt == lm.chat_tokens(CHAT) and said == lm.chat(CHAT, 9).read() and stop == [0]
    for length, each in zip((1, 64, 65, 128), memory, strict=True):
        fresh = min(length, 128)
        assert each["caches"] == lm.memory([length])["caches"]
        assert each["step"] == lm.model.step_bytes([length - fresh], [fresh])
        assert each["weights"] == (folder / "model.weights").stat().st_size


def test_sequences_at_once_have_their_own_tokens(lm: LanguageModel, folder: Path) -> None:
    code = """Promise.all(["the quick", "0 1", "the quick brown"].map(
      async (text) => {
        const stream = model.generate(text, { maxTokens: 12 });
        return (await stream.read()) && stream.tokens;
      }))"""
    (found,) = values(folder, code)
    assert found == [answer(lm, each, 12)[1] for each in ("the quick", "0 1", "the quick brown")]


def test_draws(lm: LanguageModel, folder: Path) -> None:
    """A seed draws what it draws in Python; the likeliest token alone is greedy."""
    greedy = answer(lm, "the dog")
    cases = [(9, 0, 1, 1), (9, 0, 1, 2**53 - 1), (7, 40, 1, 2), (5, 0, 0.7, 3), (9, 99, 0.9, 4)]
    given = [{"temperature": t, "topK": k, "topP": p, "seed": s, "maxTokens": 90}
             for t, k, p, s in cases]  # fmt: skip
    top, share, *found = values(
        folder, whole("the dog", "{ temperature: 1, topK: 1, maxTokens: 90 }"),
        whole("the dog", "{ temperature: 1, topP: 1e-9, maxTokens: 90 }"),
        *(whole("the dog", json.dumps(each)) for each in given),
    )  # fmt: skip
    assert top == greedy == share
    assert found == [answer(lm, "the dog", temperature=t, top_k=k, top_p=p, seed=s)
                     for t, k, p, s in cases]  # fmt: skip


def test_stop_texts(lm: LanguageModel, folder: Path) -> None:
    """Across tokens, in bytes that are no characters, and two that overlap: as in Python."""
    cases = []
    for seed in range(6):
        options = {"temperature": 9, "seed": seed}
        text = answer(lm, "the dog", 40, **options)[0]
        stops = [[text[7:9]], [text[9:12], text[8:14]], [text[-1], "never"]][seed % 3]
        cases.append({**options, "stop": stops})
    found = values(folder, *(whole("the dog", json.dumps({**each, "maxTokens": 40}))
                             for each in cases))  # fmt: skip
    assert found == [answer(lm, "the dog", 40, **each) for each in cases]


def test_answers_end(lm: LanguageModel, folder: Path) -> None:
    text = answer(lm, "the dog", 40)[0]
    stop = text[6:9]
    ended, listed, length, rest, left, aborted = values(
        folder, whole("the dog", json.dumps({"stop": stop, "maxTokens": 40})),
        whole("the dog", json.dumps({"stop": ["never", stop], "maxTokens": 40})),
        whole("the dog", "{ maxTokens: 1 }"), whole(list(range(1, 120)), "{ maxTokens: null }"),
        """(async () => {
          const stream = model.generate("the dog");
          for await (const text of stream) break;
          return [stream.tokens.length < 5, stream.reason, (await stream.next()).done];
        })()""",
        """(async () => {
          const stopping = new AbortController();
          const stream = model.tokens("the dog", { signal: stopping.signal });
          for await (const token of stream) if (stream.tokens.length === 3) stopping.abort();
          return [stream.tokens.length, stream.reason];
        })()""",
    )  # fmt: skip
    assert ended == listed == answer(lm, "the dog", 40, stop=stop) and ended[2] == "stop"
    assert length == answer(lm, "the dog", 1) and rest == answer(lm, list(range(1, 120)), None)
    assert left == [True, "stop", True] and aborted == [3, "stop"]


ERRORS = {
    "model.generate('')": "a prompt is Array of 0; expected a text or a list of tokens, 0 to 314",
    "model.generate([])": "at least one",
    "model.generate(7)": "a prompt is 7",
    "model.generate([1, 315])": "token 1 is 315; expected",
    "model.generate([-1])": "token 0 is -1",
    "model.generate([1.5])": "token 0 is 1.5",
    "model.generate(new Array(128).fill(1))": "has 128 tokens, and sequences at most 128; shorten",
    "model.logits(new Array(129).fill(1))": "129 tokens are above the 128 of a sequence",
    "model.generate('a', { maxtokens: 3 })": "generate has no options 'maxtokens'; it has",
    "model.generate('a', { maxTokens: 0 })": "option 'maxTokens' is 0; expected a number",
    "model.generate('a', { temperature: -1 })": "option 'temperature' is -1",
    "model.generate('a', { topK: 0.5 })": "option 'topK' is 0.5",
    "model.generate('a', { topP: 0 })": "option 'topP' is 0",
    "model.generate('a', { seed: -1 })": "option 'seed' is -1",
    "model.generate('a', { stop: [''] })": "option 'stop' is",
    "model.generate('a', { signal: 1 })": "expected an AbortSignal",
    "model.generate('a', 3)": "takes options as an object, came 3",
    "model.tokens('a', { stop: 'b' })": "use generate",
    "model.encode(3)": "a text is 3",
    "model.decode('a')": "a prompt is",
    "model.chat([])": "messages are Array of 0",
    "model.chat([{ role: 'user' }])": "message 0 is Object; expected {role, content}",
    "model.chat([{ role: 'tool', content: '' }])": "the chat template has no role 'tool'",
    "model.memory(0)": "memory is of 1 to 128 tokens, came 0",
    "model.memory(129)": "came 129",
}


def test_wrong_calls_are_errors_and_change_nothing(lm: LanguageModel, folder: Path) -> None:
    found = answers(folder, codes(*ERRORS, whole("the dog"), "(model.close(), model.bytes)"))
    for given, text, each in zip(ERRORS, ERRORS.values(), found):
        assert each.get("ours") and text in each["error"], (given, each)
        assert each["error"].startswith("tiny: ")
    assert found[-2]["value"] == answer(lm, "the dog")
    assert "the model is closed" in found[-1]["error"]


def test_wrong_files_are_errors(folder: Path, tmp_path: Path) -> None:
    data = bytearray((folder / "model.weights").read_bytes())
    for name, change in (("short", data[:-1]), ("long", [*data, 0]), ("none", b"")):
        (tmp_path / name).write_bytes(bytes(change))
    data[-1] ^= 1
    (tmp_path / "changed").write_bytes(data)
    data[3] ^= 1
    (tmp_path / "other").write_bytes(data)
    wanted = {"short": "is not whole: expected", "long": "has more bytes", "none": "came 0",
              "changed": "is damaged: expected the sums", "other": "another model's: expected",
              "absent": "cannot be read"}  # fmt: skip
    for name, text in wanted.items():
        (found,) = answers(folder, codes("model.stop"), weights=str(tmp_path / name))
        assert found["ours"] and text in found["error"], (name, found)
    (found,) = answers(folder, codes("0"), tokenizer=str(tmp_path / "other"))
    assert "other is not JSON" in found["error"]
    shutil.copytree(folder, tmp_path / "copy")
    place = tmp_path / "copy" / "tokenizer.json"
    place.write_bytes(place.read_bytes().replace(b"the", b"teh", 1))
    (found,) = answers(tmp_path / "copy", codes("0"))
    assert found["ours"] and "tokenizer.json is damaged or another model's" in found["error"]
    (found,) = answers(folder, codes("0"), tokeniser=1)
    assert "load has no options 'tokeniser'" in found["error"]


def test_tokenizers_are_pluggable(lm: LanguageModel, folder: Path) -> None:
    own = {"model": {"type": "Unigram"}}
    unknown, tokens = answers(
        folder, codes("model.generate('a')", "model.tokens([5], { maxTokens: 3 }).next()"),
        tokenizer=own,
    )  # fmt: skip
    assert "of the kind 'Unigram', known is BPE; give load a 'tokenizer'" in unknown["error"]
    assert tokens["value"]["value"] == answer(lm, [5], 1)[1][0]
    none, ids = answers(folder, codes("model.encode('a')", "model.tokenizer"), tokenizer=None)
    assert "without a tokenizer" in none["error"] and ids["value"] is None
    code = """(async () => {
      const { load } = await import(location);
      const tokenizer = {
        encode: (text) => [...text].map(Number),
        decode(tokens) {
          if (!tokens.length) throw Error("no tokens");
          return tokens.join(" ");
        },
      };
      const template = (messages) => messages.map((each) => each.content).join("");
      const other = await load({ tokenizer, template });
      const stream = other.chat([{ role: "any", content: "45" }], { maxTokens: 2 });
      return [other.encode("123"), await stream.read()];
    })()""".replace("location", json.dumps((folder / "model.js").as_uri()))  # fmt: skip
    ((encoded, said),) = values(folder, code)
    assert encoded == [1, 2, 3] and said == " ".join(map(str, answer(lm, [4, 5], 2)[1]))


def test_a_template_that_is_no_table_is_refused(tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ loop.index }}{{ m['content'] }}{% endfor %}"
    source = write_folder(tmp_path / "tiny", template=template)
    with ad.language_model(source, threads=1) as lm:
        lm.export(tmp_path / "web", target="wasm32", name="other name")
    found = answers(tmp_path / "web", codes(f"model.chat({json.dumps(CHAT)})", "model.chatProblem"))
    problem = "the chat template writes more than fixed texts between messages"
    assert found[0]["error"] == f"other name: {problem}; give load a 'template'"
    assert found[1]["value"] == problem


def test_what_cannot_be_exported(lm: LanguageModel, tmp_path: Path) -> None:
    lm.save(tmp_path / "tiny.anydim")
    saved = ad.language_model(tmp_path / "tiny.anydim", threads=1)
    with saved, pytest.raises(OptionError, match="a saved language model cannot be exported"):
        saved.export(tmp_path / "web", target="wasm32")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "tokenizer.json").write_text("{}", "utf-8")
    with pytest.raises(OptionError, match=r"already holds 'tokenizer\.json'"):
        lm.export(tmp_path / "full", target="wasm32")


@in_browsers
@pytest.mark.slow
def test_answers_in_pages_are_those_of_node(browser: str, folder: Path) -> None:
    cases = codes(*map(whole, PROMPTS), "model.generate([315])")
    assert answers_in_page(folder, cases, browser=browser) == answers(folder, cases)


@in_browsers
@pytest.mark.slow
def test_the_page_chats(browser: str, lm: LanguageModel, folder: Path) -> None:
    code = """(async () => {
      const frame = document.createElement("iframe");
      frame.src = "model/index.html";
      document.body.append(frame);
      const until = async (found) => {
        for (;;) {
          const made = found(frame.contentDocument);
          if (made) return made;
          await new Promise((later) => setTimeout(later, 50));
        }
      };
      const form = await until((page) => page?.querySelector("form button:enabled")?.form);
      for (const text of ["the dog", "0 1"]) {
        const count = form.ownerDocument.querySelectorAll(".figures").length;
        form.elements.maxTokens.value = 20;
        form.elements.message.value = text;
        form.requestSubmit();
        await until((page) => page.querySelectorAll(".figures").length > count);
      }
      const every = (kind) => form.ownerDocument.querySelectorAll(kind);
      const texts = (kind) => Array.from(every(kind), (each) => each.textContent);
      return [texts(".assistant"), texts(".figures"), texts("#state")];
    })()"""
    (found,) = answers_in_page(folder, codes(code), browser=browser)
    said, figures, (state,) = found["value"]
    messages: list[dict[str, str]] = []
    for text, each in zip(("the dog", "0 1"), said, strict=True):
        messages.append({"role": "user", "content": text})
        messages.append({"role": "assistant", "content": lm.chat(messages, 20).read()})
        assert each == messages[-1]["content"]
    assert all("first token after" in each and "tokens" in each for each in figures), figures
    assert "MiB of memory, at most" in state
