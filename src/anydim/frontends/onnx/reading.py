"""A model from a path, from bytes or from a ModelProto, checked as far as its frame goes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anydim.base.errors import InputError, ModelError

OLDEST_OPSET = 7


@dataclass(frozen=True)
class Opened:
    """A decoded model, the name that messages give it, its opset and the folder of its data."""

    proto: Any
    name: str
    opset: int
    folder: Path | None


def open_model(source: Any) -> Opened:
    """Decode a model; ModelError for what is no ONNX model or one of an opset out of reach."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        proto, name, folder = _decode(_bytes_of(path), path.name), path.name, path.parent
    elif isinstance(source, (bytes, bytearray, memoryview)):
        proto, name, folder = _decode(bytes(source), "the model"), "model", None
    elif hasattr(source, "graph") and hasattr(source, "opset_import"):
        proto, name, folder = source, source.graph.name or "model", None
    else:
        raise InputError(
            f"a model cannot be read from {type(source).__name__}",
            "give a path, the bytes of a file, or an onnx.ModelProto",
        )
    return Opened(proto, name, _opset(proto, name), folder)


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None


def _decode(data: bytes, name: str) -> Any:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        proto = onnx.ModelProto.FromString(data)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        raise ModelError(f"{name} is not an ONNX model, or the file is truncated") from None
    if not proto.HasField("graph"):
        raise ModelError(f"{name} holds no graph", "it may be truncated or no ONNX model at all")
    return proto


def _opset(proto: Any, name: str) -> int:
    """The opset of the standard's own operators."""
    import onnx

    versions = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    if not versions:
        raise ModelError(f"{name} does not say which opset it uses")
    newest = onnx.defs.onnx_opset_version()
    opset = int(versions[0])
    if not OLDEST_OPSET <= opset <= newest:
        raise ModelError(
            f"{name} uses opset {opset}; opsets {OLDEST_OPSET} to {newest} are supported",
            "convert it with onnx.version_converter" if opset < OLDEST_OPSET else "update onnx",
        )
    return opset
