"""Models exported for browsers beside onnxruntime-web: calls in turn, start, memory, results.

    npm install --prefix out --ignore-scripts onnxruntime-web
    python -m bench.browsers --modules out/node_modules                  # MiniLM
    python -m bench.browsers --modules out/node_modules --wheels FOLDER --page chromium voice
    python -m bench.browsers --modules out/node_modules rec.onnx x=1x3x48x64,1x3x48x320
    python -m bench.browsers --modules out/node_modules --page firefox --threads 2 minilm resnet18

Both engines run on one thread: times are processor time of the node process, with --page of the
page's main thread in a headless browser. With --threads they run on several, and times are
elapsed ones. Short calls are repeated. Names are those of
`browser_models.py`, some of whose models are in unpacked wheels (rapidocr-onnxruntime,
silero-vad). Inputs of a file are shapes, one for each case; `relaxed` has fused multiply-add,
which node 20 has behind a flag. With --check, 20 sizes are compared with onnxruntime, in one
instance.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx

import anydim as ad
from bench.browser_models import NETWORKS, Case, drawn
from tests.unit.deploy.web.node import answers, call_of, outputs
from tests.unit.deploy.web.pages import BROWSERS, answers_in_page, posted

ROUNDS = 15
RELAXED = "--experimental-wasm-relaxed-simd"
_PAGE = b"""<!doctype html><script type="module">
  const answer = ({ message }) => fetch("answers", { method: "POST",
    body: JSON.stringify({ error: message }) });
  await import("/browsers.mjs").catch(answer);
</script>"""
TOLERANCE = 1e-4  # of the largest result, or of 0.01


@click.command(help=__doc__)
@click.option("--modules", help="the folder node_modules with onnxruntime-web")
@click.option("--wheels", default=".", help="a folder of unpacked wheels")
@click.option("--rounds", default=ROUNDS)
@click.option("--page", type=click.Choice([*BROWSERS]), help="calls in a page instead of node")
@click.option("--threads", default=1, help="threads of both engines")
@click.option("--check", is_flag=True, help="compare results instead of times")
@click.argument("models", nargs=-1)
def main(
    modules: str, wheels: str, rounds: int, page: str | None, threads: int, check: bool,
    models: Sequence[str],
) -> None:  # fmt: skip
    for name in models[:1] if models and models[0].endswith(".onnx") else models or ["minilm"]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.onnx")
            network = NETWORKS.get(name)
            source = network.source(Path(wheels)) if network else Path(name)
            if isinstance(source, onnx.ModelProto):
                onnx.save(source, path)
            else:
                shutil.copyfile(source, path)
            made = ad.compile(str(path), threads=1)
            exported = Path(folder, "exported")
            made.export(exported, target="wasm32", threads=max(threads, 4))
            click.echo(name)
            if check:
                assert network is not None, "a file has no sizes to check"
                checked = [network.case(*numbers) for numbers in network.checked]
                _compare(made, path, exported, checked, page, threads)
                continue
            timed = network.timed if network else ()
            cases = [network.case(*each) for each in timed] if network else _cases(made, models[1:])
            _bytes(exported, Path(modules), threads)
            given = {
                "folder": str(exported), "onnx": str(path), "rounds": rounds, "cases": cases,
                "modules": str(Path(modules).resolve()), "threads": threads,
            }  # fmt: skip
            _times(given, page)


def _times(given: Mapping[str, Any], page: str | None) -> None:
    for relaxed in (False, True):
        name = "relaxed" if relaxed else "simd128"
        both = {**given, "relaxed": relaxed, "engines": ["anydim", "onnxruntime"]}
        try:
            _, *found = _page(both, page) if page else _node(both)
        except click.ClickException as error:
            click.echo(f"{name}: {error.message}")
            continue
        for case, each in zip(given["cases"], found):
            ours, theirs = each["times"]
            shapes = " ".join(str(spec["shape"]) for spec in case.values())
            click.echo(f"{name} {shapes}: {ours:.2f} ms, {theirs:.2f} ms, {each['ratio']:.2f}")
    for engine in () if page or given["threads"] > 1 else ("anydim", "onnxruntime"):
        first = given["cases"][:1]
        alone = {**given, "cases": first, "relaxed": True, "engines": [engine], "rounds": 1}
        starts = [_node(alone)[0] for _ in range(5)]
        took, busy = (min(each[kind] for each in starts) for kind in ("start", "processor"))
        held = min(each["bytes"] for each in starts) / 2**20
        about = f"{took:.0f} ms, {busy:.0f} ms of the processor, {held:.0f} MiB"
        click.echo(f"{engine}: first result after {about}")


def _compare(
    model: ad.Model, path: Path, folder: Path, cases: Sequence[Case], page: str | None, threads: int
) -> None:
    """Print the largest difference from onnxruntime; from this machine where an axis is 0."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    peer, random = onnxruntime.InferenceSession(str(path), options), np.random.default_rng(0)
    feeds = [
        {name: drawn(random, **spec) for name, spec in case.items()} for case in cases
    ]  # fmt: skip
    ask = partial(answers_in_page, browser=page) if page else answers
    for relaxed in (False, True):
        found, largest = ask(folder, map(call_of, feeds), relaxed, threads=threads), 0.0
        for inputs, answer in zip(feeds, found, strict=True):
            whole = all(array.size for array in inputs.values())
            wanted = peer.run(None, inputs) if whole else [*model(**inputs).values()]
            for came, right in zip(outputs(model, answer).values(), wanted, strict=True):
                assert came.shape == right.shape
                apart = np.abs(came - right).max(initial=0)
                largest = max(largest, apart / np.abs(right).max(initial=1e-2))
        click.echo(f"{len(feeds)} sizes, relaxed {relaxed}: {largest:.1e} of the largest result")
        assert largest <= TOLERANCE, largest


