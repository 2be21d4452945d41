"""The command line: compile, run, plan, explain, inspect, bench, check and show a model.

In come words of a shell and files; out go texts, tables, files of arrays and an exit status.
"""

from anydim.cli.app import main

__all__ = ["main"]
