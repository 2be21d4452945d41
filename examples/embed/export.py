"""MiniLM as a folder of C: `python -m examples.embed.export FOLDER [PROCESSOR]`."""

from __future__ import annotations

import argparse

import anydim as ad
from examples.minilm.model import model_path

DIMS = {"batch": ad.Dim(0, 64), "seq": ad.Dim(1, 512)}


def main(folder: str, processor: str = "native") -> None:
    """Write it for sentences of up to 512 tokens."""
    ad.compile(model_path(), DIMS).export(folder, "minilm", processor)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("processor", nargs="?", default="native")
    asked = parser.parse_args()
    main(asked.folder, asked.processor)
