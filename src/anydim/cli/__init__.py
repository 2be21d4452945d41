"""The command line: run, plan, explain, show, check and bench a model."""

from anydim.cli.app import main

__all__ = ["main"]
