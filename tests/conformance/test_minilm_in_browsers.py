"""Promise: MiniLM exported for browsers agrees with onnxruntime at every size in one instance, and
the page of the example tokenizes as the package `tokenizers` does."""

from __future__ import annotations

import base64
import json
import subprocess
from functools import partial
from pathlib import Path

import onnxruntime
import pytest

from examples.browser import __main__ as example
from examples.minilm.model import package_folder
from examples.minilm.tokenizer import Tokenizer
from tests.conformance.test_minilm_compiled import TOLERANCE, feeds
from tests.conformance.test_minilm_texts import lines
from tests.unit.deploy.web.node import NODE, answers, needs_node
from tests.unit.deploy.web.pages import BROWSER_CASES, answers_in_page

SIZES = [
    (1, 7), (0, 5), (1, 1), (1, 512), (2, 1), (1, 2), (1, 3), (3, 11), (1, 15), (1, 16), (1, 17),
    (7, 13), (0, 1), (5, 22), (1, 61), (1, 127), (64, 3), (8, 31), (1, 128), (1, 1),
]  # fmt: skip
ODD = (
    "", " ", "naïve Café — ÀÉÎÕÜ", "你好 world", "can't won't", "x" * 101, "a\u200bb\tc\nd",
    "1,0.5$", "e\u0301", "ﬁne", "😀 smile", "a+b=c<d>|`^~", "Straße", "İstanbul", "«»…",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("page")
    example.write(made)
    return made


@pytest.mark.slow
@needs_node
@pytest.mark.parametrize("where", ["node", *BROWSER_CASES])
def test_onnxruntimes_results_at_sizes_in_turn(folder: Path, where: str) -> None:
    peer = onnxruntime.InferenceSession(str(example.model_path()))
    given = [feeds(batch, seq) for batch, seq in SIZES]
    ask = answers if where == "node" else partial(answers_in_page, browser=where)
    code = "model.run(%s).then(({sentence_embedding: {data, shape}}) => [shape, Array.from(data)])"
    calls = [{"code": code % _text(inputs)} for inputs in given]
    for inputs, answer in zip(given, ask(folder, calls, relaxed=None), strict=True):
        shape, data = answer["value"]
        (wanted,) = peer.run(["sentence_embedding"], inputs)
        assert tuple(shape) == wanted.shape
        assert abs(wanted.ravel() - data).max(initial=0) <= TOLERANCE, shape


def _text(inputs: dict) -> str:
    parts = (
        f"{name}: {{data: BigInt64Array.of({', '.join(f'{each}n' for each in array.ravel())}), "
        f"shape: {list(array.shape)}}}"
        for name, array in inputs.items()
    )
    return f"{{{', '.join(parts)}}}"


@pytest.mark.skipif(NODE is None, reason="there is no node")
def test_texts_have_the_tokens_of_tokenizers() -> None:
    texts = [*lines("sentences.txt"), *lines("queries.txt"), *ODD]
    script = """
      const { WordPiece } = await import(process.argv[1]);
      const { readFileSync } = await import("node:fs");
      const { vocabulary, texts } = JSON.parse(readFileSync(0, "utf8"));
      const words = new WordPiece(vocabulary);
      console.log(JSON.stringify(texts.map((text) => words.encode(text))));
    """
    source = Path(example.__file__).with_name("wordpiece.js").read_bytes()
    vocabulary = (package_folder() / "vocab.txt").read_text("utf-8")
    done = subprocess.run(
        [str(NODE), "--input-type=module", "-e", script, _address(source)],
        input=json.dumps({"vocabulary": vocabulary, "texts": texts}), capture_output=True,
        encoding="utf-8", check=True,
    )  # fmt: skip
    tokenizer = Tokenizer()
    for text, found in zip(texts, json.loads(done.stdout), strict=True):
        assert found == tokenizer.one(text)["input_ids"][0].tolist(), text


def _address(source: bytes) -> str:
    """A module as an address, whose file has no type in its folder."""
    return f"data:text/javascript;base64,{base64.b64encode(source).decode()}"
