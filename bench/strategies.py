"""Every strategy on work where fitted code may pay, beside the generic code, in one run.

    python -m bench.strategies [--only WORD] [--rounds 15]

Each row is a model at a set of sizes that come again and again. A figure is the time of a pass over
all of them once bodies are made, divided by that of generic code: the median of passes in turns.
`made` is the number of bodies, `generic` the microseconds of a pass. `library` and `pad` are other
programs for the same work, in memory of their own; what is padded are the dims that change.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy
from onnx import TensorProto, helper, numpy_helper

import anydim as ad
from anydim.base.records import dataclass
from anydim.runtime.executable import NEVER
from examples.minilm.model import model_path

BUCKETS = "buckets(profile={}, count=8)"  # for the sizes of a pass
STRATEGIES = ("exact(limit=128)", "adaptive(limit=32, after=4)", BUCKETS)
FORMED = ("library", "pad 16", "pad pow2")  # how a program is compiled, not bodies beside it
LAYERS = 12
SETTLE = 60.0  # seconds at most until nothing is made any more
Inputs = list[dict[str, numpy.ndarray]]


@dataclass(frozen=True)
class Work:
    """A model, as bytes or a path, and the inputs of a pass."""

    name: str
    model: Callable[[], bytes | str]
    inputs: Callable[[], Inputs]
    changing: tuple[str, ...]  # dims


def chain(
    op: str, shapes: Sequence[Sequence[str | int]], weights: Sequence[tuple[int, ...]] = (),
    **attributes: object,
) -> Callable[[], bytes]:  # fmt: skip
    """A model of `LAYERS` equal operators, each on what the one before it gives.

    `shapes` are those of x0, x1, ..., of which layers share all but the first; layers take their
    own of `weights` in turns.
    """

    def made() -> bytes:
        random = numpy.random.default_rng(0)
        names, nodes, held = [f"x{n}" for n in range(len(shapes))], [], []
        for layer in range(LAYERS):
            own = [f"w{layer}"] if weights else []
            last, result = f"y{layer - 1}" if layer else "x0", f"y{layer}"
            nodes.append(helper.make_node(op, [last, *names[1:], *own], [result], **attributes))
            if weights:
                shape = weights[layer % len(weights)]
                values = 0.1 * random.standard_normal(shape).astype(numpy.float32)
                held.append(numpy_helper.from_array(values, f"w{layer}"))
        given = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))
            for name, shape in zip(names, shapes)
        ]
        wanted = [helper.make_tensor_value_info(f"y{LAYERS - 1}", TensorProto.FLOAT, None)]
        graph = helper.make_graph(nodes, "g", given, wanted, held)
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()

    return made


def arrays(*shapes: Sequence[tuple[int, ...]]) -> Callable[[], Inputs]:
    """Inputs x0, x1, ... of each call."""

    def made() -> Inputs:
        random = numpy.random.default_rng(1)
        return [
            {f"x{n}": random.standard_normal(s, numpy.float32) for n, s in enumerate(call)}
            for call in shapes
        ]  # fmt: skip

    return made


def images(channels: int, sizes: Sequence[int]) -> Callable[[], Inputs]:
    """Square images, and nearly square ones."""
    shapes = [[(1, channels, size, size + turn)] for size in sizes for turn in (0, 1)]
    return arrays(*shapes)


def minilm() -> str:
    """Its file."""
    return str(model_path())


def sentences(*lengths: int) -> Inputs:
    """One of each length."""
    random = numpy.random.default_rng(1)
    return [
        {"input_ids": random.integers(1000, 30000, (1, length)),
         "attention_mask": numpy.ones((1, length), numpy.int64)}
        for length in lengths
    ]  # fmt: skip


SMALL = (5, 7, 10, 14, 20, 28)
EVEN = {"pads": [1] * 4}
WORKS = (
    Work("products 33 x 77 and 77 x 33, M 1..100",
         chain("MatMul", [["m", 33]], [(33, 77), (77, 33)]),
         arrays(*([(m, 33)] for m in (1, 2, 3, 5, 8, 13, 21, 34, 55, 100))), ("m",)),
    Work("dense 512 x 512, batch 1", chain("MatMul", [["m", 512]], [(512, 512)]),
         arrays([(1, 512)]), ("m",)),
    Work("dense 512 x 512, batches 32 and 16", chain("MatMul", [["m", 512]], [(512, 512)]),
         arrays([(32, 512)], [(16, 512)]), ("m",)),
    Work("dense 512 x 512, batches of 200 to 500", chain("MatMul", [["m", 512]], [(512, 512)]),
         arrays([(200, 512)], [(333, 512)], [(500, 512)]), ("m",)),
    Work("products of 3..17 in batches", chain("MatMul", [["b", "m", "m"], ["b", "m", "m"]]),
         arrays(*([(8, m, m), (8, m, m)] for m in (3, 5, 8, 11, 17))), ("m",)),
    Work("MiniLM, 1 x 8 to 1 x 128", minilm, lambda: sentences(8, 17, 64, 128), ("seq",)),
    Work("softmax of short rows", chain("Softmax", [["m", "n"]]),
         arrays(*([(32, n)] for n in (3, 5, 7, 10, 17, 33))), ("m", "n")),
    Work("layer normalisation of short rows", chain("LayerNormalization", [["m", "n"], ["n"]]),
         arrays(*([(32, n), (n,)] for n in (3, 5, 7, 10, 17, 33))), ("m", "n")),
    Work("convolution 3 x 3, small images",
         chain("Conv", [["b", 16, "h", "q"]], [(16, 16, 3, 3)], **EVEN), images(16, SMALL),
         ("h", "q")),
    Work("depthwise 3 x 3, small images",
         chain("Conv", [["b", 32, "h", "q"]], [(32, 1, 3, 3)], group=32, **EVEN),
         images(32, SMALL), ("h", "q")),
    Work("depthwise 5 x 5, small images",
         chain("Conv", [["b", 32, "h", "q"]], [(32, 1, 5, 5)], group=32, pads=[2] * 4),
         images(32, SMALL), ("h", "q")),
    Work("pool 3 x 3, small images",
         chain("MaxPool", [["b", 32, "h", "q"]], kernel_shape=[3, 3], **EVEN), images(32, SMALL),
         ("h", "q")),
    Work("transposes of small matrices", chain("Transpose", [["b", "m", "n"]], perm=[2, 0, 1]),
         arrays(*([(8, m, m + 2)] for m in (3, 7, 15, 31))), ("m", "n")),
)  # fmt: skip


def tables(model: ad.Model) -> dict[int, numpy.ndarray]:
    """Which bodies the model has now: the same memory is measured with both kinds."""
    return {word: table.copy() for word, table in model.executable.entries.items()}


def show(model: ad.Model, bodies: dict[int, numpy.ndarray]) -> None:
    """Have a model use these bodies."""
    for word, table in model.executable.entries.items():
        table[:] = bodies[word]


def settled(model: ad.Model, inputs: Inputs, times: int = 64) -> None:
    """Call until nothing is made any more, so many times between two looks; nor later."""
    end, before, quiet = time.monotonic() + SETTLE, -1, 0
    while quiet < 3 and time.monotonic() < end:
        for _ in range(times):
            for given in inputs:
                model(**given)
        for thread in threading.enumerate():
            if thread.name == "anydim-adaptive":
                thread.join(end - time.monotonic())
        now = len(model.variants())
        quiet = quiet + 1 if now == before else 0
        before = now
    model.executable.until_served = NEVER
    for thread in threading.enumerate():
        if thread.name == "anydim-adaptive":
            thread.join()


def seconds(model: ad.Model, inputs: Inputs, times: int) -> float:
    """The time of passes over all inputs."""
    start = time.perf_counter()
    for _ in range(times):
        for given in inputs:
            model(**given)
    return time.perf_counter() - start


def in_turns(run: Callable[[int], float], rounds: int) -> float:
    """The median of what `run(1)` takes, divided by what `run(0)` takes beside it."""
    ratios = []
    for turn in range(rounds):
        taken = [run(turn % 2), run(1 - turn % 2)]
        ratios.append(taken[0] / taken[1] if turn % 2 else taken[1] / taken[0])
    return median(ratios)


def with_bodies(
    source: bytes | str, strategy: str, inputs: Inputs, times: int, rounds: int
) -> tuple[float, int]:
    """The share of generic code's time that a model takes with its bodies, and how many."""
    model = ad.compile(source)
    plain = tables(model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sizes.jsonl")
        with model.record(path):
            seconds(model, inputs, 1)
        model.serve_by(strategy.format(json.dumps(str(path))))
    settled(model, inputs)
    fitted = tables(model)

    def run(made: int) -> float:
        show(model, fitted if made else plain)
        return seconds(model, inputs, times)

    return in_turns(run, rounds), len(model.variants())


def forms(work: Work) -> list[str]:
    """The strategies of `FORMED` for a model."""
    pads = ("16", '"pow2"')
    dims = (", ".join(f"{name}={pad}" for name in work.changing) for pad in pads)
    return ['library("openblas")', *(f"pad({each})" for each in dims)]


def formed(
    generic: ad.Model, source: bytes | str, strategy: str, inputs: Inputs, times: int, rounds: int
) -> float:
    """The share of the generic model's time that one takes that is compiled as a strategy says."""
    models = (generic, ad.compile(source, strategy=strategy))
    seconds(models[1], inputs, times)
    return in_turns(lambda made: seconds(models[made], inputs, times), rounds)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="rows whose name has this word")
    parser.add_argument("--strategies", default="", help="those whose text has this word")
    parser.add_argument("--rounds", type=int, default=15, help="passes in turns")
    given = parser.parse_args()
    warnings.simplefilter("error")
    strategies = [each for each in STRATEGIES if given.strategies in each]
    places = [n for n, each in enumerate(FORMED) if given.strategies in each]
    head = "".join(f"{s.partition('(')[0]:>12}{'made':>6}" for s in strategies)
    head += "".join(f"{FORMED[n]:>12}" for n in places)
    print(f"{'':40}{'generic':>8}{head}")
    for work in WORKS:
        if given.only not in work.name:
            continue
        inputs, source = work.inputs(), work.model()
        generic = ad.compile(source)
        base = min(seconds(generic, inputs, 1) for _ in range(20))
        how = (inputs, max(1, int(0.002 / seconds(generic, inputs, 3) * 3)), given.rounds)
        made = [with_bodies(source, strategy, *how) for strategy in strategies]
        cells = [f"{ratio:12.3f}{count:6}" for ratio, count in made]
        some = [forms(work)[n] for n in places]
        cells += [f"{formed(generic, source, s, *how):12.3f}" for s in some]
        print(f"{work.name:40}{1e6 * base:8.0f}{''.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
