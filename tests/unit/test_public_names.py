"""Promise: `dir`, `help` and tools that read the source show all public names and signatures."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import anydim as ad

OWN_NAMES = {"sizes", "attributes", "fields", "values"}  # keywords whose names are the user's
OF_SIZES = {"strategies.buckets", "strategies.pad"}  # sizes by the names of dims
PASSED_ON = {"cached"}  # the source has `**options`, `help` the arguments of `compile`


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in ad.__all__:
        value = getattr(ad, name)
        if inspect.isclass(value):
            for part, method in inspect.getmembers(value, inspect.isroutine):
                method = getattr(method, "__func__", method)
                own = inspect.isfunction(method) and (method.__module__ or "anydim").startswith(
                    "anydim"
                )
                if own and not part.startswith("_"):
                    yield f"{name}.{part}", method
        elif inspect.ismodule(value):
            public = getattr(value, "__all__", [each for each in vars(value) if each[0] != "_"])
            for part in public:
                found = getattr(value, part)
                if inspect.isfunction(found) and found.__module__.startswith("anydim"):
                    yield f"{name}.{part}", found
        elif inspect.isfunction(value):
            yield name, value


FUNCTIONS = dict(functions())


def test_dir_shows_public_names_only() -> None:
    assert dir(ad) == sorted(ad.__all__)
    assert {"compile", "define", "load", "Builder.input", "Model.save"} <= FUNCTIONS.keys()
    assert len(FUNCTIONS) > 80


def written(function: Callable[..., Any]) -> list[str]:
    """The parameters in the source of a function."""
    code = inspect.unwrap(function).__code__
    tree = ast.parse(Path(code.co_filename).read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if first == code.co_firstlineno:
                given = node.args
                every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
                every += [each for each in (given.vararg, given.kwarg) if each is not None]
                return [each.arg for each in every]
    return []  # made by a table


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures(name: str) -> None:
    function = FUNCTIONS[name]
    shown = inspect.signature(function).parameters
    free = {each.name for each in shown.values() if each.kind is inspect.Parameter.VAR_KEYWORD}
    assert free <= OWN_NAMES or name in OF_SIZES
    source = written(function)
    if source and name not in PASSED_ON:
        assert sorted(source) == sorted(shown)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_are_documented(name: str) -> None:
    function = FUNCTIONS[name]
    text = inspect.getdoc(function) or ""
    assert text, "no docstring"
    if "\nArgs:\n" not in text:
        return
    section = re.split(r"\n(?=\w)", text.partition("\nArgs:\n")[2])[0]
    documented = set(re.findall(r"^ +\**(\w+): ", section, re.MULTILINE))
    shown = {*inspect.signature(function).parameters} - {"self"}
    shown = {*written(function)} if name in PASSED_ON else shown
    assert shown <= documented
