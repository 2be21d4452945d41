"""Code of target `c` beside LLVM's, for single kernels and for MiniLM, on one thread.

    python -m bench.kernels.c [--zig] [NAME ...]

Both run whole programs on the same arrays, called in turns; a figure is the best of the rounds, in
microseconds. The compiler is the one that `settings.c_compiler` names; with --zig a column for
`zig cc` stands beside it. Whether results are the same bits is said in the last column.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy

import anydim as ad
from anydim.base import settings
from bench.arguments import parser
from examples.minilm.model import model_path

ROUNDS, CHUNK_SECONDS = 25, 0.003
CHANCE = numpy.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """A program and the sizes it is called at."""

    name: str
    source: Callable[[], Any]
    sizes: tuple[Mapping[str, int], ...]


def _built(write: Callable[[ad.Builder, Any, Any], Any], *shape: int) -> Callable[[], ad.Builder]:
    """A graph of one input x[n, *shape]."""

    def make() -> ad.Builder:
        g = ad.Builder("bench")
        n = g.dim("n", 0, 4096)
        x = g.input("x", ad.float32, (n, *shape))
        g.output("y", write(g, x, n))
        return g

    return make


def _weights(g: ad.Builder, *shape: int) -> Any:
    return g.constant(CHANCE.uniform(-0.1, 0.1, shape).astype(numpy.float32))


def _norm(g: ad.Builder, x: Any, n: Any) -> Any:
    return g.layer_norm(x, _weights(g, 384), _weights(g, 384))


def _conv(g: ad.Builder, x: Any, n: Any) -> Any:
    return g.relu(g.conv(x, _weights(g, 64, 64, 3, 3), _weights(g, 64), pads=(1, 1, 1, 1)))


SMALL = ({"n": 7}, {"n": 1024})
CASES = (
    Case("gelu, 384 columns", _built(lambda g, x, n: g.gelu(x), 384), SMALL),
    Case("softmax, 384 columns", _built(lambda g, x, n: g.softmax(x, axis=1), 384), SMALL),
    Case("layer norm, 384 columns", _built(_norm, 384), SMALL),
    Case(
        "matmul, 384 x 384", _built(lambda g, x, n: g.matmul(x, _weights(g, 384, 384)), 384),
        ({"n": 1}, {"n": 7}, {"n": 1024}),
    ),
    Case("conv 3 x 3, 64 channels, 28 x 28", _built(_conv, 64, 28, 28), ({"n": 1},)),
    Case("sort, rows of 1000", _built(lambda g, x, n: g.sort(x, axis=1)[0], 1000), SMALL[:1]),
    Case(
        "MiniLM", lambda: str(model_path()),
        tuple({"batch": b, "seq": s} for b, s in ((1, 1), (1, 16), (1, 128), (8, 64))),
    ),
)  # fmt: skip


def feeds(model: ad.Model, sizes: Mapping[str, int]) -> dict[str, numpy.ndarray]:
    """Random floats, tokens that there are, and a mask of ones."""
    made = {}
    for spec in model.inputs:
        shape = [size.evaluate(sizes) for size in spec.shape]
        whole = numpy.ones(shape) if "mask" in spec.name else CHANCE.integers(0, 1000, shape)
        data = CHANCE.uniform(-2, 2, shape) if spec.dtype.is_float else whole
        made[spec.name] = data.astype(spec.dtype.numpy)
    return made


def compare(case: Case, compilers: tuple[str, ...]) -> None:
    """Compile a case by LLVM and by each C compiler, and print a line for each of its sizes."""
    source = case.source()  # once: weights are drawn
    models = [ad.compile(source, threads=1)]
    for name in compilers:
        with settings.override(c_compiler=name):
            models.append(ad.compile(source, target="c", threads=1))
    for sizes in case.sizes:
        given = feeds(models[0], sizes)
        results = [_arrays(model(**given)) for model in models]
        best = [float("inf")] * len(models)
        for _ in range(ROUNDS):
            for place, model in enumerate(models):
                best[place] = min(best[place], _timed(model, given))
        same = all(_same(results[0], other) for other in results[1:])
        told = ", ".join(f"{name} {size}" for name, size in sizes.items())
        ratios = " | ".join(f"{t * 1e6:.1f} | {t / best[0]:.2f}" for t in best[1:])
        first, bits = best[0] * 1e6, "yes" if same else "NO"
        print(f"| {case.name} | {told} | {first:.1f} | {ratios} | {bits} |")


def _timed(model: ad.Model, given: Mapping[str, numpy.ndarray]) -> float:
    """Seconds of a call, the mean over a few milliseconds."""
    start, calls = time.perf_counter(), 0
    while (now := time.perf_counter()) - start < CHUNK_SECONDS:
        model(**given)
        calls += 1
    return (now - start) / max(calls, 1) if calls else now - start


def _arrays(results: Any) -> list[numpy.ndarray]:
    return list(results.values()) if isinstance(results, dict) else [results]


def _same(left: list[numpy.ndarray], right: list[numpy.ndarray]) -> bool:
    return all(numpy.array_equal(a, b, equal_nan=True) for a, b in zip(left, right))


def main() -> None:
    """Print the table."""
    words = parser(__doc__)
    words.add_argument("names", nargs="*", metavar="NAME", help="cases by parts of their names")
    words.add_argument("--zig", action="store_true", help="`zig cc`, too")
    given = words.parse_args()
    compilers, names = ("", "zig") if given.zig else ("",), given.names
    heads = "".join(f" {name or 'C'} | / LLVM |" for name in compilers)
    print(f"| program | sizes | LLVM, us |{heads} same bits |")
    print("|---|---|---|" + "---|---|" * len(compilers) + "---|")
    for case in CASES:
        if not names or any(name in case.name for name in names):
            compare(case, compilers)


if __name__ == "__main__":
    main()
