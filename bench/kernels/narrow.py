"""Products with weights of 4 and 8 bits beside float32 ones: python -m bench.kernels.narrow

    python -m bench.kernels.narrow [--depth 768] [--columns 1536] [--rows 1 16 128]

The same weights as MatMulNBits in blocks of 32 and as floats, and of 8 bits with values of 8 bits
(precision "int8"); one thread, called in turns; the least times in microseconds, and those of few
bits over those of floats.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
import onnx

import anydim as ad
from bench.decoding import in_turns
from bench.networks.narrow import narrowed
from bench.networks.writer import FLOAT, Network

BITS = (32, 8, 4)
ROWS = (1, 2, 4, 8, 12, 13, 16, 24, 32, 64, 128, 256)


def product(depth: int, columns: int) -> onnx.ModelProto:
    """x [m, depth] times constant weights."""
    net = Network()
    net("MatMul", "x", net.drawn(depth, columns), output="y")
    ends = {name: (FLOAT, ["m", size]) for name, size in (("x", depth), ("y", columns))}
    return net.model("product", {"x": ends["x"]}, {"y": ends["y"]})


def main() -> None:
    """Print a line for each number of rows."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--depth", type=int, default=768)
    parser.add_argument("--columns", type=int, default=1536)
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    given = parser.parse_args()
    models = []
    for bits in BITS:
        network = product(given.depth, given.columns)
        made = network if bits == 32 else narrowed(network, bits)
        models.append(ad.compile(made.SerializeToString(), threads=1))
    whole = product(given.depth, given.columns).SerializeToString()
    models.append(ad.compile(whole, threads=1, precision="int8"))
    print("rows   float32    8 bits    4 bits      int8   ratios")
    for rows in given.rows:
        x = np.random.default_rng(0).standard_normal((rows, given.depth), np.float32)
        wide, *few = in_turns([partial(model, x) for model in models], 0.5)
        times = " ".join(f"{each * 1e6:9.0f}" for each in (wide, *few))
        print(f"{rows:4} {times}   {' '.join(f'{each / wide:.2f}' for each in few)}", flush=True)


if __name__ == "__main__":
    main()
