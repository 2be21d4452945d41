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


def main(arguments: list[str]) -> int:
    """Run a program; return its exit status, or 2 if the command line names none."""
    fallback = None
    if arguments and arguments[0].startswith("--fallback"):
        _, _, fallback = arguments[0].partition("=")
        arguments = arguments[1:]
        if not fallback and arguments:
            fallback, arguments = arguments[0], arguments[1:]
    if not arguments or arguments == ["-m"] or arguments[0] in ("-h", "--help"):
        print((__doc__ or "").strip(), file=sys.stderr)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    try:
        install(fallback)
    except UserError as error:
        print(f"python -m anydim.ort: {error}", file=sys.stderr)
        return 2
    missing = _missing(arguments)
    if missing:
        print(f"python -m anydim.ort: {missing}", file=sys.stderr)
        return 2
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


def _missing(arguments: list[str]) -> str:
    """The message for a missing program; '' if it exists."""
    if arguments[0] != "-m":
        return "" if os.path.exists(arguments[0]) else f"{arguments[0]}: no such file"
    try:
        found = find_spec(arguments[1])
    except ImportError:
        found = None
    return "" if found is not None else f"no module named {arguments[1]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
