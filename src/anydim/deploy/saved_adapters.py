"""The adapter of a model in its file (`program/adapter.py`).

strings.json            a model with strings: inputs, outputs and steps (`string_records.py`)
tensors.json            complex tensors, and state
state/0, state/1, ...   the elements of state
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy

from anydim.base.dtypes import DType
from anydim.base.missing_package import missing_module
from anydim.base.records import dataclass
from anydim.deploy.container import Container
from anydim.deploy.records import parse_record, print_record
from anydim.deploy.string_records import (
    STRINGS,
    SavedSteps,
    SavedStrings,
    check_ports,
    onnx_member,
    steps_of,
)
from anydim.runtime.lists import Lists
from anydim.runtime.program.adapter import Adapter, TensorAdapter
from anydim.runtime.program.string_adapter import Part, StringAdapter
from anydim.runtime.signature import Signature

if TYPE_CHECKING:
    from anydim.deploy.archive import Member

TENSORS = "tensors.json"


@dataclass(frozen=True)
class SavedState:
    """An input that callers do not give."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class SavedTensors:
    """The arguments of a `TensorAdapter`."""

    complex_names: tuple[str, ...] = ()
    state: tuple[SavedState, ...] = ()
    written: Mapping[str, str] = field(default_factory=dict)


def members_of(adapter: Adapter | None) -> list[Member]:
    """The members of a file that hold an adapter."""
    if adapter is None:
        return []
    made: Any = import_module("anydim.deploy.archive").Member
    if isinstance(adapter, StringAdapter):
        found: list[Member] = import_module("anydim.deploy.string_members").string_members(
            adapter.parts
        )
        return found
    assert isinstance(adapter, TensorAdapter)
    if not (adapter.complex_names or adapter.written):
        return []
    specs = {spec.name: spec for spec in adapter.program.inputs}
    arrays = adapter.state_arrays()
    state = tuple(SavedState(n, specs[n].dtype, array.shape) for n, array in arrays.items())
    record = SavedTensors(adapter.complex_names, state, adapter.written)
    data = [made(_state(number), array.tobytes()) for number, array in enumerate(arrays.values())]
    return [made(TENSORS, print_record(record)), *data]


def _state(number: int) -> str:
    return f"state/{number}"


def adapter_of(container: Container, program: Signature, lists: Lists) -> Adapter:
    """The adapter in the file of a program. Raises ArtefactError."""
    if STRINGS in container.parts:
        return _strings(container, program)
    saved = parse_record(SavedTensors, bytes(container.verify_member(TENSORS)))
    inputs = {spec.name: spec for spec in program.inputs}
    outputs = {spec.key for spec in program.outputs}
    names = {each.name for each in saved.state} | set(saved.written)
    if not (names <= set(inputs) and outputs >= set(saved.written.values())
            and outputs | set(inputs) >= set(saved.complex_names)):  # fmt: skip
        raise container.fail("its state does not match its program")
    state = {each.name: _array(container, n, each) for n, each in enumerate(saved.state)}
    return TensorAdapter(program, saved.complex_names, state, saved.written, lists)


def _array(container: Container, number: int, saved: SavedState) -> numpy.ndarray:
    data = bytes(container.verify_member(_state(number)))
    try:
        array = numpy.frombuffer(data, numpy.uint8).view(saved.dtype.numpy).reshape(saved.shape)
    except ValueError:
        raise container.fail(f"state '{saved.name}' does not match its record") from None
    return array.copy()


def _strings(container: Container, program: Signature) -> StringAdapter:
    saved = parse_record(SavedStrings, bytes(container.verify_member(STRINGS)))
    check_ports(saved)
    early, late = (
        _part(container, saved.name, part, each)
        for part, each in (("early", saved.early), ("late", saved.late))
    )
    return StringAdapter(saved.name, program, (saved.inputs, saved.outputs), early, late)


def _part(container: Container, name: str, part: str, saved: SavedSteps | None) -> Part:
    """The callable of a part; MissingError if its operators need the package onnx."""
    if saved is not None:
        return steps_of(name, saved)
    data = bytes(container.verify_member(onnx_member(part)))
    try:
        strings = import_module("anydim.compiler.frontends.onnx.file.strings")
        made: Part = strings.saved_part(data, name, container.fail)
    except ModuleNotFoundError as error:
        raise missing_module(f"{name}, whose operators on strings numpy lacks,", error) from error
    return made
