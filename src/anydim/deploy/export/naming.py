"""Names of an exported program: C identifiers, and code with prefixed symbols."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from anydim.base.errors import OptionError
from anydim.compiler.kernels import ir
from anydim.compiler.targets.c.names import is_identifier
from anydim.deploy.export.taken import is_taken

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_OTHER = re.compile(r"[^A-Za-z0-9]+")
_Module: TypeAlias = "ir.Kernel | ir.Library"


def program_name(requested: str, model: str) -> str:
    """The requested name, or one derived from the model's; OptionError if C cannot have it."""
    name = requested or _OTHER.sub("_", model).strip("_").lower() or "model"
    if not requested and not (name[0].isalpha() and _is_free(name)):
        name = f"model_{name}"
    if _NAME.fullmatch(name) and _is_free(name):
        return name
    raise OptionError(
        f"'{name}' cannot begin the names of a C program",
        "give a name of letters, digits and '_' that begins with a letter; keywords, names of the "
        "C library and names in the program's own source are taken",
    )


def _is_free(name: str) -> bool:
    return is_identifier(name) and not is_taken(name)


def constants(names: Sequence[str]) -> list[str]:
    """Unique names in the style of C constants."""
    found: list[str] = []
    for name in names:
        base = text = _OTHER.sub("_", name).strip("_").upper() or "TENSOR"
        number = 1
        while text in found:
            number += 1
            text = f"{base}_{number}"
        found.append(text)
    return found


# ---- symbols -----------------------------------------------------------------------------------


def symbol(prefix: str, name: str) -> str:
    """The name of a generated function in an exported program."""
    return f"{prefix}_{_OTHER.sub('_', name)}"


def prefix_functions(code: Sequence[_Module], prefix: str) -> list[_Module]:
    """Modules whose public functions begin with `prefix`, at definitions and calls."""
    libraries = {library for part in code for library in _libraries(part)}
    public = [f.name for library in libraries for f in library.functions if f.public]
    return _Renaming(prefix, {name: symbol(prefix, name) for name in public}).modules(code)


def _libraries(code: _Module) -> tuple[ir.Library, ...]:
    return code.libraries if isinstance(code, ir.Kernel) else (code,)


class _Renaming:
    """Renames public functions; each library is renamed once."""

    def __init__(self, prefix: str, names: Mapping[str, str]) -> None:
        self.prefix, self.names = prefix, names
        self.done: dict[ir.Library, ir.Library] = {}

    def modules(self, code: Iterable[_Module]) -> list[_Module]:
        return [
            self.library(part) if isinstance(part, ir.Library) else self.kernel(part)
            for part in code
        ]

    def kernel(self, kernel: ir.Kernel) -> ir.Kernel:
        return replace(
            kernel,
            name=symbol(self.prefix, kernel.name),
            functions=tuple(map(self.function, kernel.functions)),
            libraries=tuple(map(self.library, kernel.libraries)),
            identity=self.identity(kernel.identity),
        )

    def library(self, library: ir.Library) -> ir.Library:
        if library not in self.done:
            functions = tuple(map(self.function, library.functions))
            name, identity = symbol(self.prefix, library.name), self.identity(library.identity)
            self.done[library] = ir.Library(name, functions, identity)
        return self.done[library]

    def identity(self, identity: str) -> str:
        return identity and f"{self.prefix} {identity}"

    def function(self, function: ir.Function) -> ir.Function:
        name = self.names.get(function.name, function.name) if function.public else function.name
        return replace(function, name=name, body=self.steps(function.body))

    def steps(self, steps: Iterable[ir.Step]) -> tuple[ir.Step, ...]:
        return tuple(map(self.step, steps))

    def step(self, step: ir.Step) -> ir.Step:
        if isinstance(step, ir.Call) and isinstance(step.function, str):
            return replace(step, function=self.names.get(step.function, step.function))
        if isinstance(step, (ir.For, ir.While)):
            return replace(step, body=self.steps(step.body))
        if isinstance(step, ir.If):
            then, otherwise = self.steps(step.then), self.steps(step.otherwise)
            return replace(step, then=then, otherwise=otherwise)
        if isinstance(step, ir.Switch):
            return replace(step, cases=tuple((n, self.steps(body)) for n, body in step.cases))
        return step
