"""Random graphs against their meaning: `python -m tests.fuzz --count 500 --seed 0`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import click

from tests import guards
from tests.fuzz import (
    alternatives,
    attributes,
    cuts,
    damaged_files,
    deciding,
    decoders,
    derivatives,
    edges,
    exchanged_weights,
    factors,
    images_alone,
    independence,
    metamorphic,
    nested_calls,
    networks,
    nnsmith_graphs,
    onnx_peers,
    ragged,
    runner,
    sizes_as_data,
    structures,
    typed_texts,
)
from tests.fuzz.coverage import Coverage
from tests.fuzz.generate import random_case
from tests.fuzz.runner import Outcome

KINDS = {
    "graphs": runner.run, "onnx": onnx_peers.run, "laws": metamorphic.run, "cuts": cuts.run,
    "nnsmith": nnsmith_graphs.run, "networks": networks.run,
    "images": images_alone.run, "texts": typed_texts.run,
    "sizes": sizes_as_data.run, "edges": edges.run, "ragged": ragged.run,
    "decoders": decoders.run, "structures": structures.run,
    "deciding": deciding.run, "nested": nested_calls.run,
    "independence": independence.run, "mixers": independence.run_planted,
    "derivatives": derivatives.run, "factors": factors.run, "weights": exchanged_weights.run,
    "alternatives": alternatives.run, "damaged": damaged_files.run,
    "attributes": attributes.run,
}  # fmt: skip


@click.command()
@click.option("--count", default=500, show_default=True, help="How many graphs.")
@click.option("--seed", default=0, show_default=True, help="The seed of the first graph.")
@click.option("--shrink/--no-shrink", default=True, help="Make failing graphs small.")
@click.option("--onnx", "kind", flag_value="onnx", help="ONNX models, which other engines run too.")
@click.option(
    "--laws", "kind", flag_value="laws", help="Laws that need no oracle (metamorphic.py)."
)
@click.option("--cuts", "kind", flag_value="cuts", help="Parts of real models beside onnxruntime.")
@click.option("--nnsmith", "kind", flag_value="nnsmith", help="Graphs of that package, by torch.")
@click.option("--networks", "kind", flag_value="networks", help="Networks of images.")
@click.option("--images", "kind", flag_value="images", help="Networks, image by image.")
@click.option("--texts", "kind", flag_value="texts", help="Recurrences: declared types, inferred.")
@click.option("--sizes", "kind", flag_value="sizes", help="Sizes as data, in all integer types.")
@click.option("--edges", "kind", flag_value="edges", help="Operators at the edges of the allowed.")
@click.option("--ragged", "kind", flag_value="ragged", help="Rows of their own sizes, and alone.")
@click.option("--decoders", "kind", flag_value="decoders", help="Rows of caches, and alone.")
@click.option("--structures", "kind", flag_value="structures", help="Recursions, in Python too.")
@click.option("--deciding", "kind", flag_value="deciding", help="Rows that decide for themselves.")
@click.option("--nested-calls", "kind", flag_value="nested", help="Calls inside expressions.")
@click.option("--derivatives", "kind", flag_value="derivatives", help="Beside differences.")
@click.option("--factors", "kind", flag_value="factors", help="Windows with factors, in numpy.")
@click.option("--independence", "kind", flag_value="independence", help="Rows proven to be alone.")
@click.option("--mixers", "kind", flag_value="mixers", help="Rows that a planted operator mixes.")
@click.option("--weights", "kind", flag_value="weights", help="Models of one structure.")
@click.option("--alternatives", "kind", flag_value="alternatives", help="Strategies, rungs, files.")
@click.option("--damaged", "kind", flag_value="damaged", help="Files of exports, and saved ones.")
@click.option("--attributes", "kind", flag_value="attributes", help="Of operators, given wrongly.")
@click.option("--watched", is_flag=True, help="Watch what each launch writes (tests/guards.py).")
@click.option("--coverage", is_flag=True, help="Print what the graphs try; compile nothing.")
@click.option("--out", type=click.Path(path_type=Path), help="A file that failures go to as well.")
def main(
    count: int, seed: int, shrink: bool, kind: str | None, watched: bool, coverage: bool,
    out: Path | None,
) -> None:  # fmt: skip
    """Compile random graphs, call each at several sizes and compare with what they mean."""
    if coverage:
        make = metamorphic.row_case if kind == "laws" else random_case
        click.echo(Coverage.of(map(make, range(seed, seed + count))).table())
        return
    with guards.everywhere() if watched else nullcontext():
        outcomes = KINDS[kind or "graphs"](range(seed, seed + count), shrink)
        failures = _failures(outcomes, count, out)
    sys.exit(bool(failures))


def _failures(outcomes: Iterator[Outcome], count: int, out: Path | None) -> int:
    """Print the failures, and to a file; their number."""
    failures, start = 0, time.perf_counter()
    for number, outcome in enumerate(outcomes, start=1):
        if outcome.failure:
            failures += 1
            report = f"\n=== seed {outcome.seed}: {outcome.failure}\n{outcome.text}\n"
            click.echo(report)
            if out is not None:
                with out.open("a", encoding="utf-8") as file:
                    file.write(report)
        pace = number / (time.perf_counter() - start)
        line = f"\r{number} of {count} graphs, {failures} failed, {pace:.1f} a second"
        click.echo(line, nl=number == count, err=True)
    return failures


if __name__ == "__main__":
    main()
