"""Promise: the C text of an export compiles without warnings, whatever the graph and its names."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import anydim as ad
from tests.fuzz.generate import random_case
from tests.unit.deploy.test_export import CC

pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler")


def assert_compiles(folder: Path) -> None:
    files = [path.relative_to(folder) for path in folder.rglob("*.c")]
    command = [str(CC), "-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-psabi"]
    done = subprocess.run(
        [*command, "-I.", *files], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("seed", (1, 2, 3, 5))
def test_random_graphs(seed: int, tmp_path: Path) -> None:
    """Among them kernels that call one another with and without results, in several files."""
    case = random_case(seed)
    ad.compile(case.graph).export(tmp_path, "random")
    assert_compiles(tmp_path)


def test_functions_of_fixed_and_of_free_sizes(tmp_path: Path) -> None:
    g = ad.Builder("both")
    x, c = g.input("x", ad.float32, (g.dim("n"), 8)), g.input("c", ad.float32, (8,))
    g.output("rows", g.softmax(x))
    g.output("fixed", g.softmax(c))
    ad.compile(g).export(tmp_path)
    assert_compiles(tmp_path)


ODD = '%s%n "quoted" \\ ??/ */ /* ???= \n é'


def branching(name: str, input: str = "x", output: str = "y") -> ad.Builder:
    g = ad.Builder(name)
    x, flag = g.input(input, ad.float32, (g.dim("n", 0, 60),)), g.input("flag", ad.boolean, ())
    g.output(output, g.branch(flag, lambda b: b.neg(x), lambda b: b.exp(x)))
    return g


def straight(name: str, input: str = "x", output: str = "y") -> ad.Builder:
    g = ad.Builder(name)
    g.output(output, g.neg(g.input(input, ad.float32, (g.dim("n", 0, 60),))))
    return g


@pytest.mark.parametrize("make", [branching, straight])
def test_names_are_text(make: Callable[..., ad.Builder], tmp_path: Path) -> None:
    ad.compile(make(ODD, ODD, f"{ODD}2")).export(tmp_path, "odd")
    assert_compiles(tmp_path)
    command = [
        str(CC),
        "-std=c11",
        "-I.",
        "example.c",
        "odd.c",
        *map(str, tmp_path.glob("code/*.c")),
    ]
    subprocess.run([*command, "-lm", "-pthread", "-o", "example"], cwd=tmp_path, check=True)
    done = subprocess.run(["./example"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 2
    key = ODD.replace("\n", "?").replace("é", "?")
    assert done.stderr.decode().startswith(f"usage: ./example odd.weights {key}.0 ")
