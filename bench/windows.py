"""Exported C of 12 models, built by MinGW and run under Wine: the bits of the Linux result?

    python -m bench.windows --wheels FOLDER [names]

FOLDER has unpacked wheels: rapidocr-onnxruntime, silero-vad, magika. Each model has two sizes, on
one thread and on three. Needs x86_64-w64-mingw32-gcc, wine and make.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np
import onnx

import anydim as ad
from bench.browser_models import NETWORKS, Network, drawn, in_wheels
from bench.light import light_model
from bench.networks.sequences import decoder
from tests.aarch64.models import images, recurrent
from tests.unit.deploy.test_export_windows import AVX2, WINE, done, outputs

_FLOAT = "float32"
_CACHES = [f"{kind}_{layer}" for layer in range(2) for kind in ("keys", "values")]


def _step(batch: int, length: int) -> dict[str, dict[str, object]]:
    caches = {name: {"dtype": _FLOAT, "shape": (batch, 2, length, 8)} for name in _CACHES}
    return {"ids": {"dtype": "int64", "shape": (batch, 1), "most": 60}, **caches}


def _named(name: str, *rest: int):  # type: ignore[no-untyped-def]
    return lambda *sizes: {name: {"dtype": _FLOAT, "shape": (*sizes, *rest)}}


MORE = {
    "direction": Network(
        in_wheels("ch_ppocr_mobile_v2.0_cls_infer.onnx"), _named("x", 3, 48, 192), ((1,), (3,)), ()
    ),
    "file types": Network(
        in_wheels("standard_v3_3/model.onnx"),
        lambda batch: {"bytes": {"dtype": "int32", "shape": (batch, 2048), "most": 256}},
        ((1,), (3,)), (),
    ),
    "squeezenet": Network(
        lambda _: light_model("squeezenet"), _named("data_0", 3, 224, 224), ((1,), (2,)), ()
    ),
    "lstm": Network(lambda _: recurrent()[0], _named("x", 12), ((5, 1), (17, 4)), ()),
    "images": Network(
        lambda _: images()[0], lambda n, side: _named("x", 3, side, side)(n), ((1, 17), (2, 32)), ()
    ),
    "decoder": Network(lambda _: decoder(2, 2, 8, 60, places=600), _step, ((1, 0), (3, 64)), ()),
}  # fmt: skip


@click.command(help=__doc__)
@click.option("--wheels", default=".", help="a folder of unpacked wheels")
@click.argument("names", nargs=-1)
def main(wheels: str, names: Sequence[str]) -> None:
    networks = {**NETWORKS, **MORE}
    for name in names or networks:
        source = networks[name].source(Path(wheels))
        begun, found = time.perf_counter(), list(_same(networks[name], source))
        took = time.perf_counter() - begun
        click.echo(f"{name}: the bits of Linux {sum(found)} of {len(found)} times, {took:.0f} s")


def _same(network: Network, source: Path | onnx.ModelProto) -> Iterator[bool]:
    """Whether results are those of Linux, on one and on three threads, for each size."""
    random, cases = np.random.default_rng(0), [network.case(*each) for each in network.timed[:2]]
    with tempfile.TemporaryDirectory() as folder:
        wanted = None
        for threads, system in ((1, "linux"), (1, "windows"), (3, "windows")):
            model = ad.compile(source, threads=threads)
            order = [spec.name for spec in model.program.signature.inputs]
            if wanted is None:
                feeds = [
                    {name: drawn(random, **case[name]) for name in order} for case in cases
                ]  # fmt: skip
            path = Path(folder, f"{system}{threads}")
            found = _results(model, path, feeds, system)
            if wanted is not None:
                yield from (came == right for came, right in zip(found, wanted, strict=True))
            wanted = found if wanted is None else wanted


def _results(
    model: ad.Model, path: Path, feeds: Sequence[dict[str, np.ndarray]], system: str
) -> list[bytes]:
    model.export(path, "program", target=AVX2)
    tools = ["CC=x86_64-w64-mingw32-gcc", "AR=x86_64-w64-mingw32-ar", "LDFLAGS=-static"]
    done(["make", "-s", "-C", path, *(tools if system == "windows" else ())])
    wine = {"WINEPREFIX": str(path.parent / "wine"), "WINEDEBUG": "-all"}
    if system == "windows":
        return [outputs([WINE, path / "example.exe"], path, each, wine) for each in feeds]
    return [outputs([path / "example"], path, each, {}) for each in feeds]


if __name__ == "__main__":
    main()
