"""The command lines of benchmarks that take no more than names of cases and a file for results."""

from __future__ import annotations

import argparse


def parser(text: str | None) -> argparse.ArgumentParser:
    """One whose help is the module's own text."""
    return argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def no_words(text: str | None) -> None:
    """Nothing but --help is asked for."""
    parser(text).parse_args()


def cases_and_file(text: str | None) -> tuple[tuple[str, ...], str]:
    """The names of cases, none for all of them, and the file of --json, "" where there is none."""
    words = parser(text)
    words.add_argument("names", nargs="*", metavar="NAME", help="cases by how names begin")
    words.add_argument("--json", default="", metavar="FILE", help="results go there, too")
    given = words.parse_args()
    return tuple(given.names), given.json
