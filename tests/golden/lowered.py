"""Hashes of the kernels and libraries that many programs lower to, to compare two trees.

python -m tests.golden.lowered [--names REGEX] [--vector-bytes 64] > FILE    in each tree, then diff

The programs are the corpus, those of `make bench-cliffs`, and those of the tests of operators. They
are lowered for a machine with 16 registers of 32 bytes, or with 32 of 64, and not compiled.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from anydim.compiler import pipeline as compiler
from anydim.compiler.frontends.table import read
from anydim.compiler.graph.verify import verify
from anydim.compiler.kernels.ir import Kernel
from anydim.compiler.kernels.ir_text import print_function, print_kernel
from anydim.compiler.passes.assemble import Store
from anydim.compiler.passes.options import PLAIN
from anydim.compiler.passes.results import Results
from anydim.compiler.targets.targets import target
from bench.cliffs.families import families
from tests.golden import record
from tests.golden.files import CASES
from tests.ops.cases import CASES as OPERATORS
from tests.ops.test_operators import build

REGISTERS = {32: 16, 64: 32}  # by bytes of a vector


def programs() -> Iterator[tuple[str, Callable[[], Any], Any]]:
    """(name, source, dims) of all programs."""
    for name, case in CASES.items():
        yield f"golden {name}", case.source, case.dims
    for family in families():
        yield f"cliff {family.name}", family.model, None
    for name, cases in OPERATORS.items():
        for number, case in enumerate(cases):
            yield f"operator {name} {number}", partial(build, name, case), None


def lowered(source: Any, dims: Any) -> list[Kernel]:
    """The kernels of a program, by the target of `settings`."""
    graph = verify(Results().run(read(source, dims, None, False)))
    on = compiler._On(target("llvm"), {})
    work = compiler.Work(lambda *_: None, compiler._STAGES)
    made = compiler._lowered(graph, on, PLAIN, 1, work, lambda _: None, Store()).made
    return list(made.kernels.values())


def lines(kernels: list[Kernel]) -> Iterator[str]:
    """A line for each kernel, and for each library that it calls."""
    for kernel in kernels:
        yield f"  {record.short(print_kernel(kernel).replace(kernel.name, 'kernel', 1))}"
        for library in kernel.libraries:
            text = "\n".join(map(print_function, library.functions))
            yield f"  {library.name} {record.short(text)}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.golden.lowered", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--names", default="", help="programs with a match in their names")
    parser.add_argument("--vector-bytes", type=int, choices=REGISTERS, default=32)
    given = parser.parse_args()
    size = given.vector_bytes
    machine = replace(record.MACHINE, vector_bytes=size, registers=REGISTERS[size])
    with patch.object(record, "MACHINE", machine), record.fixed_machine():
        for name, source, dims in programs():
            if re.search(given.names, name):
                print(name, *lines(lowered(source(), dims)), sep="\n")


if __name__ == "__main__":
    main()
