"""ONNX files -> graphs."""

from anydim.frontends.onnx.importer import import_model

__all__ = ["import_model"]
