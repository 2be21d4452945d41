"""The command line: compile, run, plan, explain, inspect, bench, check and show a model.

In come words of a shell and files; out go texts, tables, files of arrays and an exit status.
Input: words of a command line.

    report/    tables, figures, progress
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module


def main(words: Sequence[str] | None = None) -> None:
    """Run the words of a command line, those of the process where none are given, and exit."""
    try:
        import_module("anydim.cli.app").main(words)  # Ctrl-C may come while it is read
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        hint = "pip install 'anydim-runtime[cli]'"
        sys.stderr.write(f"error: the command line needs {error.name}; {hint}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.exit(130)


_PACKAGES = ("click", "rich")

__all__ = ["main"]
