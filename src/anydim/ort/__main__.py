"""Run a program with anydim in place of onnxruntime.

python -m anydim.ort [--fallback onnxruntime] program.py [arguments] python -m anydim.ort
[--fallback onnxruntime] -m module [arguments]
"""

from __future__ import annotations

import os
import runpy
import sys
from importlib.util import find_spec

from anydim.base.errors import UserError
from anydim.ort.install import install


def main(words: list[str]) -> int:
    """Run a program; return its exit status, or 2 if the command line names none."""
    fallback = None
    if words and words[0].startswith("--fallback"):
        _, _, fallback = words[0].partition("=")
        words = words[1:]
        if not fallback and words:
            fallback, words = words[0], words[1:]
    if not words or words == ["-m"] or words[0] in ("-h", "--help"):
        print((__doc__ or "").strip(), file=sys.stderr)
        return 0 if words[:1] in (["-h"], ["--help"]) else 2
    try:
        install(fallback)
    except UserError as error:
        print(f"python -m anydim.ort: {error}", file=sys.stderr)
        return 2
    missing = _missing(words)
    if missing:
        print(f"python -m anydim.ort: {missing}", file=sys.stderr)
        return 2
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")
    return 0


def _missing(words: list[str]) -> str:
    """The message for a missing program; '' if it exists."""
    if words[0] != "-m":
        return "" if os.path.exists(words[0]) else f"{words[0]}: no such file"
    try:
        found = find_spec(words[1])
    except ImportError:
        found = None
    return "" if found is not None else f"no module named {words[1]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
