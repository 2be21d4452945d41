"""The texts of an exported program: templates filled from the records of a program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files

from anydim.compiler.native.blocks import ALLOCATE, ARENA
from anydim.compiler.native.emit import BIND
from anydim.compiler.targets.c.compilers import MEANING, machine_flags
from anydim.deploy.export.exported import Exported
from anydim.deploy.export.language import Language
from anydim.deploy.export.language_texts import language_values
from anydim.deploy.export.literals import comment, string
from anydim.deploy.export.naming import constants, symbol
from anydim.deploy.export.tables import tables
from anydim.runtime.signature import TensorSpec

_SLOT = re.compile(r"@(\w+)@")


def texts(program: Exported, language: Language | None = None) -> dict[str, str]:
    """Every text of the folder except generated code, by file name."""
    values = {**_names(program), **_header(program), **tables(program), **_making(program)}
    names = dict(_FILES)
    if language is not None:
        names |= _OF_LANGUAGE
        values |= {**language_values(program, language), "sources": f"{program.name}_sequence.c"}
    kind = "straight" if program.straight else "regions"
    for slot, template in _OF_A_KIND.items():
        values[slot] = _fill_template(f"{kind}/{template}", values)
    return {
        name.format(program.name): _fill_template(template, values)
        for name, template in names.items()
    }


_FILES = {
    "{}.h": "program.h.in", "{}.c": "program.c.in", "example.c": "example.c.in",
    "Makefile": "Makefile.in", "CMakeLists.txt": "CMakeLists.txt.in",
}  # fmt: skip
_OF_LANGUAGE = {
    "{}_sequence.h": "language/sequence.h.in", "{}_sequence.c": "language/sequence.c.in",
    "example.c": "language/example.c.in",
}  # fmt: skip
_OF_A_KIND = {
    "more": "header.h.in", "memory": "memory.c.in", "runs": "runs.c.in",
    "run_example": "example.c.in",
}  # fmt: skip


def _fill_template(template: str, values: Mapping[str, str]) -> str:
    text = files("anydim.deploy.export").joinpath("templates", template).read_text("utf-8")
    return _SLOT.sub(lambda found: values[found[1]], text)


def _names(program: Exported) -> dict[str, str]:
    signature, functions = program.signature, program.interface.functions
    return {
        "name": program.name,
        "NAME": program.name.upper(),
        "model": comment(signature.name),
        "processor": program.processor.name,
        "input_count": str(len(signature.inputs)),
        "output_count": str(len(signature.outputs)),
        "size_count": str(sum(spec.rank for spec in signature.inputs)),
        "bind": symbol(program.name, BIND),
        "allocate": symbol(program.name, ALLOCATE),
        "scratch": symbol(program.name, ARENA),
        **{role: symbol(program.name, name) for role, name in functions.items()},
        "threads": str(program.threads),
    }


# ---- the header --------------------------------------------------------------------------------


def _header(program: Exported) -> dict[str, str]:
    signature = program.signature
    sizes = [f"{spec.key}[{axis}]" for spec in signature.inputs for axis in range(spec.rank)]
    usage = [f"{spec.key}.{axis}" for spec in signature.inputs for axis in range(spec.rank)]
    rows = (("INPUT", signature.inputs), ("OUTPUT", signature.outputs))
    enums = [_enum(f"{program.name.upper()}_{kind}", specs) for kind, specs in rows]
    return {
        "inputs": _list_tensors(signature.inputs),
        "outputs": _list_tensors(signature.outputs),
        "dims": comment(", ".join(map(str, signature.box.dims)) or "none"),
        "enums": "".join(enums).rstrip("\n"),
        "unless": "" if program.straight else ", unless data\n * decides them",
        "sizes": comment(", ".join(sizes) or "there are none"),
        "sizes_usage": comment(" ".join(usage)),
        "usage": string(" ".join([f"{program.name}.weights", *usage])),
    }


def _list_tensors(specs: Sequence[TensorSpec]) -> str:
    lines = [f" *   {spec.key}: {spec.dtype}[{', '.join(map(str, spec.shape))}]" for spec in specs]
    return "\n".join(map(comment, lines)) or " *   none"


def _enum(prefix: str, specs: Sequence[TensorSpec]) -> str:
    if not specs:
        return ""
    names = constants([spec.key for spec in specs])
    rows = ",\n".join(f"  {prefix}_{name} = {n}" for n, name in enumerate(names))
    return f"\nenum {{\n{rows}\n}};\n"


def _making(program: Exported) -> dict[str, str]:
    return {
        "meaning": " ".join(MEANING),
        "machine": " ".join(machine_flags(program.processor)),
        "objects": " ".join(program.objects),
        "sources": "",
        "tiles": str(int("amx-tile" in program.processor.has)),
        "thread_library": " -pthread" if program.threads > 1 else "",
    }
