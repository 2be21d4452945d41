"""Promise: an exported model has the same bits with any number of threads, in node and in pages;
where threads cannot start, calls run on one, and a text says why; a model that is closed ends its
threads."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anydim as ad
from tests.aarch64.models import Graph, images, recurrent
from tests.unit.deploy.kinds import KINDS, Inputs, floats
from tests.unit.deploy.web.node import answers, call_of, needs_node, outputs
from tests.unit.deploy.web.pages import ISOLATED, answers_in_page, in_browsers
from tests.unit.deploy.web.test_web_export import weighted

pytestmark = needs_node
SIZES = (0, 1, 2, 3, 5, 7, 11, 13, 16, 17, 31, 61, 97, 128, 211, 256, 331, 512, 701, 997)
RUN = "(await model.run({x: {data: new Float32Array(40 * %d).fill(0.5), shape: [%d, 40]}})).y.data"
SUM = f"{RUN}.reduce((a, b) => a + b)"


def mixed() -> Any:
    """A product, rows, a scan whose threads wait for each other, and a reduction over rows."""
    from onnx import TensorProto

    g, random = Graph(), np.random.default_rng(1)
    hidden = g("Tanh", g("MatMul", "x", floats(random, 40, 96)))
    sums = g("CumSum", hidden, np.int64(0))
    rows = g("Softmax", g("MatMul", sums, floats(random, 96, 200)), axis=1)
    most = g("ReduceMax", hidden, axes=[0], keepdims=0)
    return g.model({"x": (TensorProto.FLOAT, ["n", 40])}, [rows, sums, most])


def mixed_inputs() -> Iterator[Inputs]:
    random = np.random.default_rng(2)
    yield from ({"x": floats(random, n, 40)} for n in SIZES if n)


def sequences() -> Iterator[Inputs]:
    random = np.random.default_rng(3)
    for steps, batch in ((0, 1), (1, 1), (7, 1), (64, 1), (31, 4), (128, 16), (97, 0), (200, 3)):
        yield {"x": floats(random, steps, batch, 12)}


def pictures() -> Iterator[Inputs]:
    random = np.random.default_rng(4)
    for count, height, width in ((0, 8, 8), (1, 4, 4), (1, 61, 127), (3, 31, 64), (2, 128, 97)):
        yield {"x": floats(random, count, 3, height, width)}


MODELS: dict[str, tuple[Any, Any]] = {
    "mixed": (mixed, mixed_inputs),
    "looped": (KINDS["looped"].build, KINDS["looped"].inputs),
    "lstm": (lambda: recurrent()[0], sequences),
    "images": (lambda: images()[0], pictures),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("web")
    ad.compile(weighted()).export(made, target="wasm32")
    return made


def value(code: str, folder: Path, **options: Any) -> Any:
    (found,) = answers(folder, [{"code": code}], **options)
    assert "value" in found, found
    return found["value"]


# ---- results -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_bits_do_not_depend_on_threads(name: str, tmp_path: Path) -> None:
    source, inputs = MODELS[name]
    model = ad.compile(source())
    model.export(tmp_path, target="wasm32")
    calls = [call_of(each) for each in inputs()]
    calls += calls[::-1]  # sizes shrink, too
    alone = answers(tmp_path, calls, threads=1)
    assert all(outputs(model, each) for each in alone)
    shared = str(tmp_path / "model-threads.wasm")
    assert answers(tmp_path, calls, threads=1, wasm=shared) == alone
    for threads in (2, 3):
        assert answers(tmp_path, calls, threads=threads) == alone
    fused = answers(tmp_path, calls, relaxed=True, threads=1)
    assert answers(tmp_path, calls, relaxed=True, threads=2) == fused


def test_calls_after_errors(tmp_path: Path) -> None:
    """Indices out of range, found in a run on two threads, and invalid calls."""
    ad.compile(KINDS["encoder"].build()).export(tmp_path, target="wasm32")
    good, bad = ({"ids": np.array([*range(30), last])} for last in (30, 31))
    calls = [call_of(good), call_of(bad), {"code": "model.run({})"}, call_of(good)]
    first, wrong, invalid, again = answers(tmp_path, calls, threads=2)
    assert first == again and "outputs" in first
    assert wrong["ours"] and "an index is outside" in wrong["error"]
    assert invalid["ours"] and "'ids' is missing" in invalid["error"]


def test_fresh_memory_has_fresh_threads(folder: Path) -> None:
    """After a large call the model continues in a new memory, and the old one is freed, whose
    threads would hold it."""
    code = f"""(async () => {{
      const {{ Worker }} = await import("node:worker_threads");
      const post = Worker.prototype.postMessage;
      let begun = 0;
      Worker.prototype.postMessage = function (...words) {{
        begun++;
        return post.call(this, ...words);
      }};
      const held = () => process.memoryUsage().rss / 2 ** 20;
      const first = {RUN % (3, 3)}, bytes = model.bytes, idle = held();
      const wait = () => new Promise((then) => setTimeout(then, 100));
      for (let n = 0; n < 3; n++) {{
        {RUN % (30000, 30000)};
        await wait();
      }}
      for (let n = 0; n < 50 && held() - idle > 100; n++) await wait();
      const again = {RUN % (997, 997)}.slice(0, first.length);
      const same = again.every((value, n) => value === first[n]);
      return [model.bytes < 2 * bytes, model.threads, same, begun >= 6, held() - idle < 150];
    }})()"""
    assert value(code, folder, threads=3, keep=0) == [True, 3, True, True, True]


def test_two_models_at_once(folder: Path) -> None:
    code = f"""(async () => {{
      const {{ load }} = await import({json.dumps((folder / "model.js").as_uri())});
      const other = await load({{ threads: 2 }});
      const calls = [model, other, model, other].map(async (model) => {SUM % (997, 997)});
      const sums = await Promise.all(calls);
      model.close();
      sums.push(await (async (model) => {SUM % (997, 997)})(other));
      return [other.threads, sums.every((sum) => sum === sums[0])];
    }})()"""
    assert value(code, folder, threads=3) == [2, True]


# ---- the number of threads ---------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [0, -1, 1.5, "2", None])
def test_a_wrong_number_is_an_error(wanted: Any, folder: Path) -> None:
    (found,) = answers(folder, [], threads=wanted)
    shown = json.dumps(wanted)
    assert found["ours"]
    assert f"option 'threads' is {shown}; expected a number of at least 1" in found["error"]


def test_the_number_has_bounds_and_a_default(folder: Path, tmp_path: Path) -> None:
    both = "[model.threads, model.threadsProblem]"
    most = "the model was exported with threads=4; export it with threads=9"
    assert value(both, folder, threads=9) == [4, most]
    cores = "(await import('node:os')).availableParallelism()"
    usual = f"Math.min(4, Math.ceil({cores} / 2))"
    assert value(f"[model.threads === {usual}, model.threadsProblem]", folder) == [True, None]
    plain = str(folder / "model.wasm")
    alone = [1, "the given module is one for one thread"]
    assert value(both, folder, threads=2, wasm=plain) == alone
    ad.compile(weighted()).export(tmp_path, target="wasm32", threads=1)
    assert not [*tmp_path.glob("*threads*")]
    (single,) = answers(tmp_path, [{"code": both}], threads=2)
    assert single["value"] == [1, most.replace("4", "1").replace("9", "2")]


def test_downloads_are_small(folder: Path) -> None:
    """A page loads one module and model.js."""
    names = ("model", "model-relaxed", "model-threads", "model-threads-relaxed")
    sizes = {name: (folder / f"{name}.wasm").stat().st_size for name in names}
    assert max(sizes.values()) + (folder / "model.js").stat().st_size < 150_000
    assert sizes["model-threads"] < sizes["model"] + 2000


# ---- threads that fail -------------------------------------------------------------------------


def changed(folder: Path, made: Path, before: str, after: str) -> Path:
    """A copy of an export whose model.js differs in a text."""
    shutil.copytree(folder, made)
    text = (folder / "model.js").read_text("utf-8")
    assert text.count(before) == 1
    (made / "model.js").write_text(text.replace(before, after), "utf-8")
    return made


def test_a_thread_that_does_not_start(folder: Path, tmp_path: Path) -> None:
    """The call runs on one thread, in the module that is loaded."""
    made = "exports } = new WebAssembly.Instance(module, { "
    broken = changed(folder, tmp_path / "a", f"{made}env: {{", f"{made}none: {{")
    found = value(f"[model.threads, model.threadsProblem, {SUM % (61, 61)}]", broken, threads=3)
    assert found[0] == 1 and found[1].startswith("a thread does not start: WebAssembly.Instance")
    assert found[2] == value(SUM % (61, 61), folder, threads=1)
    ended = changed(folder, tmp_path / "b", '${serve})((take) => port.on("message", take),',
                    '${serve})(() => process.exit(0),')  # fmt: skip
    found = value("[model.threads, model.threadsProblem]", ended, threads=2)
    assert found == [1, "a thread does not start: it has ended"]


def test_a_thread_that_fails_in_a_call(folder: Path, tmp_path: Path) -> None:
    """Kernels of workers trap: the call that one takes part in fails, the next one can be right."""
    traps = "table.set(place, exports[name.startsWith('m_') ? 'anydim_yield' : name]);\n      }"
    broken = changed(folder, tmp_path / "a", "table.set(place, exports[name]);\n      }", traps)
    code = f"""(async () => {{
      for (let n = 0; n < 1000; n++) {{
        try {{
          {RUN % (997, 997)};
        }} catch (error) {{
          return [error.message, {SUM % (1, 1)}, model.threads];
        }}
      }}
    }})()"""
    text, single, threads = value(code, broken, threads=2)
    assert text == "weighted: a thread failed" and threads == 2
    assert single == value(SUM % (1, 1), folder, threads=1)


def test_a_closed_model_ends_its_threads(folder: Path) -> None:
    code = """(async () => {
      const { Worker } = await import("node:worker_threads");
      const ended = [], post = Worker.prototype.postMessage;
      Worker.prototype.postMessage = function (...words) {
        this.on("exit", () => ended.push(1));
        return post.call(this, ...words);
      };
      const { load } = await import(location);
      const other = await load({ threads: 3 });
      other.close();
      while (ended.length < 2) await new Promise((later) => setTimeout(later, 10));
      other.close();
      return other.run({}).catch((error) => error.message);
    })()""".replace("location", json.dumps((folder / "model.js").as_uri()))
    assert value(code, folder, threads=1) == "weighted: the model is closed"


# ---- pages -------------------------------------------------------------------------------------


@in_browsers
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixed", "looped", "images"])
def test_pages_have_the_bits_of_node(name: str, browser: str, tmp_path: Path) -> None:
    source, inputs = MODELS[name]
    ad.compile(source()).export(tmp_path, target="wasm32")
    calls = [call_of(each) for each in inputs()]
    alone = answers(tmp_path, calls, threads=1)
    for threads in (1, 2, 3):
        code = {"code": "[model.threads, model.threadsProblem]"}
        found = answers_in_page(tmp_path, [*calls, code], browser=browser, threads=threads)
        assert found == [*alone, {"value": [threads, None]}]


@in_browsers
@pytest.mark.slow
def test_pages_without_threads(browser: str, folder: Path) -> None:
    """Not isolated, and one whose policy forbids the workers' scripts."""
    code = {"code": f"[model.threads, model.threadsProblem, {SUM % (61, 61)}]"}
    sum = value(SUM % (61, 61), folder, threads=1)
    (found,) = answers_in_page(folder, [code], browser=browser, headers={}, threads=2)
    headers = " and ".join(f"{name}: {text}" for name, text in ISOLATED.items())
    problem = f"the page is not isolated; serve it with the headers {headers}"
    assert found["value"] == [1, problem, sum]
    policy = {**ISOLATED, "Content-Security-Policy": "worker-src 'none'"}
    (found,) = answers_in_page(folder, [code], browser=browser, headers=policy, threads=2)
    assert found["value"][::2] == [1, sum] and "worker-src blob:" in found["value"][1]


@in_browsers
@pytest.mark.slow
def test_a_worker_of_a_page_has_threads(browser: str, folder: Path) -> None:
    """There the caller blocks while it waits."""
    code = f"""(async () => {{
      const text = `import {{ load }} from "${{location.origin}}/model/model.js";
        const model = await load({{ threads: 2 }});
        postMessage([model.threads, {SUM % (997, 997)}, {RUN % (0, 0)}.length]);
        model.close();`;
      const address = URL.createObjectURL(new Blob([text], {{ type: "text/javascript" }}));
      const worker = new Worker(address, {{ type: "module" }});
      return new Promise((resolve, reject) => {{
        worker.onmessage = ({{ data }}) => resolve(data);
        worker.onerror = (event) => reject(Error(event.message));
      }});
    }})()"""
    (found,) = answers_in_page(folder, [{"code": code}], browser=browser, threads=1)
    assert found["value"] == [2, value(SUM % (997, 997), folder, threads=1), 0]