def _cases(model: ad.Model, texts: Sequence[str]) -> list[Case]:
    named = {name: shapes.split(",") for name, shapes in (text.split("=", 1) for text in texts)}
    types = {spec.name: spec.dtype.name for spec in model.inputs}
    count = max(map(len, named.values()))
    return [
        {
            name: {"dtype": dtype, "shape": _shape(named[name][number % len(named[name])])}
            for name, dtype in types.items()
        }
        for number in range(count)
    ]


def _shape(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x"))) if text else ()


def _bytes(folder: Path, modules: Path, threads: int) -> None:
    """Print what a page downloads besides the weights."""
    there = modules / "onnxruntime-web" / "dist"
    kind = "-threads" if threads > 1 else ""
    ours = [folder / "model.js", folder / f"model{kind}-relaxed.wasm"]
    theirs = [there / "ort.wasm.min.mjs", there / "ort-wasm-simd-threaded.mjs",
              there / "ort-wasm-simd-threaded.wasm"]  # fmt: skip
    for name, files in (("anydim", ours), ("onnxruntime", theirs)):
        data = [each.read_bytes() for each in files]
        plain, packed = sum(map(len, data)), sum(len(gzip.compress(each, 9)) for each in data)
        click.echo(f"{name}: {plain / 1e6:.2f} MB, {packed / 1e6:.3f} by gzip")


def _node(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    node = shutil.which("node")
    assert node is not None, "there is no node"
    script = str(Path(__file__).with_suffix(".mjs"))
    asked = [RELAXED] if request["relaxed"] and _is_known(node) else []
    done = subprocess.run(
        [node, *asked, script], input=json.dumps(request), stdout=subprocess.PIPE, check=True,
        encoding="utf-8",
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert isinstance(found, list)
    return found


def _page(request: Mapping[str, Any], browser: str) -> list[dict[str, Any]]:
    here, onnx = Path(__file__).parent, Path(request["onnx"])
    there = Path(request["modules"], "onnxruntime-web", "dist")
    folders = {"": here, "model": Path(request["folder"]), "onnx": onnx.parent, "ort": there}
    found = posted(_PAGE, folders, request, seconds=3600, browser=browser)
    if not isinstance(found, list):
        raise click.ClickException(found["error"])
    return found


def _is_known(node: str) -> bool:
    return not subprocess.run(
        [node, RELAXED, "-e", "0"], capture_output=True, check=False
    ).returncode


if __name__ == "__main__":
    main()
