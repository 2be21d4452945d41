"""magika tells the types of files: its own, and some sources of numpy."""

from __future__ import annotations

from pathlib import Path

import magika
import numpy

from bench.packages.measured import measured


def named(engine: magika.Magika) -> list[object]:
    """(label, score) of each file."""
    own = sorted(Path(magika.__file__).parent.rglob("*"))
    sources = sorted(Path(numpy.__file__).parent.glob("*.py"))
    files = [path for path in (*own, *sources) if path.is_file() and path.suffix != ".pyc"][:60]
    found = engine.identify_paths(files)
    script = engine.identify_bytes(b"#!/bin/bash\nfor i in a b; do echo $i; done\n" * 20)
    return [(str(each.output.label), float(each.score)) for each in (*found, script)]


if __name__ == "__main__":
    measured(magika.Magika, named)
