"""A part of a saved model that onnx's reference evaluator runs."""

from __future__ import annotations

from collections.abc import Callable

import onnx
from google.protobuf.message import DecodeError

from anydim.compiler.frontends.onnx.file.strings import HostPart


def evaluated(data: bytes, name: str, fail: Callable[[str], Exception]) -> HostPart:
    """The part of a serialised ModelProto; raises what `fail` makes for other bytes."""
    try:
        return HostPart(onnx.ModelProto.FromString(data), name)
    except DecodeError:
        raise fail("its part on strings is no ONNX model") from None
