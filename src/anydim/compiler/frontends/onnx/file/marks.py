"""Recognises files that are no ONNX models by their first bytes."""

from __future__ import annotations

from anydim.base.errors import ModelError

_FIRST = 64  # bytes
_MARKS = {
    b"version https://git-lfs": "it is a pointer of Git LFS: `git lfs pull` brings the model",
    b"manifest.json": "it is a model that anydim saved: ad.load takes it",
    b"html": "it is a web page, perhaps an error of the download",
    b"pk\3\4": "it is an archive, such as torch.save writes: torch.onnx.export makes ONNX models",
}


def no_model(data: bytes | memoryview, name: str) -> ModelError:
    """The error for bytes that are no ONNX model."""
    first = bytes(data[:_FIRST]).lower()
    hint = next((hint for mark, hint in _MARKS.items() if mark in first), "")
    return ModelError(f"{name} is not an ONNX model, or the file is truncated", hint)
