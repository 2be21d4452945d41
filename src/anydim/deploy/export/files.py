"""The texts of an exported program: templates filled from the records of a program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files

from anydim.base.records import dataclass
from anydim.deploy.export.naming import constants, symbol
from anydim.deploy.export.texts import text_of
from anydim.deploy.export.weights import Weights
from anydim.native.threads import POOL_WORDS
from anydim.runtime.interface import Interface
from anydim.runtime.layout import (
    ARENA,
    ARENA_BYTES,
    CODE,
    CONSTANTS,
    EMPTY,
    PARALLEL,
    POINTERS,
    POOL,
)
from anydim.runtime.signature import Signature, TensorSpec
from anydim.targets.c.compilers import MEANING, machine_flags
from anydim.targets.processor import Processor

_SLOT = re.compile(r"@(\w+)@")
_CONTROL = re.compile(r"[^ -~]")


@dataclass(frozen=True)
class Exported:
    """The data for the templates. `threads` are the most of a call, `objects` existing files."""

    name: str
    signature: Signature
    interface: Interface
    weights: Weights
    processor: Processor
    threads: int
    objects: Sequence[str] = ()


def texts(program: Exported) -> dict[str, str]:
    """Every text of the folder except generated code, by file name."""
    values = {**_names(program), **_header(program), **_tables(program), **_making(program)}
    names = {
        f"{program.name}.h": "program.h.in",
        f"{program.name}.c": "program.c.in",
        "example.c": "example.c.in",
        "Makefile": "Makefile.in",
    }
    return {name: _filled(template, values) for name, template in names.items()}


def _filled(template: str, values: Mapping[str, str]) -> str:
    text = files("anydim.deploy.export").joinpath("templates", template).read_text("utf-8")
    return _SLOT.sub(lambda found: values[found[1]], text)


def _names(program: Exported) -> dict[str, str]:
    signature, functions = program.signature, program.interface.functions
    return {
        "name": program.name,
        "NAME": program.name.upper(),
        "model": _comment(signature.name),
        "processor": program.processor.name,
        "input_count": str(len(signature.inputs)),
        "output_count": str(len(signature.outputs)),
        "size_count": str(sum(spec.rank for spec in signature.inputs)),
        "bind": symbol(program.name, functions["bind"]),
        "run": symbol(program.name, functions["run"]),
        "worker": symbol(program.name, functions["worker"]),
        "stop": symbol(program.name, functions["stop"]),
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
        "inputs": _listed(signature.inputs),
        "outputs": _listed(signature.outputs),
        "dims": _comment(", ".join(map(str, signature.box.dims)) or "none"),
        "enums": "".join(enums).rstrip("\n"),
        "sizes": _comment(", ".join(sizes) or "there are none"),
        "sizes_usage": _comment(" ".join(usage)).replace('"', "'").replace("\\", "/"),
    }


def _listed(specs: Sequence[TensorSpec]) -> str:
    lines = [f" *   {spec.key}: {spec.dtype}[{', '.join(map(str, spec.shape))}]" for spec in specs]
    return "\n".join(map(_comment, lines)) or " *   none"


def _enum(prefix: str, specs: Sequence[TensorSpec]) -> str:
    if not specs:
        return ""
    names = constants([spec.key for spec in specs])
    rows = ",\n".join(f"  {prefix}_{name} = {n}" for n, name in enumerate(names))
    return f"\nenum {{\n{rows}\n}};\n"


def _comment(text: str) -> str:
    """Text that is safe inside a C comment: no comment delimiters, no control characters."""
    return _CONTROL.sub("?", text).replace("*/", "* /").replace("/*", "/ *")


# ---- the source --------------------------------------------------------------------------------


def _tables(program: Exported) -> dict[str, str]:
    interface, signature = program.interface, program.signature
    (_, kernels), = interface.entries  # fmt: skip
    failures = interface.failures[:-1]  # the last one is a lack of memory
    named = [symbol(program.name, kernel) for kernel in kernels]
    numbers = {
        "words": interface.words, "word_arena_bytes": ARENA_BYTES, "word_arena": ARENA,
        "word_parallel": PARALLEL, "word_pool": POOL,
        "word_constants": CONSTANTS, "word_code": CODE, "word_pointers": POINTERS,
        "word_shapes": interface.shapes, "constant_count": len(program.weights.offsets),
        "check_count": interface.bound, "text_count": len(failures),
        "weights_bytes": program.weights.bytes, "setup_count": len(interface.setups),
        **{f"pool_{name}": word for name, word in POOL_WORDS.items()},
    }  # fmt: skip
    return {
        **{name: str(number) for name, number in numbers.items()},
        "weights_head": ", ".join(map(str, program.weights.head)),
        "offsets": _rows(program.weights.offsets, str, "0"),
        "tensors": _tensors(interface, signature),
        "texts": _rows([text_of(each, signature.name) for each in failures], _string, '""'),
        "kernels": "".join(f"kernel {name};\n" for name in dict.fromkeys(named)).rstrip("\n"),
        "entries": _rows(named, str, "NULL"),
        "empties": _rows((each.block + EMPTY for each in interface.setups), str, "0"),
    }


def _rows(values: Iterable[object], text: Callable[[str], str], empty: str) -> str:
    """Rows of an array initializer, with at least one element."""
    return ",\n".join(f"    {text(str(value))}" for value in values) or f"    {empty}"


def _tensors(interface: Interface, signature: Signature) -> str:
    firsts, slot = [], interface.shapes
    for spec in signature.inputs:
        firsts.append(slot)
        slot += spec.rank
    firsts += [first for _, _, first in interface.results]
    specs = (*signature.inputs, *signature.outputs)
    rows = [f"{{{spec.rank}, {spec.dtype.bytes}, {n}}}" for spec, n in zip(specs, firsts)]
    return _rows(rows, str, "{0, 1, 0}")


def _string(text: str) -> str:
    """A C string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("?", "\\?")
    return '"' + _CONTROL.sub("\\?", escaped) + '"'


def _making(program: Exported) -> dict[str, str]:
    return {
        "meaning": " ".join(MEANING),
        "machine": " ".join(machine_flags(program.processor)),
        "objects": " ".join(program.objects),
        "thread_library": " -pthread" if program.threads > 1 else "",
    }
