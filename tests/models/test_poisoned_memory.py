"""Promise: nothing is read from memory whose value has died, whatever the graph and its sizes."""

from __future__ import annotations

import ctypes
from random import Random

import numpy as np
import pytest

import anydim as ad
from anydim.compiler.passes.options import given_options
from anydim.compiler.targets.run import ENTRY

WIDTH = 24
POISON = 0xFF  # bytes of a NaN
SIZES = ({"n": 1, "m": 1}, {"n": 13, "m": 2}, {"n": 3, "m": 40})


def random_net(seed: int) -> ad.Builder:
    """Values [n, 24], [m, 24] and [n, m], each made from any that came before."""
    random, g = Random(seed), ad.Builder(f"net{seed}")
    dims = {name: g.dim(name, 0, 64) for name in "nm"}
    tall = [g.input(name, ad.float32, (size, WIDTH)) for name, size in dims.items()]
    kinds = {"n": [tall[0]], "m": [tall[1]]}
    joined = []
    weight = g.constant(np.random.default_rng(seed).standard_normal((WIDTH, WIDTH)) / 5, "w")
    weight = g.cast(weight, to=ad.float32)
    for _ in range(14):
        name = random.choice("nm")
        x, other = (random.choice(kinds[name]) for _ in range(2))
        rows = random.choice([
            lambda x=x: g.softmax(x, axis=1), lambda x=x: g.matmul(x, weight),
            lambda x=x, y=other: g.add(g.exp(g.softmax(y, axis=0)), x),
        ])  # fmt: skip
        kinds[name].append(rows())
        if random.random() < 0.3:
            left, right = (random.choice(kinds[each]) for each in "nm")
            joined.append(g.matmul(left, g.transpose(right, perm=(1, 0))))
            kinds["n"].append(g.matmul(g.softmax(joined[-1], axis=1), right))
    for number, value in enumerate((kinds["n"][-1], kinds["m"][-1], *joined[-1:])):
        g.output(f"y{number}", value)
    return g


def poisoned(
    model: ad.Model, feeds: dict[str, np.ndarray], sizes: dict[str, int]
) -> dict[str, np.ndarray]:
    """The results of launches one by one.

    Before each, all memory is poisoned that no living value has.
    """
    segment = model.program.straight
    assert segment is not None
    arrays = dict(feeds)
    for spec in segment.signature.outputs:
        shape = [size.evaluate(sizes) for size in spec.shape]
        arrays[spec.name] = np.zeros(shape, np.float32)
    arrays |= model.executable.held.arrays
    (entries,) = model.executable.entries.values()
    room = np.full(segment.total_bytes.evaluate(sizes) + 64, POISON, np.uint8)
    arena = room[-room.ctypes.data % 64 :]
    spans = {
        b.name: slice(b.offset.evaluate(sizes), (b.offset + b.bytes).evaluate(sizes))
        for b in segment.buffers
        if b.kind == "arena" and b.offset is not None
    }
    arrays |= {name: arena[span] for name, span in spans.items()}
    for number, site in enumerate(segment.sites):
        dead = np.ones(len(arena), bool)
        for name, (first, last) in segment.lives.items():
            if name in spans and first < number <= last:
                dead[spans[name]] = False
        arena[dead] = POISON
        words = [arrays[name].ctypes.data for name in site.operands]
        words += [size.evaluate(sizes) for size in site.sizes]
        scratch = arrays[site.workspace].ctypes.data if site.workspace else 0
        block = (ctypes.c_int64 * max(1, len(words)))(*words)
        parallel = site.parallel.evaluate(sizes)
        ENTRY(int(entries[number]))(ctypes.addressof(block), 0, parallel, scratch)
    return {spec.name: arrays[spec.name] for spec in segment.signature.outputs}


@pytest.mark.parametrize("seed", range(3))
def test_results_are_those_of_values_apart(seed: int) -> None:
    shared = ad.compile(random_net(seed))
    options = given_options({f"net{seed}": {"memory": "apart"}}, [f"net{seed}"])
    apart = ad.compile(random_net(seed), options=options[f"net{seed}"])
    for sizes in SIZES:
        rng = np.random.default_rng(seed)
        feeds = {
            name: rng.standard_normal((size, WIDTH)).astype(np.float32)
            for name, size in sizes.items()
        }
        expected, found = apart(**feeds), poisoned(shared, feeds, sizes)
        assert all(np.isfinite(array).all() for array in expected.values())
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)
    assert shared.memory.at(**sizes) < apart.memory.at(**sizes)
