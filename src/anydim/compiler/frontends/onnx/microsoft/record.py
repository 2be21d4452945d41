"""Declarations of operators that the onnx package has no schemas for.

    row(norms.skip_layer_norm, "input skip gamma beta? bias? -> output mean? inv? sum?",
        epsilon=1e-12)

A name with a question mark is optional. An attribute is declared by its default, or by its kind
without one: `int`, `float`, `str`, `(int,)`; `Required(int)` if it is mandatory. Names, orders and
defaults are those of onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.operators.table import Build

FLOATS = ("float16", "float", "double", "bfloat16")
INTEGERS = ("int8", "uint8")


@dataclass(frozen=True)
class Required:
    """Declares an attribute of this kind that every node has."""

    kind: Any


@dataclass(frozen=True)
class Row:
    """The builder of an operator, its inputs and results by name, and its attributes.

    `types` are the element types of its first input, `limits` its restrictions for the page.
    """

    build: Build
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    attributes: Mapping[str, Any]
    types: Sequence[str] = FLOATS
    limits: str = ""


def row(
    build: Build, signature: str, *, types: Sequence[str] = FLOATS, limits: str = "",
    **attributes: Any,
) -> Row:  # fmt: skip
    """A row from a signature, `A B C? -> Y`, and attributes."""
    inputs, results = (tuple(part.split()) for part in signature.split("->"))
    return Row(build, inputs, results, attributes, types, limits)


def schema_of(record: Row, domain: str, name: str) -> Any:
    """A row as an OpSchema of the onnx package."""
    import onnx

    kinds = [f"tensor({kind})" for kind in record.types]
    return onnx.defs.OpSchema(
        name, domain, 1,
        inputs=[_formal(text) for text in record.inputs],
        outputs=[_formal(text) for text in record.results],
        type_constraints=[("T", kinds, "")],
        attributes=[_attribute(own, given) for own, given in record.attributes.items()],
    )  # fmt: skip


def _formal(text: str) -> Any:
    """An input or result; all have type variable `T`, though their types may differ."""
    import onnx

    schema: Any = onnx.defs.OpSchema
    options = schema.FormalParameterOption
    optional = text.endswith("?")
    option = options.Optional if optional else options.Single
    variadic = text.endswith("*")
    option = options.Variadic if variadic else option
    return schema.FormalParameter(
        text.rstrip("?*"), "T", param_option=option, is_homogeneous=not variadic
    )


def _attribute(name: str, given: Any) -> Any:
    import onnx

    schema: Any = onnx.defs.OpSchema
    kind = given.kind if isinstance(given, Required) else given
    if kind in _KINDS:
        declared = getattr(schema.AttrType, _KINDS[kind])
        return schema.Attribute(name, declared, required=isinstance(given, Required))
    return schema.Attribute(name, onnx.helper.make_attribute(name, given))


_KINDS = {
    int: "INT", float: "FLOAT", str: "STRING", (int,): "INTS", (float,): "FLOATS",
    (str,): "STRINGS",
}  # fmt: skip
