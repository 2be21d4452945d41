"""Every version is forced at sizes next to its limits, and has the bits of the others there.

The names come from the golden corpus and from the code of the templates, so a new version without
a case in `version_cases.py` fails here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest

import anydim
from anydim.base import settings
from anydim.compiler.kernels.templates import TEMPLATES
from tests.golden.files import read_corpus
from tests.golden.record import why_not
from tests.unit.compiler.kernels.version_cases import CASES, OTHER_ORDER, VersionCase

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
KERNELS = Path(anydim.__file__).parent / "compiler/kernels"
_NAMED = {
    "Version": 0,
    "Way": 0,
    "_version": 0,
    "_variant": 0,
    "taken": 1,
}  # call -> argument that is a name


@pytest.fixture(autouse=True)
def _llvm() -> None:
    if settings.target != "llvm":
        pytest.skip("for the machine of the golden corpus")


@pytest.mark.parametrize("each", CASES, ids=lambda each: each.name)
def test_versions_have_the_same_bits_at_their_edges(each: VersionCase) -> None:
    """Versions with other bits are near, within the rounding of sums of hundreds of numbers, or of
    factors."""
    limit = 1e-2 if "bfloat16" in each.kind else 1e-3
    plain, forced = each.plain, {name: each.model(name) for name in each.versions}
    assert forced, f"{each.kind} has no versions here"
    edges, taken = each.edges(plain, *forced.values()), set()
    for sizes in edges:
        expected, usual = each.outputs(plain, sizes), each.taken(plain, sizes)
        for version, model in forced.items():
            found, used = each.outputs(model, sizes), each.taken(model, sizes)
            taken.add(used)
            other = {(each.kind, usual), (each.kind, used)} & OTHER_ORDER.keys()
            for one, two in zip(found, expected, strict=True):
                if usual != used and other:
                    numpy.testing.assert_allclose(one, two, rtol=limit, atol=limit)
                else:
                    assert one.tobytes() == two.tobytes(), (version, used, usual, sizes)
    assert taken >= set(each.versions)


def covered() -> set[tuple[str, str]]:
    """The versions that the cases force, by kind."""
    return {(each.kind, plain_name(name)) for each in CASES for name in each.versions}


def plain_name(name: str) -> str:
    """The name without the lanes of a machine."""
    return re.sub(r"\d+$", "*", name)


def test_every_version_of_the_corpus_is_forced() -> None:
    corpus = read_corpus().values()
    listed = {
        (kind, plain_name(name))
        for program in corpus
        for kind, names in program["versions"].items()
        for name in names.split(", ")
    }
    assert len(listed) > 25
    assert listed - covered() == set()


def _written(tree: ast.Module) -> Iterator[str]:
    """The names of versions in a module: constants, and text with the lanes of a machine."""
    known = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = getattr(node.func, "id", getattr(node.func, "attr", ""))
        at = _NAMED.get(called)
        name = None if at is None or len(node.args) <= at else node.args[at]
        if isinstance(name, ast.Constant):
            yield str(name.value)
        elif isinstance(name, ast.Name) and isinstance(known.get(name.id), str):
            yield known[name.id]
        elif isinstance(name, ast.JoinedStr) and isinstance(name.values[0], ast.Constant):
            yield f"{name.values[0].value}*"


def test_every_version_of_the_code_is_forced() -> None:
    written = {
        name
        for file in KERNELS.rglob("*.py")
        for name in _written(ast.parse(file.read_text(encoding="utf-8")))
    }
    assert len(written) > 15
    assert written - {name for _, name in covered()} == set()


def test_a_search_for_all_sizes_forces_no_version_with_other_bits() -> None:
    same_bits = {template.name for template in TEMPLATES if template.same_bits}
    assert {kind for kind, _ in covered()} >= same_bits
    assert not same_bits & {kind for kind, _ in OTHER_ORDER}


def test_reasons_are_of_versions() -> None:
    assert OTHER_ORDER.keys() <= covered()
