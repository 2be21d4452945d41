"""Writes the parts of a model on strings. Needs the compiler's reader of ONNX files."""

from __future__ import annotations

from typing import Any

from anydim.base.onnx_notation import type_text
from anydim.compiler.frontends.onnx.file.strings import HostPart, StringParts, reader_of
from anydim.deploy.archive import Member
from anydim.deploy.records import print_record
from anydim.deploy.string_records import STRINGS, SavedPort, SavedStrings, onnx_member, saved_steps


def string_members(parts: StringParts) -> list[Member]:
    """The members of a file that hold the inputs, outputs and steps on strings."""
    pieces = {"early": parts.early, "late": parts.late}
    steps = {name: _steps(part) for name, part in pieces.items()}
    record = SavedStrings(
        parts.name, *ports_of(parts), steps["early"], steps["late"],
    )  # fmt: skip
    members = [Member(STRINGS, print_record(record))]
    for name, part in pieces.items():
        if steps[name] is None:
            data = part.proto.SerializeToString(deterministic=True)
            members.append(Member(onnx_member(name), data))
    return members


def ports_of(parts: StringParts) -> tuple[tuple[SavedPort, ...], tuple[SavedPort, ...]]:
    """The inputs and outputs of a model with strings."""
    return tuple(map(_port, parts.inputs)), tuple(map(_port, parts.outputs))


def _steps(part: HostPart) -> Any:
    return None if part.steps is None else saved_steps(part.steps)


def _port(value: Any) -> SavedPort:
    tensor = value.type.tensor_type
    is_tensor = value.type.HasField("tensor_type")
    return SavedPort(
        value.name, type_text(value.type), reader_of(value.type),
        tensor.elem_type if is_tensor else 0,
        tuple(_axis(axis) for axis in tensor.shape.dim), is_tensor and tensor.HasField("shape"),
    )  # fmt: skip


def _axis(axis: Any) -> str:
    known = axis.HasField("dim_value") and axis.dim_value >= 0
    return str(axis.dim_value) if known else axis.dim_param
