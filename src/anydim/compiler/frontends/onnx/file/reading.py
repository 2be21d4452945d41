"""Opens a model from a path, bytes or a ModelProto, and checks its outer structure."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from anydim.base import settings
from anydim.base.errors import InputError, ModelError, UserError
from anydim.base.records import dataclass
from anydim.base.user_values import short_repr
from anydim.compiler.frontends.onnx.file.data_folder import FOLLOW, DataFolder
from anydim.compiler.frontends.onnx.file.order import sort_nodes
from anydim.compiler.frontends.onnx.file.structure import structure_of
from anydim.compiler.frontends.onnx.file.tensors import densify
from anydim.compiler.frontends.onnx.file.wire import Span, map_file, no_model, without_weights

if TYPE_CHECKING:
    from anydim.compiler.graph.derivations import Weight

OLDEST_OPSET = 1
_READ_AT_ONCE = 1 << 30

Read = Callable[[Span], numpy.ndarray]


@dataclass(frozen=True)
class Opened:
    """A decoded model, its name in messages, its opset and the folder of its data.

    `domains` has the opsets of other domains than the standard's. `weights` reads the content of
    initializers, by number, that `proto` does not hold. `tracked` are the initializers that an
    import found, by number. `structure` is the digest of the model without weights, if it has one.
    """

    proto: Any
    name: str
    opset: int
    folder: DataFolder | None
    domains: Mapping[str, int]
    weights: Mapping[int, Callable[[], numpy.ndarray]] = field(default_factory=dict)
    tracked: dict[int, Weight] = field(default_factory=dict)
    structure: Callable[[], str] = str


def open_model(source: Any, external_data: str | None = None) -> Opened:
    """Decode a model; ModelError for invalid files and unsupported opsets.

    `external_data` is where links to external data may lead, as in the settings, whose value None
    stands for.
    """
    if isinstance(source, Opened):
        return source
    if isinstance(source, (str, os.PathLike)):
        return _open_file(Path(source), external_data or settings.external_data)
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = memoryview(source).cast("B")
        return _open_bytes(data, "the model", None, partial(_slice, data))
    if hasattr(source, "graph") and hasattr(source, "opset_import"):
        try:
            name = source.graph.name or "the model"
            whole = partial(source.SerializeToString, deterministic=True)
            if any(node.op_type == "Constant" for node in source.graph.node):  # may be weights
                data = memoryview(whole())
                return _open_bytes(data, name, None, partial(_slice, data))
            proto = sort_nodes(densify(source, None, name))
            return Opened(
                proto, name, _opset(source, name), None, _domains(source),
                structure=lambda: _structure(memoryview(whole())),
            )  # fmt: skip
        except UserError:
            raise
        except Exception as error:  # an object that only resembles a ModelProto
            raise InputError(f"a model cannot be read: {short_repr(error)}") from None
    raise InputError(
        f"a model cannot be read from {type(source).__name__}",
        "give a path, the bytes of a file, or an onnx.ModelProto",
    )


def _open_file(path: Path, external_data: str) -> Opened:
    try:
        folder = DataFolder(path, external_data == FOLLOW)
        with map_file(folder.model) as (data, found):
            folder.note_model(found)
            known = _file_stamp(found)
            return _open_bytes(
                data, path.name, folder, lambda span: _part(folder.model, span, known)
            )
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelError(f"{path}: cannot be read: {reason}") from None


def _open_bytes(data: memoryview, name: str, folder: DataFolder | None, read: Read) -> Opened:
    skeleton, spans = without_weights(data)
    proto = sort_nodes(densify(_decode(skeleton, name), folder, name))
    weights = {number: _reader(read, span) for number, span in spans.items()}
    structure = _structure(data)
    return Opened(
        proto, name, _opset(proto, name), folder, _domains(proto), weights,
        structure=lambda: structure,
    )  # fmt: skip


def with_weights(opened: Opened, arrays: Mapping[str, numpy.ndarray]) -> Opened:
    """A model with other contents of initializers by name."""
    proto = type(opened.proto)()
    proto.CopyFrom(opened.proto)
    weights = dict(opened.weights)
    for number, tensor in enumerate(proto.graph.initializer):
        array = arrays.get(tensor.name)
        if array is not None:
            for name in ("external_data", "data_location", "float_data", "int32_data"):
                tensor.ClearField(name)
            weights[number] = partial(numpy.ndarray.view, array.reshape(-1), numpy.uint8)
    return replace(opened, proto=proto, weights=weights, tracked={})


def _structure(data: memoryview) -> str:
    found = structure_of(data)
    return "" if found is None else found.digest


def _reader(read: Read, span: Span) -> Callable[[], numpy.ndarray]:
    return lambda: read(span)


def _slice(data: memoryview, span: Span) -> numpy.ndarray:
    return numpy.frombuffer(data[span.start : span.stop], numpy.uint8)


def _file_stamp(found: os.stat_result) -> tuple[int, ...]:
    """A stamp that changes when a file is written or replaced."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _part(path: Path, span: Span, known: tuple[int, ...]) -> numpy.ndarray:
    """Read bytes of a file directly into their final array."""
    part = numpy.empty(len(span), numpy.uint8)
    try:
        with path.open("rb", buffering=0) as file:
            if _file_stamp(os.fstat(file.fileno())) != known:
                raise ModelError(f"{path} has changed since it was opened", "compile it again")
            file.seek(span.start)
            view = part.data
            while view:
                count = file.readinto(view[:_READ_AT_ONCE])
                if not count:
                    raise ModelError(f"{path} became shorter while it was read")
                view = view[count:]
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
    return part


def _decode(data: bytes, name: str) -> Any:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        proto = onnx.ModelProto.FromString(data)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        raise no_model(data, name) from None
    if not proto.HasField("graph"):
        raise ModelError(f"{name} holds no graph", "it may be truncated or no ONNX model at all")
    return proto


def _opset(proto: Any, name: str) -> int:
    """The opset of the standard's own operators."""
    import onnx

    versions = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    newest: int = onnx.defs.onnx_opset_version()
    if not versions:
        if not proto.opset_import:
            raise ModelError(f"{name} declares no opset")
        return newest  # all of its operators are of other domains
    opset = int(versions[0])
    if not OLDEST_OPSET <= opset <= newest:
        raise ModelError(
            f"{name} uses opset {opset}; opsets {OLDEST_OPSET} to {newest} are supported",
            "convert it with onnx.version_converter" if opset < OLDEST_OPSET else "update onnx",
        )
    return opset


def _domains(proto: Any) -> dict[str, int]:
    return {entry.domain: int(entry.version) for entry in proto.opset_import}
