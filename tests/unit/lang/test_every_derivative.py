"""Promise: every definition of the repository has the derivative of its values, or is listed."""

import pytest

from tests.definition_texts import FOLDERS, definitions
from tests.gradient_sweep import LIST, ROUNDING, SIZES, is_named, listed, reason

TESTED = ("nextafter(...) has no derivative", "the last of several values",
          "'max=' at positions that data gives")  # fmt: skip


PAGES = FOLDERS[:2]


def reasons(folders, sizes=SIZES):
    """Why the definitions of folders have no derivative, '' for those that have one."""
    return {name: reason(name, made, sizes) for name, made in definitions(folders).items()}


def blocks(text):
    """The lines of a list, by reason and file."""
    return {
        (block.split("\n")[0], line.strip())
        for block in text.replace("\n    ", " ").split("\n\n") for line in block.split("\n")[1:]
        if line
    }  # fmt: skip


def test_definitions_of_pages():
    found = reasons(PAGES, (2,))
    assert sum(not why for why in found.values()) > 60
    assert blocks(listed(found)) == {
        (why, line) for why, line in blocks(LIST.read_text("utf-8")) if line.startswith("docs/")
    }


@pytest.mark.slow
def test_all_definitions():
    found = reasons(FOLDERS)
    assert sum(not why for why in found.values()) > 590
    assert ROUNDING.keys() <= found.keys()
    assert listed(found) == LIST.read_text("utf-8")
    known = {why for why, _ in blocks(LIST.read_text("utf-8"))}
    others = {why for name, why in found.items() if why and not is_named(name)} - known
    assert all(why.startswith((*TESTED, "differences of values are rounding")) for why in others)
