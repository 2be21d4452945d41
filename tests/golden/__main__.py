"""Compare the corpus with what the compiler makes now, or write it anew.

python -m tests.golden [NAME ...]            says in words what changed; 1 if anything did
python -m tests.golden --write [NAME ...]    the same, and keeps what came
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterator

from tests.golden.files import (
    CASES,
    IN_C,
    SHOWN,
    c_text,
    read_corpus,
    read_text,
    stages_text,
    write_corpus,
    write_text,
)
from tests.golden.record import differences, kept, why_not

NOTHING: dict[str, dict[str, str]] = {"kernels": {}, "outputs": {}}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.golden", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", help="programs; all without any")
    parser.add_argument("--write", action="store_true", help="keep what came")
    given = parser.parse_args()
    if why_not():
        print(why_not())
        return 2
    unknown = set(given.names) - set(CASES)
    if unknown:
        parser.error(f"the corpus has no {sorted(unknown)}; it has {', '.join(CASES)}")
    names = [name for name in CASES if not given.names or name in given.names]
    lines = [*_programs(names, given.write, not given.names), *_texts(names, given.write)]
    print("\n".join(lines) or f"nothing changed in {len(names)} programs")
    return int(bool(lines) and not given.write)


def _programs(names: list[str], write: bool, whole: bool) -> Iterator[str]:
    corpus = read_corpus()
    found = {name: kept(CASES[name]) for name in names}
    for name, now in found.items():
        yield from differences(name, corpus.get(name, NOTHING), now)
    if write:
        write_corpus(found if whole else {**corpus, **found})


def _texts(names: list[str], write: bool) -> Iterator[str]:
    kept_texts = [(name, "txt", stages_text) for name in SHOWN if name in names]
    kept_texts += [(name, "c", c_text) for name in IN_C if name in names]
    for name, ending, text_of in kept_texts:
        before, now = read_text(name, ending), text_of(name)
        if before != now:
            yield f"{name}: the text of a stage changed"
            both = before.splitlines(), now.splitlines()
            yield from difflib.unified_diff(*both, "kept", "now", n=1, lineterm="")
        if write:
            write_text(name, now, ending)


if __name__ == "__main__":
    sys.exit(main())
