"""What two threads do against one: python -m bench.threads

One operator each with free sizes, and whole models; one thread and two take turns in one process
on the same arrays, whole calls. The fastest of nine rounds counts, as whatever else runs disturbs
two threads more than one. `bits` says whether the results are alike bit for bit. Onnxruntime on
one and two threads stands beside whole models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy
from rich.console import Console
from rich.table import Table

import anydim as ad
from anydim.cli.report.measure import time_interleaved
from bench.cliffs.family import Family, at
from bench.cliffs.running import as_label
from bench.cliffs.threaded import fastest
from bench.engines import ENGINES
from bench.light import light_model
from bench.workloads import draw
from examples.minilm.model import model_path

SIZES = [(1, 22), (1, 128), (8, 22), (8, 128)]
ROWS = at("m", *((m,) for m in (1, 4, 8, 16, 33, 64, 128, 300, 1024)))
SQUARES = at("m k n", (1024, 64, 64), (100, 100, 100), (200, 400, 300), (512, 512, 512))
LENGTHS = at("n m", (1, 100), (1, 10_000), (1, 1_000_000), (1000, 100), (7, 30_000), (300, 1000))


def _dense(k: int, n: int) -> Family:
    return Family(
        f"dense {k}x{n}", "y0 = MatMul (x, w) y = Add (y0, b)", (f"float[m,{k}] x",), ROWS,
        "products", (f"float[{k},{n}] w", f"float[{n}] b"),
    )  # fmt: skip


def _image(name: str, c: int, m: int, taps: int, more: str, *sides: int) -> Family:
    return Family(
        f"conv {name}", f"y0 = Conv <{more}> (x, w, b) y = Relu (y0)", (f"float[n,{c},h,h] x",),
        at("n h", *((1, side) for side in sides), (2, sides[0])), "convolutions",
        (f"float[{m},{1 if 'group' in more else c},{taps},{taps}] w", f"float[{m}] b"),
    )  # fmt: skip


def families() -> Iterator[Family]:
    """Operators that threads share in unlike ways."""
    for k, n in ((384, 384), (384, 1536), (1536, 384), (64, 64), (300, 400), (768, 10)):
        yield _dense(k, n)
    two = ("float[m,k] a", "float[k,n] b")
    yield Family("MatMul of a call", "y = MatMul (a, b)", two, SQUARES, "products")
    yield Family(
        "MatMul of bytes", "y = MatMulInteger (a, w)", ("uint8[m,384] a",), ROWS, "products",
        ("int8[384,384] w",),
    )  # fmt: skip
    yield _image("1x1 64", 64, 64, 1, "pads=[0,0,0,0]", 7, 14, 28, 56)
    yield _image("1x1 128-512", 128, 512, 1, "pads=[0,0,0,0]", 7, 14, 28)
    yield _image("1x1 512-128", 512, 128, 1, "pads=[0,0,0,0]", 7, 14, 28)
    yield _image("3x3 64", 64, 64, 3, "pads=[1,1,1,1]", 7, 14, 28, 56, 111)
    yield _image("3x3 256", 256, 256, 3, "pads=[1,1,1,1]", 7, 14, 28)
    yield _image("3x3 s2 64-128", 64, 128, 3, "pads=[1,1,1,1], strides=[2,2]", 14, 28, 56)
    yield _image("7x7 s2 first", 3, 64, 7, "pads=[3,3,3,3], strides=[2,2]", 64, 130, 224)
    yield _image("depthwise 3x3", 96, 96, 3, "pads=[1,1,1,1], group=96", 14, 56)
    heads = "float[b,12,s,32]"
    yield Family(
        "attention",
        "t = Transpose <perm=[0,1,3,2]> (k) p = MatMul (q, t) r = Softmax (p) y = MatMul (r, v)",
        (f"{heads} q", f"{heads} k", f"{heads} v"),
        at("b s", (1, 22), (1, 128), (8, 128), (1, 512)), "attention",
    )  # fmt: skip
    one = ("float[n,m] x",)
    yield Family("Softmax", "y = Softmax (x)", one, LENGTHS, "rows")
    yield Family(
        "LayerNormalization", "y = LayerNormalization (x, s)", ("float[n,384] x",),
        at("n", (22,), (300,), (3000,)), "rows", ("float[384] s",),
    )  # fmt: skip
    yield Family("ReduceSum of all", "y = ReduceSum <keepdims=0> (x)", one, LENGTHS, "rows")
    yield Family("ReduceMax of rows", "y = ReduceMax <axes=[1]> (x)", one, LENGTHS, "rows",
                 opset=13)  # fmt: skip
    yield Family("Gelu", "y = Gelu (x)", one, LENGTHS, "elements")
    yield Family("Add", "y = Add (x, z)", (*one, "float[n,m] z"), LENGTHS, "elements")
    yield Family("Transpose", "y = Transpose (x)", one, LENGTHS, "elements")
    axis = "a := int64 {1}"
    yield Family("CumSum of rows", f"{axis} y = CumSum (x, a)", one, LENGTHS, "scans")


@click.command(help=__doc__)
@click.option("--area", "areas", multiple=True, help="products, rows, ..., models; again for more.")
@click.option("--only", default="", help="Families whose name has this.")
@click.option("--seconds", default=0.15, show_default=True, help="For a size.")
def main(areas: tuple[str, ...], only: str, seconds: float) -> None:
    console = Console(width=110)
    table = Table(title="microseconds on one and two threads, and times faster on two")
    for column in ("operator", "sizes", "one", "two", "faster", "bits"):
        table.add_column(column, justify="left" if column == "operator" else "right")
    for family in families():
        if only in family.name and (not areas or family.area in areas):
            source = family.model()
            one, two = (ad.compile(source, threads=n) for n in (1, 2))
            for sizes in family.sizes:
                feeds = family.feeds(sizes)
                cells = _cells(partial(one, **feeds), partial(two, **feeds), seconds)
                table.add_row(family.name, as_label(sizes), *cells)
    console.print(table)
    if not areas or "models" in areas:
        models(console)


def _cells(
    one: Callable[[], Mapping[str, Any]], two: Callable[[], Mapping[str, Any]], seconds: float
) -> list[str]:
    pairs = zip(one().values(), two().values())
    alike = all(numpy.asarray(a).tobytes() == numpy.asarray(b).tobytes() for a, b in pairs)
    best = fastest(one, two, seconds)
    times = [f"{each:.1f}" for each in best]
    return [*times, f"{best[0] / best[1]:.2f}", "alike" if alike else "UNLIKE"]


def models(console: Console) -> None:
    """MiniLM and two networks for images, beside onnxruntime."""
    table = Table(title="milliseconds on one and two threads, and times faster on two")
    for column in ("model", "one", "two", "faster", "onnxruntime", "two", "faster"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for label, calls, feeds in _models():
        bound = {key: partial(call, feeds) for key, call in calls.items()}
        rounds = time_interleaved(bound, rounds=9, seconds=6.0).rounds
        cells = []
        for name in ("anydim", "onnxruntime"):
            one, two = (1e3 * min(rounds[f"{name} {n}"]) for n in (1, 2))
            cells += [f"{one:.2f}", f"{two:.2f}", f"{one / two:.2f}"]
        table.add_row(label, *cells)
    console.print(table)


def _models() -> Iterator[tuple[str, dict[str, Callable[[Any], Any]], Any]]:
    names = ("anydim", "onnxruntime")
    path = Path(model_path())
    calls = {f"{name} {n}": ENGINES[name].load(path, n) for name in names for n in (1, 2)}
    for batch, seq in SIZES:
        yield f"MiniLM {batch} x {seq}", calls, draw(batch, seq)
    import onnxruntime

    for name in ("resnet50", "squeezenet"):
        source = light_model(name).SerializeToString()
        found: dict[str, Callable[[Any], Any]] = {}
        for n in (1, 2):
            model = ad.compile(source, dims={"batch": ad.Dim(1, 16)}, threads=n)
            found[f"anydim {n}"] = lambda feeds, model=model: model(*feeds)
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads, options.inter_op_num_threads = n, 1
            options.log_severity_level = 4
            session = onnxruntime.InferenceSession(source, options, ["CPUExecutionProvider"])
            key = session.get_inputs()[0].name
            found[f"onnxruntime {n}"] = lambda feeds, s=session, k=key: s.run(None, {k: feeds[0]})
        random = numpy.random.default_rng(0)
        for batch in (1, 2):
            feeds = (random.standard_normal((batch, 3, 224, 224), numpy.float32),)
            yield f"{name}, batch {batch}", found, feeds


if __name__ == "__main__":
    main()
