"""Packages that are written against onnxruntime, unchanged, on it and on anydim.ort."""
