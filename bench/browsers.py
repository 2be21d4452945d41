"""Models exported for browsers beside onnxruntime-web, in node: calls in turn, start, memory.

    npm install --prefix out onnxruntime-web
    python -m bench.browsers --modules out/node_modules                  # MiniLM
    python -m bench.browsers --modules out/node_modules rec.onnx x=1x3x48x64,1x3x48x320

Both engines run on one thread. Times are processor time of the node process, with --page time in
a headless Chromium. Inputs of a file are shapes, one for each case; `relaxed` has fused
multiply-add, which node 20 has behind a flag.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

import anydim as ad
from examples.minilm.model import model_path
from tests.unit.deploy.web.chromium import posted

ROUNDS = 15
RELAXED = "--experimental-wasm-relaxed-simd"
SIZES = ((1, 1), (1, 7), (1, 22), (1, 61), (1, 128), (8, 64))  # of MiniLM
Case = Mapping[str, Mapping[str, object]]


@click.command(help=__doc__)
@click.option("--modules", required=True, help="the folder node_modules with onnxruntime-web")
@click.option("--rounds", default=ROUNDS)
@click.option("--page", is_flag=True, help="calls in a page of Chromium instead of node")
@click.argument("model", required=False)
@click.argument("inputs", nargs=-1)
def main(modules: str, rounds: int, page: bool, model: str | None, inputs: Sequence[str]) -> None:
    path = Path(model or model_path())
    made = ad.compile(str(path), threads=1)
    cases = _cases(made, inputs) if model else [_texts(*size) for size in SIZES]
    with tempfile.TemporaryDirectory() as folder:
        made.export(folder, target="wasm32")
        _bytes(Path(folder), Path(modules))
        given = {
            "folder": folder, "onnx": str(path.resolve()), "rounds": rounds, "cases": cases,
            "modules": str(Path(modules).resolve()),
        }  # fmt: skip
        for relaxed in (False, True):
            name = "relaxed" if relaxed else "simd128"
            both = {**given, "relaxed": relaxed, "engines": ["anydim", "onnxruntime"]}
            _, *found = _page(both) if page else _node(both)
            for case, each in zip(cases, found):
                ours, theirs = each["times"]
                shapes = " ".join(str(spec["shape"]) for spec in case.values())
                click.echo(f"{name} {shapes}: {ours:.1f} ms, {theirs:.1f} ms, {each['ratio']:.2f}")
        for engine in () if page else ("anydim", "onnxruntime"):
            alone = {**given, "cases": cases[:1], "relaxed": True, "engines": [engine], "rounds": 1}
            starts = [_node(alone)[0] for _ in range(5)]
            took, busy = (min(each[kind] for each in starts) for kind in ("start", "processor"))
            held = min(each["bytes"] for each in starts) / 2**20
            about = f"{took:.0f} ms, {busy:.0f} ms of the processor, {held:.0f} MiB"
            click.echo(f"{engine}: first result after {about}")


def _texts(batch: int, seq: int) -> Case:
    spec = {"dtype": "int64", "shape": (batch, seq)}
    return {"input_ids": spec, "attention_mask": spec}


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


def _bytes(folder: Path, modules: Path) -> None:
    """Print what a page downloads besides the weights."""
    there = modules / "onnxruntime-web" / "dist"
    ours = [folder / "model.js", folder / "model-relaxed.wasm"]
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


def _page(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    here, onnx = Path(__file__).parent, Path(request["onnx"])
    there = Path(request["modules"], "onnxruntime-web", "dist")
    folders = {"": here, "model": Path(request["folder"]), "onnx": onnx.parent, "ort": there}
    script = b'<!doctype html><script type="module" src="/browsers.mjs"></script>'
    found = posted(script, folders, request)
    assert isinstance(found, list)
    return found


def _is_known(node: str) -> bool:
    return not subprocess.run(
        [node, RELAXED, "-e", "0"], capture_output=True, check=False
    ).returncode


if __name__ == "__main__":
    main()
