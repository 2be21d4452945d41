"""Calls of a model, and runs of its exported C, alternately in one process on one thread.

    python -m bench.exported silero_vad.onnx input=1x576 state=2x1x128 sr=:16000

An input is its shape, with values that are not random, or `:` and an integer. Runs are calls by
ctypes, in memory of the program and in an arena, and include what ctypes takes.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click
import numpy

import anydim as ad

ROUNDS, CALLS, SECONDS = 15, 400, 0.2  # of a way in a round: the most


@click.command(help=__doc__)
@click.argument("model")
@click.argument("inputs", nargs=-1)
def main(model: str, inputs: Sequence[str]) -> None:
    made = ad.compile(model, threads=1)
    types = {spec.name: spec.dtype.numpy for spec in made.inputs}
    named = dict(text.split("=", 1) for text in inputs)
    given = {name: _array(named[name], dtype) for name, dtype in types.items()}
    with tempfile.TemporaryDirectory() as folder:
        run = Exported(made, Path(folder), list(given.values()))
        ways = {"call": lambda: made(**given), "own memory": run.own, "arena": run.in_arena}
        for way, (took, share) in alternated(ways).items():
            click.echo(f"{way}: {took * 1e6:.1f} us, {share:.3f}")
        click.echo(f"arena: {run.bytes} bytes, used {run.library.made_peak_bytes(run.model)}")


def _array(text: str, dtype: numpy.dtype) -> numpy.ndarray:
    if text.startswith(":"):
        return numpy.array(int(text[1:]), dtype)
    shape = tuple(map(int, text.split("x")))
    return (numpy.arange(numpy.prod(shape)) % 17 / 100).astype(dtype).reshape(shape)


def alternated(ways: Mapping[str, Callable[[], object]]) -> dict[str, tuple[float, float]]:
    """Medians of seconds a call, and of their ratio to the first way."""
    rounds = []
    for _ in range(ROUNDS):
        rounds.append({name: _median(way) for name, way in ways.items()})
    first = next(iter(ways))
    return {
        name: (
            float(numpy.median([each[name] for each in rounds])),
            float(numpy.median([each[name] / each[first] for each in rounds])),
        )
        for name in ways
    }


def _median(way: Callable[[], object]) -> float:
    times: list[float] = []
    while len(times) < CALLS and sum(times) < SECONDS:
        start = time.perf_counter()
        way()
        times.append(time.perf_counter() - start)
    return float(numpy.median(times))


class Exported:
    """The exported program of a model with regions, bound to the sizes of some inputs."""

    def __init__(self, model: ad.Model, folder: Path, inputs: Sequence[numpy.ndarray]) -> None:
        model.export(folder, "made")
        make = ["make", "-s", "-C", str(folder), "CFLAGS=-O2 -fPIC", "libmade.a"]
        subprocess.run(make, check=True)
        archive = ["-Wl,--whole-archive", "libmade.a", "-Wl,--no-whole-archive", "-lm"]
        subprocess.run(["cc", "-shared", "-o", "made.so", *archive], cwd=folder, check=True)
        self.library = ctypes.CDLL(str(folder / "made.so"))
        self.library.made_arena_bytes.restype = ctypes.c_size_t
        self.library.made_peak_bytes.restype = ctypes.c_size_t
        self.model = ctypes.c_void_p()
        self._check(
            self.library.made_open(bytes(folder / "made.weights"), ctypes.byref(self.model))
        )
        sizes = [size for array in inputs for size in array.shape]
        self._check(self.library.made_bind(self.model, (ctypes.c_int64 * len(sizes))(*sizes)))
        self.bytes = self.library.made_arena_bytes(self.model)
        self._kept = [*inputs, numpy.zeros(self.bytes + 64, numpy.uint8)]
        self._inputs = (ctypes.c_void_p * len(inputs))(*[each.ctypes.data for each in inputs])
        self._outputs = (ctypes.c_void_p * len(model.outputs))()
        self._arena = ctypes.c_void_p((self._kept[-1].ctypes.data + 63) // 64 * 64)

    def own(self) -> None:
        self._check(self.library.made_run(self.model, self._inputs, self._outputs, None))

    def in_arena(self) -> None:
        self._check(self.library.made_run(self.model, self._inputs, self._outputs, self._arena))

    def _check(self, error: int) -> None:
        if error:
            raise RuntimeError(f"error {error}")


if __name__ == "__main__":
    main()
