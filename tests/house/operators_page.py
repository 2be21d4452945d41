"""Generates the page docs/operators.md from the tables of operators.

python -m tests.house.operators_page docs/operators.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import anydim.compiler.ops  # noqa: F401  fills the registry of operators
from anydim.base.dtypes import DTYPES
from anydim.base.onnx_notation import ELEMENT_TYPES
from anydim.compiler.frontends.onnx.file.reading import OLDEST_OPSET
from anydim.compiler.frontends.onnx.file.strings import ON_HOST
from anydim.compiler.frontends.onnx.microsoft.table import ROWS as MICROSOFT
from anydim.compiler.frontends.onnx.microsoft.table import find
from anydim.compiler.frontends.onnx.operators.table import OPERATORS as ROWS
from anydim.compiler.graph.operator import OPERATORS
from anydim.compiler.targets.targets import TARGETS

_TYPE = re.compile(r"tensor\((\w+)\)")
_NAMES = {"float": "float32", "double": "float64"}

_FAMILIES = {
    "floats": ("float64", "float32", "float16", "bfloat16"),
    "integers": ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"),
    "narrow integers": ("int4", "uint4", "int2", "uint2"),
}

# Restrictions of an operator. Rows without an entry are dynamic in every dim of every input.
LIMITS: dict[str, str] = {
    "AffineGrid": "the number of axes is constant",
    "Attention": "the number of heads of 3-d inputs is an attribute; a head's depth may be a dim",
    "Conv": "in groups the number of output channels is constant",
    "DFT": "the axis is constant",
    "DeformConv": "two axes; the kernel is of constant size",
    "Dropout": "in training the numbers are the same in every call; another seed gives others",
    "GatherND": "the last axis of the indices is of constant size",
    "GridSample": "the number of coordinates is constant",
    "ImageDecoder": "not supported: image files are no tensors",
    "MaxUnpool": "with output_shape, indices refer to the shape that the attributes give",
    "OneHot": "the values are a vector of two",
    "Resize": "antialias: the filter width depends on the scale, all taps are visited",
    "RoiAlign": "sampling_ratio 0 (a data-dependent sample count) is not supported",
    "Squeeze": "without axes, later nodes are compiled for both ranks of up to four open sizes",
}


def page() -> str:
    """The text of the page."""
    hosts = [name for name, kind in TARGETS.items() if kind.is_host]
    devices = [name for name in TARGETS if name not in hosts]
    lines = [
        "# Operators",
        "",
        "Made by `python -m tests.house.operators_page docs/operators.md` from the",
        "tables that the importer uses; a test compares.",
        "",
        f"Opsets {OLDEST_OPSET} to the newest that the installed onnx knows are read. Every dim of",
        "every input may be dynamic, 0 and 1 included, where the last column says nothing else;",
        "sizes that must agree are checked before a call runs. Targets: "
        f"{_names(hosts)}, all operators on each. What a device ({_names(devices)}) does not run"
        " falls to the host ([operators on devices](operators-on-devices.md)).",
        "",
    ]
    schemas = list(_schemas())
    for domain in sorted({schema.domain for schema in schemas}):
        rows = [schema for schema in schemas if schema.domain == domain]
        lines += [f"## {domain or 'ai.onnx'}", "", *_table(rows), ""]
    lines += [
        "## What onnxruntime's tools write", "",
        "Operators of onnxruntime that are not of the standard; its optimiser, quantiser and",
        "transformer tools write them into files.", "",
        *_microsoft_table(), "",
    ]  # fmt: skip
    lines += [
        "## The library", "",
        "Operators that ONNX's are made of; a builder has each as a method.", "",
        "| operator | family | meaning |", "|---|---|---|",
    ]  # fmt: skip
    for name in sorted(OPERATORS):
        record = OPERATORS[name]
        lines.append(f"| `{name}` | {record.kind} | {_cell(record.doc)} |")
    return "\n".join(lines) + "\n"


def _names(targets: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(targets))


def _schemas() -> Iterator[Any]:
    """The newest version of each operator of the standard, by domain and name."""
    import onnx

    schemas = [schema for schema in onnx.defs.get_all_schemas() if not schema.deprecated]
    return iter(sorted(schemas, key=lambda schema: (schema.domain, schema.name)))


def _table(schemas: Iterable[Any]) -> Iterator[str]:
    yield "| operator | since opset | types | limits |"
    yield "|---|---|---|---|"
    for schema in schemas:
        how = _how(schema)
        types = "" if how == "not supported" else _types(schema)
        limit = LIMITS.get(schema.name, "")
        notes = limit if how in limit else "; ".join(filter(None, (how, limit)))
        yield f"| {schema.name} | {_first(schema)} | {types} | {notes} |"


def _microsoft_table() -> Iterator[str]:
    yield "| operator | domain | types | limits |"
    yield "|---|---|---|---|"
    for domain, name in sorted(MICROSOFT):
        found = find(domain, name)
        types = _types(found[1]) if found else ""
        limits = MICROSOFT[domain, name].limits
        yield f"| {name} | {domain or 'ai.onnx'} | {types} | {limits} |"


def _how(schema: Any) -> str:
    """How it is computed, if not by a row of its own."""
    name = f"{schema.domain}.{schema.name}" if schema.domain else schema.name
    if name in ROWS:
        return ""
    if schema.has_function or schema.has_context_dependent_function:
        return "computed by the standard's function"
    return "on the host" if schema.name in ON_HOST else "not supported"


def _first(schema: Any) -> int:
    """The opset that introduced the operator."""
    import onnx

    versions = [
        other.since_version
        for other in onnx.defs.get_all_schemas_with_history()
        if other.name == schema.name and other.domain == schema.domain
    ]
    return min(versions)


def _types(schema: Any) -> str:
    """The supported element types of its first input (or result); families are abbreviated."""
    formal = (*schema.inputs, *schema.outputs)
    texts = formal[0].types if formal else ()
    named = {_NAMES.get(name, name) for text in texts for name in _TYPE.findall(text)}
    found = [name for name in DTYPES if name in named & {d.name for d in ELEMENT_TYPES.values()}]
    for family, members in _FAMILIES.items():
        if set(members) <= set(found):
            at = found.index(members[0])
            found = [name for name in found if name not in members]
            found.insert(min(at, len(found)), family)
    return ", ".join(found)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), "utf-8")
