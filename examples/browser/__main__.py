"""Writes the folder of the page: the exported model, its vocabulary, and the files beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import anydim as ad
from examples.minilm.model import model_path, package_folder

FILES = ("index.html", "worker.js", "wordpiece.js")
DIMS = {"batch": (0, 64), "seq": (1, 512)}


def write(folder: Path) -> None:
    """Export the model for browsers, and add the page."""
    ad.compile(str(model_path()), dims=DIMS).export(folder, "MiniLM", target="wasm32")
    for name in FILES:
        (folder / name).write_bytes(Path(__file__).with_name(name).read_bytes())
    (folder / "vocab.txt").write_bytes((package_folder() / "vocab.txt").read_bytes())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m examples.browser FOLDER")
    write(Path(sys.argv[1]))
    print(f"wrote {sys.argv[1]}; `python -m http.server -d {sys.argv[1]}` serves the page")
